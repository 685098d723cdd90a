// Goal: with the option reproducible the bits of a sum depend on the values alone: not on the plan,
// its order, its buckets and slices, nor on a trial. Without it they do.
//
// Method: values whose sums depend on the order of the ranks, and the one order that is promised:
// on each host by rank, and then by host.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/sync/collective/forwarded_collectives.h"
#include "lmdbio/sync/tiers/make_collectives.h"
#include "tests/support/catch.h"
#include "tests/support/random.h"
#include "tests/sync/engine/sync_job.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;
using test::SyncJob;

using Floats = std::vector<float>;

const std::vector<size_t> kTensorCounts = {3000, 50, 40'000, 700, 12'000};  // elements
constexpr uint64_t kBucketBytes = 64 << 10;  // tensor 2 is larger, so it may be cut

// Of very different sizes, so that nearly each order of addition rounds in another way.
Floats ValuesOf(int rank, size_t tensor) {
  test::Random random(1000 * static_cast<uint64_t>(rank) + tensor + 1);
  Floats values(kTensorCounts[tensor]);
  for (float& value : values) {
    const auto bits = static_cast<float>(random.Below(1 << 24)) - (1 << 23);
    value = std::ldexp(bits, -static_cast<int>(random.Below(12)));
  }
  return values;
}

void AddTo(Floats& sums, const Floats& values) {
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
}

// The sum on each host in the order of its ranks, and these in the order of the hosts.
Floats PromisedSum(const ranks::ThreadRanks& ranks, size_t tensor) {
  Floats sums;
  for (int first = 0; first < ranks.rank_count; first += ranks.ranks_per_host) {
    Floats host = ValuesOf(first, tensor);
    const int end = std::min(first + ranks.ranks_per_host, ranks.rank_count);
    for (int rank = first + 1; rank < end; ++rank) AddTo(host, ValuesOf(rank, tensor));
    if (first == 0) {
      sums = std::move(host);
    } else {
      AddTo(sums, host);
    }
  }
  return sums;
}

bool AreSameBits(const Floats& one, const Floats& other) {
  return one.size() == other.size() &&
         std::memcmp(one.data(), other.data(), one.size() * sizeof(float)) == 0;
}

// One iteration. The program needs the first tensor first, and submits it last.
std::vector<Floats> SumAll(SyncJob& job, Synchronizer& synchronizer,
                           std::chrono::microseconds computing) {
  std::vector<Floats> sums(kTensorCounts.size());
  std::vector<std::optional<Handle>> handles(sums.size());
  for (size_t i = sums.size(); i-- > 0;) {
    std::this_thread::sleep_for(computing);
    sums[i] = ValuesOf(synchronizer.rank(), i);
    auto handle =
        synchronizer.Submit(AllReduceOf(fmt::format("tensor{}", i), sums[i].data(), sums[i].data(),
                                        static_cast<int64_t>(sums[i].size())));
    if (!job.wrong.Expect(handle ? Status() : Fail(std::move(handle).error()), synchronizer.rank(),
                          "Submit")) {
      return {};
    }
    handles[i] = std::move(*handle);
  }
  for (std::optional<Handle>& handle : handles) {
    job.wrong.Expect(handle->Wait(), synchronizer.rank(), "Wait");
    std::this_thread::sleep_for(computing);
  }
  return sums;
}

// Trains for some iterations, and compares each sum on each rank.
void ExpectPromisedSums(SyncJob& job, Synchronizer& synchronizer, int iteration_count,
                        std::chrono::microseconds computing) {
  std::vector<Floats> promised;
  for (size_t i = 0; i < kTensorCounts.size(); ++i) promised.push_back(PromisedSum(job.ranks, i));
  for (int iteration = 0; iteration < iteration_count; ++iteration) {
    const std::vector<Floats> sums = SumAll(job, synchronizer, computing);
    for (size_t i = 0; i < sums.size(); ++i) {
      job.wrong.Expect(AreSameBits(sums[i], promised[i]), synchronizer.rank(),
                       fmt::format("iteration {}, tensor {}: other bits", iteration, i));
    }
  }
}

SyncOptions WithBuckets(std::string coordinator, uint64_t bucket_bytes, uint64_t slice_bytes) {
  SyncOptions options;
  options.coordinator = std::move(coordinator);
  options.bucket_bytes = bucket_bytes;
  options.slice_bytes = slice_bytes;
  return options;
}

// Each of them is a run of its own, with a trial of its own between hosts.
TEST_CASE("Reproducible sums have the bits of one order in any run, with any buckets and slices",
          "[reproducible][several_hosts]") {
  constexpr int kIterations = 12;  // rounds, and then a plan
  SyncJob job;
  job.ranks.rank_count = GENERATE(3, 4);
  job.ranks.ranks_per_host = GENERATE(1, 2, 4);
  const auto [coordinator, bucket_bytes, slice_bytes] = GENERATE(
      Catch::Generators::table<std::string, uint64_t, uint64_t>({{"topo", 0, 0},
                                                                 {"topo", 1 << 12, 0},
                                                                 {"topo", kBucketBytes, 20'000},
                                                                 {"horovod", 1 << 14, 0}}));
  CAPTURE(job.ranks.rank_count, job.ranks.ranks_per_host, coordinator, bucket_bytes, slice_bytes);
  job.options = WithBuckets(coordinator, bucket_bytes, slice_bytes);
  job.options.reproducible = true;
  job.Run([&](Synchronizer& synchronizer) {
    ExpectPromisedSums(job, synchronizer, kIterations, 0us);
    const std::vector<std::string> lines = synchronizer.Description();
    job.wrong.Expect(std::ranges::count(lines, "sums are reproducible") == 1, synchronizer.rank(),
                     "the description does not tell it");
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

// The sums of an iteration of a plan, on rank 0.
std::vector<Floats> SumsOf(const std::string& collective, uint64_t slice_bytes) {
  SyncJob job;
  job.ranks = {.rank_count = 3, .ranks_per_host = 1};
  job.options = WithBuckets("topo", kBucketBytes, slice_bytes);
  job.options.collective = collective;
  std::vector<Floats> last;
  job.Run([&](Synchronizer& synchronizer) {
    for (int iteration = 0; iteration < 20; ++iteration) SumAll(job, synchronizer, 0us);
    job.wrong.Expect(synchronizer.counters().plan_count == 1, synchronizer.rank(), "no plan");
    std::vector<Floats> sums = SumAll(job, synchronizer, 0us);
    if (synchronizer.rank() == 0) last = std::move(sums);
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
  return last;
}

// The ring adds the same numbers in another order if they are elsewhere in a call.
TEST_CASE("The bits of a ring depend on the slices", "[reproducible][several_hosts]") {
  const auto whole = SumsOf("ring", 0);
  const auto sliced = SumsOf("ring", 20'000);
  REQUIRE(whole.size() == sliced.size());
  CHECK_FALSE(AreSameBits(whole[2], sliced[2]));
  const auto direct = SumsOf("direct", 0);
  const auto direct_sliced = SumsOf("direct", 20'000);
  REQUIRE(direct.size() == direct_sliced.size());
  CHECK(AreSameBits(direct[2], direct_sliced[2]));
}

// A network of about 8 MB/s, over collectives of a kind.
class DelayedCollectives final : public ForwardedCollectives {
 public:
  using ForwardedCollectives::ForwardedCollectives;
  Result<CallOutcome> AllReduce(const CallTag& tag, const Values& values,
                                const Reduction& reduction) override {
    Result<CallOutcome> outcome = ForwardedCollectives::AllReduce(tag, values, reduction);
    const auto bytes = static_cast<int64_t>(values.count * ElementBytes(values.type));
    if (outcome && *outcome == CallOutcome::kDone) std::this_thread::sleep_for(bytes * 1us / 8);
    return outcome;
  }
};

auto DelayedBy(const CollectiveOptions& options) {
  return [options](ranks::Group& group,
                   ranks::Health& health) -> Result<std::unique_ptr<Collectives>> {
    LMDBIO_TRY(auto inner, MakeCollectives(group, health, options));
    return std::unique_ptr<Collectives>(std::make_unique<DelayedCollectives>(std::move(inner)));
  };
}

// Whether a schedule was followed, or the order of arrival if that is the option. Else other
// processes have disturbed the times.
bool FollowsOrder(const std::string& order) {
  bool is_followed = false;
  SyncJob job;
  job.ranks = {.rank_count = 3, .ranks_per_host = 1};
  job.options = WithBuckets("caramel", 0, 0);
  job.options.order = order;
  job.options.reproducible = true;
  job.collectives = DelayedBy({.is_reproducible = true});
  job.Run([&](Synchronizer& synchronizer) {
    ExpectPromisedSums(job, synchronizer, 20, 3ms);
    if (synchronizer.rank() > 0) return;
    for (const std::string& line : synchronizer.Description()) {
      const bool is_by_time =
          line.find("by time: ") != std::string::npos && !line.ends_with(", by arrival");
      if (is_by_time || order == "arrival") is_followed = true;
    }
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
  return is_followed;
}

TEST_CASE("Reproducible sums have the same bits by arrival and by time",
          "[reproducible][several_hosts]") {
  constexpr int kTries = 20;
  const std::string order = GENERATE("due", "arrival");
  CAPTURE(order);
  bool is_followed = false;
  for (int i = 0; i < kTries && !is_followed; ++i) is_followed = FollowsOrder(order);
  CHECK(is_followed);
}

Status CreatedWith(const std::function<void(SyncOptions& options)>& change) {
  SyncOptions options;
  change(options);
  CHECK(options.Check());
  options.reproducible = true;
  return options.Check();
}

TEST_CASE("Options whose sums are not reproducible are refused by name", "[create][reproducible]") {
  const auto words_of = [](const std::function<void(SyncOptions & options)>& change) {
    const Status status = CreatedWith(change);
    REQUIRE_FALSE(status);
    CHECK(status.error().code() == ErrorCode::kInvalidArgument);
    return status.error().message();
  };
  CHECK(
      words_of([](SyncOptions& options) { options.collective = "ring"; }) ==
      "reproducible: not with collective 'ring': the bits of a sum depend on its place in a call");
  CHECK(words_of([](SyncOptions& options) {
          options.collective = "mpi";
        }).starts_with("reproducible: not with collective 'mpi': "));
  CHECK(words_of([](SyncOptions& options) {
          options.host_roots = 2;
        }).starts_with("reproducible: not with several host_roots: "));
  CHECK(words_of([](SyncOptions& options) {
          options.coordinator = "caramel";
          options.order = "split";
        }).starts_with("reproducible: not with order 'split': "));
  for (const std::string library : {"nccl", "mpi"}) {
    CHECK(words_of([&](SyncOptions& options) {
            options.device_collective = library;
          }).starts_with(fmt::format("reproducible: not with device_collective '{}': ", library)));
  }
  for (const char* const collective : {"auto", "shm", "halving", "direct"}) {
    CHECK(CreatedWith([&](SyncOptions& options) { options.collective = collective; }));
  }
  CHECK(CreatedWith([](SyncOptions& options) { options.device_collective = "staged"; }));
}

TEST_CASE("Collectives of the program must promise reproducible sums", "[create][reproducible]") {
  const bool do_promise = GENERATE(true, false);
  const auto make = DelayedBy({.collective = do_promise ? "direct" : "ring"});
  test::Findings wrong;
  ranks::RunAsThreads({2}, [&](ranks::Group& group) {
    SyncOptions options;
    options.reproducible = true;
    SyncParts parts;
    parts.collectives = [&](ranks::Health& health) { return make(group, health); };
    const auto made = Synchronizer::Create(group, options, std::move(parts));
    wrong.Expect(made.has_value() == do_promise, group.rank(), "made or not");
    if (made) return;
    wrong.Expect(made.error().code() == ErrorCode::kInvalidArgument, group.rank(), "code");
    wrong.Expect(made.error().message() ==
                     "reproducible: the collectives of MPI or of the caller do not promise it",
                 group.rank(), made.error().message());
  });
  CHECK(wrong.lines() == std::vector<std::string>());
}

}  // namespace
}  // namespace lmdbio::sync
