// Goal: Create succeeds on all ranks or fails on all ranks, if options or parts differ, or if a
// rank has no memory. Method: ranks are threads; if a rank leaves too early, the test hangs.
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/sync/engine/synchronizer.h"
#include "tests/ranks/hooked_group.h"
#include "tests/support/catch.h"
#include "tests/sync/engine/sync_job.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;
using test::Findings;
using test::SyncJob;

// The error in the result of a rank of two hosts; "" if there is none.
std::string WrongEnd(const Error& error, bool has_no_memory) {
  const ErrorCode code = has_no_memory ? ErrorCode::kResourceExhausted : ErrorCode::kPeerFailed;
  if (error.code() != code) return "another code: " + error.message();
  if (error.message().find("no memory here") == std::string::npos) return error.message();
  const bool is_named = has_no_memory || error.message().find("rank 2") != std::string::npos;
  return is_named ? "" : error.message();
}

TEST_CASE("A lack of memory on one host fails Create on all hosts", "[sync][create]") {
  SyncOptions options;
  options.collective = GENERATE("auto", "ring");
  options.gradient_bytes = 1000;
  bool is_made = false;
  int lacking = 0;  // number of the allocation that fails on the second host
  for (; !is_made && lacking < 20; ++lacking) {
    Findings wrong;
    std::atomic<int> made_count{0};
    ranks::RunAsThreads({.rank_count = 4, .ranks_per_host = 2}, [&](ranks::Group& group) {
      int piece = 0;
      const bool has_no_memory = group.rank() >= 2;
      ranks::HookedGroup hooked(
          group,
          [&](ranks::Group& host, uint64_t bytes) -> Result<std::unique_ptr<ranks::SharedMemory>> {
            if (piece++ != lacking || !has_no_memory) return host.AllocateShared(bytes);
            return Fail(ErrorCode::kResourceExhausted, "no memory here");
          });
      auto made = Synchronizer::Create(hooked, options, {});
      if (made) {
        ++made_count;
        wrong.Expect((*made)->Shutdown(), group.rank(), "Shutdown");
      } else if (const auto how = WrongEnd(made.error(), has_no_memory); !how.empty()) {
        wrong.Add(group.rank(), how);
      }
    });
    CHECK(wrong.lines() == std::vector<std::string>());
    CHECK((made_count == 0 || made_count == 4));
    is_made = made_count > 0;
  }
  CHECK(is_made);
  CHECK(lacking > 2);  // the health's and the transport's memory
}

TEST_CASE("Ranks may place their threads differently", "[sync][create]") {
  Findings wrong;
  ranks::RunAsThreads({.rank_count = 4, .ranks_per_host = 2}, [&](ranks::Group& group) {
    SyncOptions options;
    if (group.rank() % 3 == 0) options.placement = "scp";
    auto made = Synchronizer::Create(group, options, {});
    if (!made) return wrong.Add(group.rank(), made.error().message());
    std::vector<float> values(5, 1.0F);
    wrong.Expect(SyncJob::Sum(**made, "a", values), group.rank(), "Sum");
    wrong.Expect(values[4] == 4.0F, group.rank(), "the sum");
    wrong.Expect((*made)->Shutdown(), group.rank(), "Shutdown");
  });
  CHECK(wrong.lines() == std::vector<std::string>());
}

// An option of one rank that the others do not have.
struct Odd {
  std::string here, there;
  std::function<void(SyncOptions& options, SyncParts& parts)> set;
};

const std::vector<Odd>& OddOnes() {
  static const std::vector<Odd> all = {
      {"coordinator cache", "coordinator topo", [](auto& o, auto&) { o.coordinator = "cache"; }},
      {"pacing gs", "pacing event", [](auto& o, auto&) { o.pacing = "gs"; }},
      {"collective ring", "collective auto", [](auto& o, auto&) { o.collective = "ring"; }},
      {"cycle_time_us 7", "cycle_time_us 1000", [](auto& o, auto&) { o.cycle_time = 7us; }},
      {"gs_cycles 7", "gs_cycles 1", [](auto& o, auto&) { o.gs_cycles = 7; }},
      {"fusion_threshold_bytes 7", "fusion_threshold_bytes 67108864",
       [](auto& o, auto&) { o.fusion_threshold_bytes = 7; }},
      {"bucket_bytes 7", "bucket_bytes 0", [](auto& o, auto&) { o.bucket_bytes = 7; }},
      {"num_groups 7", "num_groups 0", [](auto& o, auto&) { o.num_groups = 7; }},
      {"group_by tensors", "group_by bytes", [](auto& o, auto&) { o.group_by = "tensors"; }},
      {"cache_capacity 7", "cache_capacity 1024", [](auto& o, auto&) { o.cache_capacity = 7; }},
      {"gradient_bytes 7", "gradient_bytes 0", [](auto& o, auto&) { o.gradient_bytes = 7; }},
      {"chunk_bytes 7", "chunk_bytes 0", [](auto& o, auto&) { o.chunk_bytes = 7; }},
      {"host_roots 2", "host_roots 1", [](auto& o, auto&) { o.host_roots = 2; }},
      {"tree_arity 7", "tree_arity 4", [](auto& o, auto&) { o.tree_arity = 7; }},
      {"chunk_depth 7", "chunk_depth 0", [](auto& o, auto&) { o.chunk_depth = 7; }},
      {"plan_patience_ms 7", "plan_patience_ms 1000",
       [](auto& o, auto&) { o.plan_patience = 7ms; }},
      {"stall_report_ms 7", "stall_report_ms 5000", [](auto& o, auto&) { o.stall_report = 7ms; }},
      {"stall_limit_ms 7", "stall_limit_ms 600000", [](auto& o, auto&) { o.stall_limit = 7ms; }},
      {"silence_limit_ms 7", "silence_limit_ms 4000",
       [](auto& o, auto&) { o.silence_limit = 7ms; }},
      {"health given", "health own",
       [](auto&, auto& parts) { parts.health = std::make_unique<ranks::SoloHealth>(); }},
  };
  return all;
}

TEST_CASE("Options that differ between ranks are refused on all, with both", "[sync][create]") {
  for (const Odd& odd : OddOnes()) {
    CAPTURE(odd.here);
    Findings wrong;
    ranks::RunAsThreads({.rank_count = 3, .ranks_per_host = 2}, [&](ranks::Group& group) {
      SyncOptions options;
      SyncParts parts;
      const bool is_odd = group.rank() == 1;
      if (is_odd) odd.set(options, parts);
      const auto made = Synchronizer::Create(group, options, std::move(parts));
      if (made) return wrong.Add(group.rank(), "is made");
      const std::string& message = made.error().message();
      const size_t there = message.find("; rank 0 has ");
      const bool is_told =
          there != std::string::npos && message.find(": this rank has ") < there &&
          message.find(odd.here) < there && message.find(odd.there, there) != std::string::npos &&
          made.error().code() == (is_odd ? ErrorCode::kInvalidArgument : ErrorCode::kPeerFailed);
      if (!is_told) wrong.Add(group.rank(), message);
    });
    CHECK(wrong.lines() == std::vector<std::string>());
  }
}

}  // namespace
}  // namespace lmdbio::sync
