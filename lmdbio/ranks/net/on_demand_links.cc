// The thread owns the door and the connector, so neither needs a lock. It sleeps in poll until a
// rank connects, an attempt goes on, or a user has a request.
#include "lmdbio/ranks/net/on_demand_links.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/ranks/net/peer_door.h"
#include "lmdbio/ranks/net/wake_event.h"
#include "lmdbio/ranks/shm/call_failure.h"

namespace lmdbio::ranks {
namespace {

using Clock = std::chrono::steady_clock;

// All ranks listen before Create returns, so a refusal means that the rank has closed its door. A
// second covers a queue of connections that is full for a moment.
constexpr ConnectLimits kOnDemandConnectLimits{.total = std::chrono::seconds(30),
                                               .refused = std::chrono::seconds(1)};

}  // namespace

OnDemandLinks::OnDemandLinks(int rank, JobAddresses job)
    : rank_(rank),
      job_(std::move(job)),
      connector_(rank, job_.key, kOnDemandConnectLimits),
      request_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      opened_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Result<std::unique_ptr<OnDemandLinks>> OnDemandLinks::Create(Group& group, size_t link_count) {
  LMDBIO_TRY(JobAddresses job, ExchangeAddresses(group, {.connection_count = link_count}));
  std::unique_ptr<OnDemandLinks> links(new OnDemandLinks(group.rank(), std::move(job)));
  LMDBIO_TRY_VOID(Agree(group, links->Start()));
  return links;
}

Status OnDemandLinks::Start() {
  if (!request_event_ || !opened_event_) {
    return CallFailed(ErrorCode::kResourceExhausted, "eventfd", errno);
  }
  try {
    thread_ = std::thread([this] { Serve(); });
  } catch (const std::system_error& failure) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("cannot start the thread that opens links: {}; raise ulimit -u",
                            failure.what()));
  }
  return {};
}

OnDemandLinks::~OnDemandLinks() {
  Close();
  if (thread_.joinable()) thread_.join();
}

void OnDemandLinks::Open(int to) {
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(to);
  }
  Signal(request_event_);
}

void OnDemandLinks::Close() {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    opened_.clear();  // links that no user has taken end with the door
  }
  Signal(request_event_);
}

std::vector<OnDemandLinks::OpenedLink> OnDemandLinks::TakeOpened() {
  const std::lock_guard lock(mutex_);
  // Under the lock, so the event is readable exactly while `opened_` has a link.
  Reset(opened_event_);
  return std::exchange(opened_, {});
}

void OnDemandLinks::Report(OpenedLink link) {
  const std::lock_guard lock(mutex_);
  // A link that is opened after Close has no user and is closed here.
  if (is_closed_) return;
  opened_.push_back(std::move(link));
  Signal(opened_event_);
}

// --- The thread ---

void OnDemandLinks::Serve() {
  ::pthread_setname_np(::pthread_self(), "lmdbio-links");  // for ps, top and profilers
  while (TakeRequests()) {
    TakeOutcomes();
    for (PeerDoor::Visitor& visitor : job_.door.Serve(job_.key, Clock::now())) {
      Welcome(std::move(visitor));
    }
    Wait();
  }
  // Closes the listeners in this thread, which owns them. Ranks that connect from now on are
  // refused, and give up after kOnDemandConnectLimits.refused.
  job_.door = PeerDoor();
  connector_ = PeerConnector(rank_, job_.key, kOnDemandConnectLimits);
}

// Returns false after Close.
bool OnDemandLinks::TakeRequests() {
  std::vector<int> requests;
  {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return false;
    // The event is cleared before the requests are taken. So a later request signals again.
    Reset(request_event_);
    requests = std::exchange(requests_, {});
  }
  for (const int to : requests) connector_.Add(to, job_.InOrderFor(to), Clock::now());
  return true;
}

void OnDemandLinks::TakeOutcomes() {
  for (PeerConnector::ConnectResult& outcome : connector_.Serve(Clock::now())) {
    Report({.rank = outcome.rank,
            .direction = LinkDirection::kOutgoing,
            .socket = std::move(outcome.socket),
            .failure = std::move(outcome.failure)});
  }
}

// A visitor that comes again has given up its first connection before it sent data.
void OnDemandLinks::Welcome(PeerDoor::Visitor visitor) {
  const bool is_expected = visitor.to == rank_ && visitor.from >= 0 && visitor.from != rank_ &&
                           static_cast<size_t>(visitor.from) < job_.of_ranks.size();
  if (!is_expected || !PeerDoor::Answer(visitor)) return;
  Report({.rank = visitor.from,
          .direction = LinkDirection::kIncoming,
          .socket = std::move(visitor.socket),
          .failure = {}});
}

void OnDemandLinks::Wait() {
  const auto now = Clock::now();
  std::vector<pollfd> polled{{request_event_.get(), POLLIN, 0}};
  connector_.AddTo(polled);
  job_.door.AddTo(polled, now);
  const auto deadline = std::min(job_.door.Deadline(), connector_.Deadline());
  // Rounded up: a poll that ends a little early would only be repeated.
  int limit_ms = -1;
  if (deadline != Clock::time_point::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now);
    limit_ms = static_cast<int>(std::max<int64_t>(0, left.count()));
  }
  ::poll(polled.data(), polled.size(), limit_ms);
}

}  // namespace lmdbio::ranks
