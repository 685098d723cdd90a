#include "lmdbio/ranks/mpi/mpi_meeting.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/kept_memory.h"
#include "lmdbio/ranks/health/health.h"
#include "lmdbio/ranks/mpi/mpi_calls.h"
#include "lmdbio/ranks/mpi/mpi_waiter.h"
#include "lmdbio/ranks/net/job_addresses.h"

namespace lmdbio::ranks {
namespace {

using Clock = std::chrono::steady_clock;

// Ranks that have met need no longer to tell their ends: all connect at the same time.
constexpr auto kEndLimit = std::chrono::seconds(60);

// Ends a wait when the time is over. MPI does not say which ranks are missing.
class TimeLimit final : public Health {
 public:
  TimeLimit(std::chrono::milliseconds limit, std::string what)
      : limit_(limit), what_(std::move(what)), end_(Clock::now() + limit) {}
  Status Check() override {
    if (Clock::now() < end_) return {};
    return Fail(ErrorCode::kPeerFailed,
                fmt::format("not all ranks of the communicator have {} within {} s", what_,
                            std::chrono::duration<double>(limit_).count()));
  }
  void GiveUp(const Error& /*why*/) override {}

 private:
  const std::chrono::milliseconds limit_;
  const std::string what_;
  const Clock::time_point end_;
};

Status Await(MPI_Request& request, std::chrono::milliseconds limit, const std::string& what) {
  TimeLimit health(limit, what);
  MpiWaiter waiter(health);
  return waiter.Await(request, MpiWaiter::kMessageYield);
}

// Collective. The bytes of all ranks, in their order.
Result<std::vector<std::byte>> AllGatherWithin(MPI_Comm communicator, std::vector<std::byte> mine,
                                               std::chrono::milliseconds limit,
                                               const std::string& what) {
  int size = 0;
  MPI_Comm_size(communicator, &size);
  std::vector<std::byte> all(mine.size() * static_cast<size_t>(size));
  const auto count = static_cast<int>(mine.size());
  MPI_Request request = MPI_REQUEST_NULL;
  LMDBIO_TRY_VOID(MpiStatus(MPI_Iallgather(mine.data(), count, MPI_BYTE, all.data(), count,
                                           MPI_BYTE, communicator, &request),
                            "MPI_Iallgather"));
  Status done = Await(request, limit, what);
  if (done) return all;
  // MPI may still write.
  KeepForever(std::move(mine));
  KeepForever(std::move(all));
  return Fail(std::move(done).error());
}

struct RankEnd {
  MeetingEnd end = MeetingEnd::kConnected;
  std::array<char, 508> words{};
};

MeetingEnd EndOf(const Status& connected) {
  if (connected) return MeetingEnd::kConnected;
  return connected.error().code() == ErrorCode::kIo ? MeetingEnd::kNoLinks : MeetingEnd::kFailed;
}

}  // namespace

Result<MPI_Comm> DuplicateWithin(MPI_Comm communicator, std::chrono::milliseconds limit) {
  // MPI writes the handle when the request is done, so it must not lie on the stack.
  auto duplicate = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
  MPI_Request request = MPI_REQUEST_NULL;
  LMDBIO_TRY_VOID(
      MpiStatus(MPI_Comm_idup(communicator, duplicate.get(), &request), "MPI_Comm_idup"));
  Status done = Await(request, limit, "called lmdbio");
  if (!done) {
    KeepForever(std::move(duplicate));
    return Fail(std::move(done).error());
  }
  // MPI ends the job on an error by default. From here on failures are return codes.
  MPI_Comm_set_errhandler(*duplicate, MPI_ERRORS_RETURN);
  return *duplicate;
}

Result<MeetingResult> MpiMeeting::Exchange(Bytes mine, std::span<const int> wanted) {
  // A rank without random numbers comes, too, so that the others do not wait for it.
  const Result<JobKey> drawn = DrawJobKey();
  MeetingResult met;
  std::vector<std::byte> entry(sizeof met.key + mine.size());
  if (drawn) std::memcpy(entry.data(), &*drawn, sizeof *drawn);
  std::copy(mine.begin(), mine.end(), entry.begin() + sizeof met.key);
  LMDBIO_TRY(const auto all, AllGatherWithin(communicator_, entry, limit_, "met"));
  if (!drawn) return Fail(drawn.error().Copy());
  std::memcpy(&met.key, all.data(), sizeof met.key);  // that of rank 0
  for (const int rank : wanted) {
    const auto at = all.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(rank) * entry.size());
    met.entries.emplace_back(at + sizeof met.key, at + static_cast<ptrdiff_t>(entry.size()));
  }
  return met;
}

Result<MpiMeeting::CommonEnd> MpiMeeting::AgreeOnEnd(const Status& connected) {
  RankEnd mine;
  mine.end = EndOf(connected);
  if (!connected) {
    const std::string& words = connected.error().message();
    words.copy(mine.words.data(), mine.words.size() - 1);
  }
  const Bytes bytes = std::as_bytes(std::span(&mine, 1));
  LMDBIO_TRY(const auto gathered,
             AllGatherWithin(communicator_, {bytes.begin(), bytes.end()}, kEndLimit, "connected"));
  CommonEnd common;
  for (size_t at = 0; at < gathered.size(); at += sizeof(RankEnd)) {
    RankEnd theirs;
    std::memcpy(&theirs, &gathered[at], sizeof theirs);
    if (theirs.end <= common.end) continue;
    common = {theirs.end, fmt::format("rank {}: {}", at / sizeof(RankEnd), theirs.words.data())};
  }
  return common;
}

}  // namespace lmdbio::ranks
