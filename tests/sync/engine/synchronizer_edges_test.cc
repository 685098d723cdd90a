// Goal: unusual but valid calls work, and invalid calls are refused with a message.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lmdbio/sync/engine/synchronizer.h"
#include "tests/support/catch.h"
#include "tests/sync/engine/sync_job.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;
using test::SyncJob;

TEST_CASE("Synchronizer sums over a tree of hosts", "[sync][edges][several_hosts]") {
  SyncJob job;
  job.ranks = {.rank_count = 7, .ranks_per_host = GENERATE(1, 2)};
  job.options.coordinator = "hierarchical";
  job.options.tree_arity = GENERATE(0U, 1U, 2U, 1000U);
  job.options.pacing = GENERATE("event", "nbcs");
  INFO(job.options.tree_arity << " " << job.options.pacing << " " << job.ranks.ranks_per_host);
  job.Run([&](Synchronizer& synchronizer) {
    const int rank = synchronizer.rank();
    for (int iteration = 0; iteration < 6; ++iteration) {
      std::vector<float> values = test::GradientOf(rank, 0, iteration, 100);
      if (!job.wrong.Expect(SyncJob::Sum(synchronizer, "a", values), rank, "Sum")) return;
      job.wrong.Expect(values == test::SumOf(synchronizer.size(), 0, iteration, 100), rank,
                       fmt::format("the sum of iteration {}", iteration));
    }
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("Synchronizer sums with several roots on each host", "[sync][edges][several_hosts]") {
  SyncJob job;
  job.ranks = {.rank_count = 5, .ranks_per_host = 3};
  job.options.host_roots = GENERATE(1U, 2U);
  job.options.gradient_bytes = GENERATE(uint64_t{0}, uint64_t{2} << 20);
  constexpr size_t kCount = 300'001;  // larger than an AllReduce that is copied
  job.Run([&](Synchronizer& synchronizer) {
    const int rank = synchronizer.rank();
    for (int iteration = 0; iteration < 6; ++iteration) {
      std::vector<float> values = test::GradientOf(rank, 0, iteration, kCount);
      if (!job.wrong.Expect(SyncJob::Sum(synchronizer, "a", values), rank, "Sum")) return;
      job.wrong.Expect(values == test::SumOf(synchronizer.size(), 0, iteration, kCount), rank,
                       fmt::format("the sum of iteration {}", iteration));
    }
    const auto lines = fmt::format("{}", fmt::join(synchronizer.Description(), " "));
    const bool names_roots = lines.find("with 2 roots each") != std::string::npos;
    const bool is_root = rank % 3 < 2;  // the others do not know
    job.wrong.Expect(names_roots == (is_root && job.options.host_roots == 2), rank, lines);
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("Description tells how plans end", "[sync][edges]") {
  struct Case {
    std::string coordinator;
    uint64_t bucket_bytes, last_bucket_bytes;
    uint32_t num_groups;
    std::string expected_alone, expected;  // with one rank and with two; "": no line
  };
  const std::string given = "1000 bytes, as given";
  const auto one =
      GENERATE_COPY(Case{"topo", 0, 0, 0, "1048576 bytes, a quarter of others",
                         "262144 bytes, a quarter of others"},
                    Case{"topo", 4000, 0, 0, "", ""}, Case{"topo", 4000, 1000, 0, given, given},
                    Case{"topo", 4000, 5000, 0, "", ""},  // no smaller than others
                    Case{"topo", 0, 1000, 3, "", ""},     // groups have equal sizes
                    Case{"cache", 0, 1000, 0, "", ""});   // rounds have no last bucket
  SyncJob job;
  job.ranks.rank_count = GENERATE(1, 2);
  const std::string expected = job.ranks.rank_count == 1 ? one.expected_alone : one.expected;
  job.options.coordinator = one.coordinator;
  job.options.bucket_bytes = one.bucket_bytes;
  job.options.last_bucket_bytes = one.last_bucket_bytes;
  job.options.num_groups = one.num_groups;
  job.Run([&](Synchronizer& synchronizer) {
    const auto lines = fmt::format("{}", fmt::join(synchronizer.Description(), "|"));
    const std::string begin = "plans end with a bucket of ";
    const bool is_right = one.expected.empty() ? lines.find(begin) == std::string::npos
                                               : lines.find(begin + expected) != std::string::npos;
    job.wrong.Expect(is_right, synchronizer.rank(), lines);
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("Roots that a host does not have are refused on all ranks",
          "[sync][edges][several_hosts]") {
  SyncJob job;
  job.ranks = {.rank_count = 5, .ranks_per_host = 3};
  job.options.host_roots = 3;
  job.Run([](Synchronizer&) {});
  CHECK(job.wrong.lines().size() == 5);
  CHECK(
      job.wrong.Has("host_roots: 3 roots on each host need as many ranks; the host of rank 3 has "
                    "2"));
}

TEST_CASE("A group that just fits into a buffer of an odd size stays within it", "[sync][edges]") {
  SyncJob job;
  job.ranks.rank_count = 2;
  job.options.collective = "ring";  // so that the buffer is the synchronizer's own
  job.options.fusion_threshold_bytes = 100;
  job.Run([&](Synchronizer& synchronizer) {
    std::vector<float> first(16, 1.0F);
    std::vector<float> second(9, 2.0F);
    auto handles = synchronizer.SubmitGroup({AllReduceOf("a", first.data(), first.data(), 16),
                                             AllReduceOf("b", second.data(), second.data(), 9)});
    if (!handles) return job.wrong.Add(synchronizer.rank(), handles.error().message());
    for (Handle& handle : *handles) {
      job.wrong.Expect(handle.Wait(), synchronizer.rank(), "Wait");
    }
    job.wrong.Expect(first == std::vector(16, 2.0F), synchronizer.rank(), "the first sum");
    job.wrong.Expect(second == std::vector(9, 4.0F), synchronizer.rank(), "the second sum");
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("Gradients may be placed up to the last byte of an odd size", "[sync][edges]") {
  SyncJob job;
  job.ranks.rank_count = 2;
  job.options.collective = GENERATE("ring", "auto");
  job.options.gradient_bytes = GENERATE(100, 101);
  job.Run([&](Synchronizer& synchronizer) {
    const int rank = synchronizer.rank();
    const auto first = synchronizer.Place(64);
    const auto second = synchronizer.Place(36);
    if (!first || !second) return job.wrong.Add(rank, "Place");
    for (int iteration = 0; iteration < 6; ++iteration) {
      auto* const a = reinterpret_cast<float*>(first->data());
      auto* const b = reinterpret_cast<float*>(second->data());
      std::fill_n(a, 16, 1.0F);
      std::fill_n(b, 9, 2.0F);
      std::vector<float> packed(40, 3.0F);
      auto handles =
          synchronizer.SubmitGroup({AllReduceOf("a", a, a, 16), AllReduceOf("b", b, b, 9)});
      if (!handles) return job.wrong.Add(rank, handles.error().message());
      job.wrong.Expect(SyncJob::Sum(synchronizer, "c", packed), rank, "Sum");
      for (Handle& handle : *handles) job.wrong.Expect(handle.Wait(), rank, "Wait");
      job.wrong.Expect(a[15] == 2.0F && b[8] == 4.0F && packed[39] == 6.0F, rank, "the sums");
    }
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("Names that the synchronizer needs for itself are refused", "[sync][edges]") {
  SyncJob job;
  job.ranks.rank_count = 2;
  job.Run([&](Synchronizer& synchronizer) {
    std::vector<float> value(100, 1.0F);
    for (const char* const name : {"lmdbio.shutdown", "lmdbio.plan.1", "lmdbio."}) {
      const auto handle = synchronizer.Submit(AllReduceOf(name, value.data(), value.data(), 1));
      job.wrong.Expect(!handle && handle.error().code() == ErrorCode::kInvalidArgument,
                       synchronizer.rank(), name);
    }
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("Submit refuses a scale, type or reduction that would end the process", "[sync][edges]") {
  SyncJob job;
  job.ranks.rank_count = 1;
  job.Run([&](Synchronizer& synchronizer) {
    std::vector<int32_t> integers(4, 3);
    std::vector<float> floats(4, 3.0F);
    const auto refuse = [&](Submission submission, const std::string& message) {
      const auto handle = synchronizer.Submit(std::move(submission));
      job.wrong.Expect(!handle && handle.error().code() == ErrorCode::kInvalidArgument &&
                           handle.error().message() == message,
                       0, handle ? "accepted: " + message : handle.error().message());
    };
    const auto scaled = [&](double prescale, double postscale) {
      Submission submission =
          AllReduceOf("a", integers.data(), integers.data(), 4, DataType::kInt32);
      submission.request.prescale = prescale;
      submission.request.postscale = postscale;
      return submission;
    };
    const double infinity = std::numeric_limits<double>::infinity();
    const double nan = std::numeric_limits<double>::quiet_NaN();
    refuse(scaled(infinity, 1),
           "tensor 'a': prescale inf is invalid for int32; expected a finite number");
    refuse(scaled(1, -infinity),
           "tensor 'a': postscale -inf is invalid for int32; expected a finite number");
    refuse(scaled(1, nan),
           "tensor 'a': postscale nan is invalid for int32; expected a finite number");
    Submission scatter = scaled(nan, 1);
    scatter.request.operation = Operation::kReduceScatter;
    refuse(std::move(scatter),
           "tensor 'a': prescale nan is invalid for int32; expected a finite number");
    Submission unknown = scaled(1, 1);
    unknown.request.type = static_cast<DataType>(99);
    refuse(std::move(unknown), "tensor 'a': unknown type 99");
    unknown = scaled(1, 1);
    unknown.request.reduce_op = static_cast<ReduceOp>(0);
    refuse(std::move(unknown), "tensor 'a': unknown reduction 0");
    for (const int operation : {0, 9, 255}) {
      unknown = scaled(1, 1);
      unknown.request.operation = static_cast<Operation>(operation);
      refuse(std::move(unknown), fmt::format("tensor 'a': unknown operation {}", operation));
    }
    unknown = scaled(1, 1);
    unknown.request.memory = static_cast<MemoryKind>(3);
    refuse(std::move(unknown), "tensor 'a': unknown memory kind 3");
    unknown = scaled(1, 1);
    unknown.request.operation = Operation::kAdoptPlan;
    refuse(std::move(unknown),
           "tensor 'a': only the synchronizer submits the operation 'adopt-plan'");

    // The largest finite scale saturates, and floating types have infinities of their own.
    auto handle = synchronizer.Submit(scaled(1, std::numeric_limits<double>::max()));
    job.wrong.Expect(handle && handle->Wait(), 0, "a finite scale");
    job.wrong.Expect(integers[0] == std::numeric_limits<int32_t>::max(), 0, "the saturated value");
    Submission endless = AllReduceOf("b", floats.data(), floats.data(), 4);
    endless.request.postscale = infinity;
    handle = synchronizer.Submit(std::move(endless));
    job.wrong.Expect(handle && handle->Wait() && floats[0] == infinity, 0, "an infinite float");
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("Options that no machine can follow are errors on every rank", "[sync][edges]") {
  SyncOptions options;
  options.collective = GENERATE("auto", "ring");
  const int rank_count = GENERATE(1, 2);
  const int which = GENERATE(0, 1, 2);
  if (which == 0) options.fusion_threshold_bytes = ~uint64_t{0};
  if (which == 1) options.gradient_bytes = ~uint64_t{0} - 100;
  if (which == 2) options.pacing = "sometimes";
  CAPTURE(rank_count, which, options.collective);
  std::atomic<int> refused{0};
  ranks::RunAsThreads({.rank_count = rank_count}, [&](ranks::Group& group) {
    const auto made = Synchronizer::Create(group, options, {});
    if (!made && !made.error().message().empty()) ++refused;
  });
  CHECK(refused == rank_count);
}

TEST_CASE("A wait may be as long as can be said", "[sync][edges]") {
  SyncJob job;
  job.ranks.rank_count = 2;
  job.Run([&](Synchronizer& synchronizer) {
    if (synchronizer.rank() == 1) std::this_thread::sleep_for(50ms);
    float value = 1;
    auto handle = synchronizer.Submit(AllReduceOf("a", &value, &value, 1));
    if (!handle) return job.wrong.Add(synchronizer.rank(), "Submit");
    const auto waited = handle->WaitFor(std::chrono::milliseconds::max());
    job.wrong.Expect(waited && *waited && value == 2, synchronizer.rank(), "WaitFor");
    const auto again = handle->WaitFor(std::chrono::milliseconds::min());
    job.wrong.Expect(again && *again, synchronizer.rank(), "it stays done");
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("Handles outlive their synchronizer, and several threads wait for one", "[sync][edges]") {
  SyncJob job;
  job.ranks.rank_count = 2;
  std::array<std::vector<Handle>, 2> kept;
  std::array<std::vector<float>, 2> values;
  values.fill(std::vector<float>(100, 1.0F));
  job.RunAndLeave([&](Synchronizer& synchronizer) {
    const auto rank = static_cast<size_t>(synchronizer.rank());
    float* const place = values[rank].data();
    auto done = synchronizer.Submit(AllReduceOf("done", place, place, 100));
    if (!done) return job.wrong.Add(synchronizer.rank(), "Submit");
    std::vector<std::thread> threads;
    for (int i = 0; i < 5; ++i) {
      threads.emplace_back([&] {
        if (!done->Wait()) job.wrong.Add(synchronizer.rank(), "Wait");
      });
    }
    for (std::thread& thread : threads) thread.join();
    kept[rank].push_back(std::move(*done));
    if (rank == 1) return;
    auto never = synchronizer.Submit(AllReduceOf("never", place, place, 1));
    if (never) kept[rank].push_back(std::move(*never));
  });
  for (auto& handles : kept) {
    REQUIRE(!handles.empty());
    CHECK(handles[0].Wait());
  }
  for (size_t i = 1; i < kept[0].size(); ++i) {
    const Status status = kept[0][i].Wait();
    REQUIRE_FALSE(status);
    CHECK(status.error().code() == ErrorCode::kPeerFailed);
  }
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("A tensor of more than 2 GiB is reduced like any other", "[.][huge]") {
  SyncJob job;
  job.ranks.rank_count = 2;
  job.options.collective = GENERATE("auto", "ring");
  constexpr size_t kCount = 600'000'000;
  job.Run([&](Synchronizer& synchronizer) {
    std::vector<float> values(kCount, 1.0F);
    values.back() = 3.0F;
    job.wrong.Expect(SyncJob::Sum(synchronizer, "huge", values), synchronizer.rank(), "Sum");
    const auto twos = static_cast<size_t>(std::count(values.begin(), values.end(), 2.0F));
    job.wrong.Expect(twos == kCount - 1 && values.back() == 6.0F, synchronizer.rank(), "the sum");
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

// Submits the next tensor of a chain whenever one is done.
struct Chain {
  Synchronizer& synchronizer;
  std::vector<float> values;
  std::atomic<int> done{0};
  std::atomic<bool> is_over{false};

  void Next() {
    Submission next = AllReduceOf(done % 2 == 0 ? "even" : "same", values.data(), values.data(), 8);
    if (done > 50) next.request.name = "same";  // under way until its callback is called
    next.callback = [this](const Status& status) {
      if (!status || ++done == 100) {
        is_over = true;
      } else {
        Next();
      }
    };
    if (!synchronizer.Submit(std::move(next))) is_over = true;
  }
};

TEST_CASE("Callbacks submit the next tensor, also of the same name", "[sync][edges]") {
  SyncJob job;
  job.ranks.rank_count = 3;
  job.options.coordinator = GENERATE("cache", "topo");
  job.Run([&](Synchronizer& synchronizer) {
    Chain chain{.synchronizer = synchronizer, .values = std::vector<float>(8, 0.0F)};
    chain.Next();
    while (!chain.is_over) std::this_thread::sleep_for(1ms);
    job.wrong.Expect(chain.done == 100, synchronizer.rank(), fmt::format("{}", chain.done.load()));
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

// Two tensors that have the distance of neighbours in a fusion buffer, but begin within a line. The
// gap between them is the beginning of the second part, and must not change.
TEST_CASE("Tensors that begin within a line leave the bytes before them unchanged",
          "[sync][edges]") {
  SyncJob job;
  job.ranks.rank_count = GENERATE(1, 3);
  job.options.gradient_bytes = 1 << 12;
  job.Run([&](Synchronizer& synchronizer) {
    const int rank = synchronizer.rank();
    const auto first = synchronizer.Place(100);
    const auto second = synchronizer.Place(64);
    if (!first || !second) return job.wrong.Add(rank, "Place");
    auto* const a = reinterpret_cast<float*>(first->data()) + 1;
    auto* const before_b = reinterpret_cast<float*>(second->data());
    std::fill_n(a, 24, 1.0F);
    std::fill_n(before_b, 16, 1.0F);
    std::vector<Submission> group;
    group.push_back(AllReduceOf("a", a, a, 24));
    group.push_back(AllReduceOf("b", before_b + 1, before_b + 1, 15));
    auto handles = synchronizer.SubmitGroup(std::move(group));
    if (!handles) return job.wrong.Add(rank, handles.error().message());
    for (Handle& handle : *handles) job.wrong.Expect(handle.Wait(), rank, "Wait");
    const auto size = static_cast<float>(synchronizer.size());
    job.wrong.Expect(*before_b == 1.0F, rank, "what no tensor holds was reduced");
    job.wrong.Expect(a[0] == size && a[23] == size && before_b[15] == size, rank, "the sum");
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

TEST_CASE("Ranks that name their joins differently join", "[sync][edges]") {
  SyncJob job;
  job.ranks.rank_count = 3;
  job.options.coordinator = GENERATE("horovod", "cache", "hierarchical");
  job.options.stall_limit = 10s;
  job.Run([&](Synchronizer& synchronizer) {
    Submission join;
    join.request.operation = Operation::kJoin;
    join.request.name = synchronizer.rank() == 0 ? "" : fmt::format("{}", synchronizer.rank());
    auto handle = synchronizer.Submit(std::move(join));
    if (!handle) return job.wrong.Add(synchronizer.rank(), handle.error().message());
    const auto is_done = handle->WaitFor(10s);
    job.wrong.Expect(is_done && *is_done, synchronizer.rank(), "the join is done");
  });
  CHECK(job.wrong.lines() == std::vector<std::string>());
}

}  // namespace
}  // namespace lmdbio::sync
