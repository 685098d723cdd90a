#include "lmdbio/ranks/launcher/meeting_host.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/ranks/linked/meeting_place.h"
#include "lmdbio/ranks/net/job_addresses.h"
#include "lmdbio/ranks/net/link_socket.h"
#include "lmdbio/ranks/net/wake_event.h"
#include "lmdbio/ranks/shm/call_failure.h"

namespace lmdbio::ranks {
namespace {

constexpr auto kHelloLimit = std::chrono::seconds(5);
constexpr auto kLastWordsLimit = std::chrono::seconds(1);
// After a failure, for ranks that have not come yet: they would look for rank 0 until their limit.
constexpr std::chrono::milliseconds kLateGuestsLimit{5000};
constexpr int kAcceptsMax = 256;  // in one turn

// The addresses to listen at. Others may know rank 0 by an address that this host does not have, so
// it listens at all of them, unless the name says that nobody comes from elsewhere.
std::vector<PeerAddress> ListeningAddresses(const std::string& host) {
  std::vector<PeerAddress> addresses;
  if (host == "localhost" || host.rfind("127.", 0) == 0 || host == "::1") {
    const Result<std::vector<PeerAddress>> found = ResolveHost(host);
    if (found) addresses = *found;
    std::erase_if(addresses, [](const PeerAddress& one) { return !IsLoopback(one); });
  }
  if (addresses.empty()) addresses = {AnyAddress(), AnyAddressOfV4()};
  return addresses;
}

Result<UniqueFd> ListenSomewhere(const std::vector<PeerAddress>& addresses, uint16_t port) {
  Result<UniqueFd> listener = Fail(ErrorCode::kIo, "no address");
  for (PeerAddress address : addresses) {
    address.port = port;
    listener = ListenAtPort(address);
    // At a port that is taken, a socket of the other family would only confuse the guests.
    if (listener || listener.error().error_number() == EADDRINUSE) break;
  }
  return listener;
}

}  // namespace

Result<std::unique_ptr<MeetingHost>> MeetingHost::Open(const Launch& launch) {
  const std::vector<PeerAddress> addresses = ListeningAddresses(launch.host);
  Result<UniqueFd> listener = Fail(ErrorCode::kIo, "no port");
  uint16_t port = launch.first_port;
  for (uint16_t i = 0; i < launch.port_count && !listener; ++i) {
    port = static_cast<uint16_t>(launch.first_port + i);
    listener = ListenSomewhere(addresses, port);
  }
  if (!listener) {
    const std::string ports =
        launch.port_count == 1 ? fmt::format("port {}", launch.first_port)
                               : fmt::format("any of the ports {} to {}", launch.first_port, port);
    const bool is_taken = listener.error().error_number() == EADDRINUSE;
    return Fail(listener.error().code(),
                fmt::format("rank 0 cannot listen at {} ({}){}", ports, listener.error().message(),
                            is_taken ? ": another job or program has it; set LMDBIO_MEETING to a "
                                       "free HOST:PORT on all ranks"
                                     : ""),
                listener.error().error_number());
  }
  std::unique_ptr<MeetingHost> host(new MeetingHost(launch, std::move(*listener), port));
  LMDBIO_TRY(host->key_, DrawJobKey());
  host->stop_event_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!host->stop_event_) return CallFailed(ErrorCode::kResourceExhausted, "eventfd", errno);
  try {
    host->thread_ = std::thread([raw = host.get()] { raw->Run(); });
  } catch (const std::system_error& error) {
    return Fail(ErrorCode::kResourceExhausted, fmt::format("no thread: {}", error.what()));
  }
  return host;
}

MeetingHost::MeetingHost(const Launch& launch, UniqueFd listener, uint16_t port)
    : launch_(launch),
      listener_(std::move(listener)),
      port_(port),
      guests_(static_cast<size_t>(launch.size)),
      until_(Clock::now() + launch.limit) {}

MeetingHost::~MeetingHost() {
  if (!thread_.joinable()) return;
  Signal(stop_event_);
  thread_.join();
}

void MeetingHost::Run() {
  bool is_stopping = false;
  auto last_words_until = Clock::time_point::max();
  while (!is_stopping || (has_words_left() && Clock::now() < last_words_until)) {
    const auto now = Clock::now();
    AcceptStrangers(now);
    ServeStrangers(now);
    ServeGuests();
    if (!failure_ && come_count_ < guests_.size() && now >= until_) {
      FailAll(ErrorCode::kPeerFailed, WordsOfMissing());
    }
    Wait(now);
    if (!is_stopping && Reset(stop_event_)) {
      is_stopping = true;
      SayLastWords();
      last_words_until =
          Clock::now() + (failure_ ? std::min(launch_.limit, kLateGuestsLimit) : kLastWordsLimit);
    }
  }
}

// Rank 0 has told its guests about a failure of its own in a message that may still be unread.
void MeetingHost::SayLastWords() {
  ServeGuests();
  if (failure_) return;
  if (come_count_ < guests_.size()) {
    return FailAll(ErrorCode::kPeerFailed, "rank 0 has left the meeting of the ranks");
  }
  for (Guest& guest : guests_) {
    if (guest.connection.is_open() && !guest.has_left) guest.connection.Send(MeetingWord::kAllMet);
  }
}

// Whether a guest has not been told how the meeting ended.
bool MeetingHost::has_words_left() const {
  if (failure_ && come_count_ < guests_.size()) return true;
  return std::any_of(guests_.begin(), guests_.end(),
                     [](const Guest& guest) { return guest.connection.has_unsent(); });
}

void MeetingHost::Wait(Clock::time_point now) {
  std::vector<pollfd> polled = {{stop_event_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
  auto deadline = now + std::chrono::milliseconds(500);
  if (!failure_ && come_count_ < guests_.size()) deadline = std::min(deadline, until_);
  for (const UnknownGuest& one : strangers_) {
    polled.push_back({one.connection.fd(), POLLIN, 0});
    deadline = std::min(deadline, one.until);
  }
  for (const Guest& guest : guests_) {
    if (!guest.connection.is_open() || guest.connection.is_broken()) continue;
    const bool sends = guest.connection.has_unsent();
    polled.push_back(
        {guest.connection.fd(), static_cast<short>(sends ? POLLIN | POLLOUT : POLLIN), 0});
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now);
  ::poll(polled.data(), polled.size(), static_cast<int>(std::max<int64_t>(0, left.count())));
}

void MeetingHost::AcceptStrangers(Clock::time_point now) {
  for (int i = 0; i < kAcceptsMax; ++i) {
    UniqueFd socket = AcceptLink(listener_);
    if (!socket && (errno == EMFILE || errno == ENFILE) && !strangers_.empty()) {
      strangers_.pop_front();
      continue;
    }
    if (!socket && (errno == EMFILE || errno == ENFILE) && !failure_) {
      FailAll(ErrorCode::kResourceExhausted,
              fmt::format("rank 0 cannot take the connections of all {} ranks: {}", launch_.size,
                          WordsOfFailure("accept", errno)));
    }
    if (!socket) return;
    if (strangers_.size() == kStrangersMax) strangers_.pop_front();
    strangers_.push_back({MeetingConnection(std::move(socket)), now + kHelloLimit});
  }
}

void MeetingHost::ServeStrangers(Clock::time_point now) {
  for (auto it = strangers_.begin(); it != strangers_.end();) {
    const std::optional<MeetingMessage> message = it->connection.Receive();
    bool is_over = it->connection.is_broken() || now >= it->until;
    if (message) is_over = true;
    if (message && message->head.word == MeetingWord::kHello) Welcome(*it, *message);
    it = is_over ? strangers_.erase(it) : it + 1;
  }
}

// Answers a hello, and makes the stranger a guest if it is expected.
void MeetingHost::Welcome(UnknownGuest& stranger, const MeetingMessage& hello) {
  std::optional<GuestHello> decoded = DecodeHello(hello.body);
  if (!decoded) return;
  const GuestIntroduction& said = decoded->said;
  MeetingConnection& connection = stranger.connection;
  const auto refuse = [&](MeetingWord why, uint64_t value = 0) { connection.Send(why, value); };
  if (said.job != launch_.job) return refuse(MeetingWord::kOtherJob);
  if (said.meeting != launch_.meeting) return refuse(MeetingWord::kOtherMeeting, launch_.meeting);
  if (said.size != launch_.size) {
    FailAll(ErrorCode::kPeerFailed,
            fmt::format("rank {} expects {} ranks, rank 0 expects {}: all ranks need one number",
                        said.rank, said.size, launch_.size));
    return refuse(MeetingWord::kOtherSize, static_cast<uint64_t>(launch_.size));
  }
  if (said.rank < 0 || said.rank >= launch_.size) return;
  Guest& guest = guests_[static_cast<size_t>(said.rank)];
  if (guest.has_come) return refuse(MeetingWord::kTwice);
  guest.has_come = true;
  ++come_count_;
  guest.entry = std::move(decoded->entry);
  guest.wanted = std::move(decoded->wanted);
  guest.connection = std::move(connection);
  guest.connection.Send(MeetingWord::kComeIn);
  if (failure_) {
    guest.connection.Send(MeetingWord::kFailure, static_cast<uint64_t>(failure_->code()),
                          std::as_bytes(std::span(failure_->message())));
  } else if (come_count_ == guests_.size()) {
    for (Guest& one : guests_) SendEntries(one);
  }
}

void MeetingHost::SendEntries(Guest& guest) {
  std::vector<std::vector<std::byte>> entries;
  for (const int32_t rank : guest.wanted) {
    const bool is_rank = rank >= 0 && rank < launch_.size;
    entries.push_back(is_rank ? guests_[static_cast<size_t>(rank)].entry
                              : std::vector<std::byte>());
  }
  guest.connection.Send(MeetingWord::kEntries, 0, EncodeEntries(key_, entries));
}

// A guest that ends its connection without a word has died.
void MeetingHost::ServeGuests() {
  for (size_t rank = 0; rank < guests_.size(); ++rank) {
    Guest& guest = guests_[rank];
    if (!guest.connection.is_open() || guest.has_left) continue;
    guest.connection.Flush();
    while (const std::optional<MeetingMessage> message = guest.connection.Receive()) {
      if (message->head.word == MeetingWord::kLeave) guest.has_left = true;
      if (message->head.word == MeetingWord::kGiveUp) {
        guest.has_left = true;
        FailAll(ErrorCode::kPeerFailed, message->text());
      }
    }
    if (!guest.connection.is_broken()) continue;
    guest.connection.Close();
    if (guest.has_left) continue;
    guest.has_left = true;
    FailAll(ErrorCode::kPeerFailed,
            fmt::format("rank {} has ended during the meeting of the ranks", rank));
  }
}

void MeetingHost::FailAll(ErrorCode code, const std::string& words) {
  if (failure_) return;
  failure_.emplace(code, words);
  for (Guest& guest : guests_) {
    if (!guest.connection.is_open() || guest.has_left) continue;
    guest.connection.Send(MeetingWord::kFailure, static_cast<uint64_t>(code),
                          std::as_bytes(std::span(words)));
  }
}

std::string MeetingHost::WordsOfMissing() const {
  std::vector<int> missing;
  for (size_t rank = 0; rank < guests_.size(); ++rank) {
    if (!guests_[rank].has_come) missing.push_back(static_cast<int>(rank));
  }
  return fmt::format(
      "{} {} not come to the meeting at {} port {} within {} s: see whether {} running, and "
      "raise LMDBIO_MEETING_LIMIT_S if the start takes longer",
      NamesOfRanks(missing), missing.size() == 1 ? "has" : "have", launch_.host, port_,
      std::chrono::duration<double>(launch_.limit).count(),
      missing.size() == 1 ? "it is" : "they are");
}

}  // namespace lmdbio::ranks
