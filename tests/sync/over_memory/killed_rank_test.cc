// Ranks that are processes, of which one is killed, or stopped, in the middle of its calls.
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <iterator>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/sync/over_memory/host_collectives.h"
#include "tests/support/catch.h"
#include "tests/support/in_child.h"
#include "tests/support/shared_bytes.h"

namespace lmdbio::sync {
namespace {

using Clock = std::chrono::steady_clock;
using test::Verdict;

constexpr int kRanks = 4;
constexpr int kVictim = 2;
constexpr size_t kSharedBytes = 64 << 20;

// Shared by the test and its ranks, beside the memory of the collectives.
struct SharedProgress {
  std::array<std::atomic<pid_t>, kRanks> pids;
  std::atomic<int> met_count;
  std::atomic<int> call_count;  // of the victim's
  std::atomic<bool> goes_on;
  std::atomic<int64_t> killed_at_us;
};

int64_t NowUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch())
      .count();
}

class BorrowedMemory final : public ranks::SharedMemory {
 public:
  explicit BorrowedMemory(MutableBytes bytes) : bytes_(bytes) {}
  MutableBytes bytes() const override { return bytes_; }
  void Abandon() override {}

 private:
  MutableBytes bytes_;
};

// As much of a group as the collectives need: all have the same options, and memory from the test.
class VictimGroup final : public ranks::Group {
 public:
  VictimGroup(int rank, MutableBytes memory) : rank_(rank), memory_(memory) {}
  int rank() const override { return rank_; }
  int size() const override { return kRanks; }
  const std::string& host_name() const override { return host_name_; }
  Status Barrier() override { return {}; }
  Status Broadcast(int, MutableBytes) override { return {}; }
  Result<std::vector<std::byte>> AllGather(Bytes mine) override {
    std::vector<std::byte> all;
    for (int i = 0; i < kRanks; ++i) all.insert(all.end(), mine.begin(), mine.end());
    return all;
  }
  Result<std::unique_ptr<Group>> SplitByHost() override { return Split(0); }
  Result<std::unique_ptr<Group>> Split(int) override {
    return std::make_unique<VictimGroup>(rank_, memory_);
  }
  Result<std::unique_ptr<ranks::SharedMemory>> AllocateShared(uint64_t size_bytes) override {
    if (size_bytes > memory_.size()) return Fail(ErrorCode::kResourceExhausted, "too much");
    auto given = std::make_unique<BorrowedMemory>(memory_.first(size_bytes));
    memory_ = memory_.subspan(size_bytes);
    return given;
  }

 private:
  int rank_;
  MutableBytes memory_;
  std::string host_name_;
};

// Looks whether the processes still run.
class ProcessHealth final : public ranks::Health {
 public:
  explicit ProcessHealth(const SharedProgress& meeting) {
    for (const auto& pid : meeting.pids) {
      fds_.push_back(static_cast<int>(::syscall(SYS_pidfd_open, pid.load(), 0)));
    }
  }
  ~ProcessHealth() override {
    for (const int fd : fds_) ::close(fd);
  }
  ProcessHealth(const ProcessHealth&) = delete;
  ProcessHealth& operator=(const ProcessHealth&) = delete;

  Status Check() override {
    for (size_t i = 0; i < fds_.size(); ++i) {
      pollfd ended{.fd = fds_[i], .events = POLLIN, .revents = 0};
      if (::poll(&ended, 1, 0) == 1) {
        return Fail(ErrorCode::kPeerFailed, fmt::format("rank {} has ended", i));
      }
    }
    return {};
  }
  void GiveUp(const Error&) override {}

 private:
  std::vector<int> fds_;
};

// Every rank in a process of its own.
std::vector<pid_t> ForkRanks(const std::function<Verdict(int rank)>& run) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < kRanks; ++rank) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) ::_exit(static_cast<int>(run(rank)));
    children.push_back(child);
  }
  return children;
}

// In a rank, first of all: waits until each has said which process it is.
void MeetAll(int rank, SharedProgress& meeting) {
  meeting.pids[static_cast<size_t>(rank)].store(::getpid());
  meeting.met_count.fetch_add(1);
  while (meeting.met_count.load() < kRanks) ::usleep(1000);
}

// Waits for the end.
bool EndsRight(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == static_cast<int>(Verdict::kRight);
}

Verdict RunRank(int rank, SharedProgress& meeting, MutableBytes memory, const HostOptions& options,
                size_t count) {
  MeetAll(rank, meeting);
  ProcessHealth health(meeting);
  VictimGroup group(rank, memory);
  auto all = HostCollectives(group, health, options);
  if (!all) return Verdict::kWrong;
  const MutableBytes registered = (*all)->registered();
  std::vector<float> own(count);
  std::byte* const values =
      registered.empty() ? reinterpret_cast<std::byte*>(own.data()) : registered.data();
  while (true) {
    const auto got = (*all)->AllReduce({}, {values, count, DataType::kFloat32}, ReduceOp::kSum);
    if (got) {
      if (rank == kVictim) meeting.call_count.fetch_add(1);
      continue;
    }
    const bool is_named = got.error().message().find("rank 2 has ended") != std::string::npos;
    const int64_t late_us = NowUs() - meeting.killed_at_us.load();
    const bool is_right = got.error().code() == ErrorCode::kPeerFailed && is_named;
    return is_right && late_us < 5'000'000 ? Verdict::kRight : Verdict::kWrong;
  }
}

TEST_CASE("A rank that is killed ends the calls of all others within seconds", "[collective]") {
  const size_t count = GENERATE(1, 1000, 1 << 20);
  const WaitMode wait = GENERATE(WaitMode::kSleep, WaitMode::kSpin);
  const uint64_t registered_bytes = GENERATE(0, 4 << 20);
  CAPTURE(count, static_cast<int>(wait), registered_bytes);
  const test::SharedBytes shared(kSharedBytes);
  auto& meeting = *new (shared.bytes().data()) SharedProgress{};
  const HostOptions options{.wait = wait, .registered_bytes = registered_bytes};
  const std::vector<pid_t> children = ForkRanks([&](int rank) {
    return RunRank(rank, meeting, shared.bytes().subspan(4096), options, count);
  });
  while (meeting.call_count.load() < 3) ::usleep(500);
  meeting.killed_at_us.store(NowUs());
  ::kill(children[kVictim], SIGKILL);
  ::waitpid(children[kVictim], nullptr, 0);
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == kVictim) continue;
    CHECK(EndsRight(children[static_cast<size_t>(rank)]));
  }
}

// The letter in /proc/PID/stat: 'S' for one that sleeps, 'T' for one that is stopped.
char StateOf(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text((std::istreambuf_iterator<char>(file)), {});
  return text.at(text.rfind(')') + 2);
}

// One sum in place. The victim comes to it first, and the others not before they may go on.
Verdict SumInPlace(int rank, SharedProgress& meeting, MutableBytes memory, size_t count) {
  MeetAll(rank, meeting);
  ProcessHealth health(meeting);
  VictimGroup group(rank, memory);
  auto all = HostCollectives(group, health, {.registered_bytes = 4 << 20});
  if (!all || (*all)->registered().empty()) return Verdict::kWrong;
  auto* const values = reinterpret_cast<float*>((*all)->registered().data());
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>((i + 1) * (rank + 1) % 1024);
  std::vector<float> sums(count);
  for (size_t i = 0; i < count; ++i) {
    for (size_t r = 0; r < kRanks; ++r) sums[i] += static_cast<float>((i + 1) * (r + 1) % 1024);
  }
  if (rank == kVictim) {
    meeting.call_count.store(1);
  } else {
    while (!meeting.goes_on.load()) ::usleep(1000);
  }
  const Values all_values{reinterpret_cast<std::byte*>(values), count, DataType::kFloat32};
  const auto got = (*all)->AllReduce({}, all_values, ReduceOp::kSum);
  const bool is_right = got && std::equal(sums.begin(), sums.end(), values);
  meeting.met_count.fetch_add(1);
  while (meeting.met_count.load() < 2 * kRanks) ::usleep(1000);  // its peers would find its end
  return is_right ? Verdict::kRight : Verdict::kWrong;
}

TEST_CASE("A rank that does not run holds up no sum in place that it has come to", "[collective]") {
  const size_t count = GENERATE(100'000, 1 << 20);
  const test::SharedBytes shared(kSharedBytes);
  auto& meeting = *new (shared.bytes().data()) SharedProgress{};
  const std::vector<pid_t> children = ForkRanks(
      [&](int rank) { return SumInPlace(rank, meeting, shared.bytes().subspan(4096), count); });
  // From here on it sleeps nowhere but in the sum.
  while (meeting.call_count.load() == 0) ::usleep(500);
  while (StateOf(children[kVictim]) != 'S') ::usleep(500);
  ::kill(children[kVictim], SIGSTOP);
  while (StateOf(children[kVictim]) != 'T') ::usleep(500);
  meeting.goes_on.store(true);
  const auto give_up = Clock::now() + std::chrono::seconds(30);
  while (meeting.met_count.load() < 2 * kRanks - 1 && Clock::now() < give_up) ::usleep(500);
  CHECK(meeting.met_count.load() == 2 * kRanks - 1);
  ::kill(children[kVictim], SIGCONT);
  for (const pid_t child : children) CHECK(EndsRight(child));
}

}  // namespace
}  // namespace lmdbio::sync
