#include "tests/ranks/launcher/struck_ranks.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/ranks/launcher/launched_group.h"
#include "tests/ranks/forked_ranks.h"
#include "tests/ranks/launcher/launched_ranks.h"
#include "tests/support/shared_bytes.h"

namespace lmdbio::test {
namespace {

using ranks::Group;
using ranks::SharedMemory;

constexpr double kNamedWithin_s = 5;

int64_t NowNs() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

// Counts the collective calls of a group and its parts, and calls `strike` before one of them.
class CountedGroup final : public Group {
 public:
  CountedGroup(Group& group, std::function<void()> before_call)
      : group_(&group), before_call_(std::move(before_call)) {}
  CountedGroup(std::unique_ptr<Group> group, std::function<void()> before_call)
      : own_(std::move(group)), group_(own_.get()), before_call_(std::move(before_call)) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  const std::string& host_name() const override { return group_->host_name(); }
  Status Barrier() override { return Counted().Barrier(); }
  Status Broadcast(int root, MutableBytes bytes) override {
    return Counted().Broadcast(root, bytes);
  }
  Result<std::vector<std::byte>> AllGather(Bytes mine) override {
    return Counted().AllGather(mine);
  }
  Result<std::unique_ptr<Group>> SplitByHost() override { return Part(Counted().SplitByHost()); }
  Result<std::unique_ptr<Group>> Split(int color) override { return Part(Counted().Split(color)); }
  Result<std::unique_ptr<SharedMemory>> AllocateShared(uint64_t size_bytes) override {
    return Counted().AllocateShared(size_bytes);
  }
  Status CheckRanks() override { return group_->CheckRanks(); }
  Status CheckRanksWithin(std::chrono::milliseconds limit) override {
    return group_->CheckRanksWithin(limit);
  }

 private:
  Group& Counted() {
    before_call_();
    return *group_;
  }
  Result<std::unique_ptr<Group>> Part(Result<std::unique_ptr<Group>> part) {
    LMDBIO_TRY(std::unique_ptr<Group> own, std::move(part));
    return std::make_unique<CountedGroup>(std::move(own), before_call_);
  }

  std::unique_ptr<Group> own_;
  Group* group_;
  std::function<void()> before_call_;
};

// The fault of a rank that has ended its script; "" if there is none.
std::string FaultOf(const Status& ended, int victim, int64_t struck_ns) {
  const double seconds = static_cast<double>(NowNs() - struck_ns) * 1e-9;
  if (struck_ns > 0 && seconds > kNamedWithin_s) return fmt::format("after {:.1f} s", seconds);
  if (ended) return "";
  const std::string& words = ended.error().message();
  if (struck_ns == 0) return "before the strike: " + words;
  const bool is_named = words.find(fmt::format("rank {}", victim)) != std::string::npos;
  return is_named ? "" : "the victim is not named: " + words;
}

}  // namespace

StrikeResult RunStruck(const Strike& strike, const std::function<Status(Group& group)>& script) {
  const SharedBytes memory(sizeof(std::atomic<int64_t>));
  auto& struck_ns = *new (memory.bytes().data()) std::atomic<int64_t>(0);
  const uint16_t port = FreePorts(1);
  ForkedJob job(strike.size, strike.size);
  job.Start([&](Group& forked, ForkedJob&) -> std::string {
    const bool is_victim = forked.rank() == strike.victim;
    auto group = ranks::LaunchedGroup(LaunchAt(port, forked.rank(), strike.size));
    if (!group) return "no group: " + group.error().message();
    int call_count = 0;
    CountedGroup counted(**group, [&] {
      if (!is_victim || call_count++ != strike.call) return;
      struck_ns.store(NowNs());
      ::kill(::getpid(), strike.signal);
    });
    const Status ended = script(counted);
    return FaultOf(ended, strike.victim, struck_ns.load());
  });
  StrikeResult result;
  for (int rank = 0; rank < strike.size; ++rank) {
    if (rank == strike.victim) continue;
    const std::string fault = job.EndOf(rank);
    if (fault.empty()) continue;
    result.faults.push_back(fmt::format("rank {}, when rank {} is struck by {} before call {}: {}",
                                        rank, strike.victim, ::strsignal(strike.signal),
                                        strike.call, fault));
  }
  result.is_struck = struck_ns.load() > 0;
  return result;
}

std::vector<std::string> StrikeAll(int size, int signal, int step,
                                   const std::function<Status(Group& group)>& script) {
  std::vector<std::string> faults;
  int struck_count = 0;
  for (int victim = 0; victim < size; ++victim) {
    for (int call = victim % step;; call += step) {
      StrikeResult result = RunStruck({size, victim, signal, call}, script);
      faults.insert(faults.end(), result.faults.begin(), result.faults.end());
      if (!result.is_struck) break;
      ++struck_count;
    }
  }
  if (struck_count == 0) faults.emplace_back("no rank was struck");
  return faults;
}

}  // namespace lmdbio::test
