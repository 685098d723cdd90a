// Goal: ranks that submit in different orders get the right sums, errors reach all ranks, and
// nothing hangs. Method: random programs that all ranks know; each rank executes its part in its
// own order and with its own pauses. Oracle: a loop over all ranks. LMDBIO_TEST_SEEDS=N runs more
// programs, LMDBIO_TEST_SEED=N one.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "tests/ranks/launcher/launched_threads.h"
#include "tests/support/catch.h"
#include "tests/sync/engine/sync_job.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;
using test::SyncJob;

constexpr auto kHangLimit = 100s;

// Prints the flight records of all ranks and ends the program if a job takes too long.
class Watchdog {
 public:
  Watchdog(unsigned seed, int rank_count)
      : seed_(seed),
        watched_(static_cast<size_t>(rank_count), nullptr),
        thread_([this] { Run(); }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    over_.notify_one();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void Set(int rank, const Synchronizer* synchronizer) {
    const std::lock_guard lock(mutex_);
    watched_[static_cast<size_t>(rank)] = synchronizer;
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    if (over_.wait_for(lock, kHangLimit, [this] { return is_over_; })) return;
    std::fprintf(stderr, "seed %u hangs\n", seed_);
    for (size_t rank = 0; rank < watched_.size(); ++rank) {
      if (watched_[rank] == nullptr) continue;
      for (const std::string& line : watched_[rank]->FlightRecord()) {
        std::fprintf(stderr, "rank %zu: %s\n", rank, line.c_str());
      }
    }
    std::abort();
  }

  unsigned seed_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::vector<const Synchronizer*> watched_;
  std::thread thread_;
};

// One tensor of the program, the same on all ranks.
struct TortureTensor {
  std::string name;
  Operation operation = Operation::kAllReduce;
  DataType type = DataType::kFloat32;
  int64_t count = 0;
  int root = 0;
  bool is_odd = false;  // the last rank means another shape: an error on all
  bool is_placed = false;
};

// Tensors that are waited for together. Ranks that have joined do not take part.
struct ProgramIteration {
  std::vector<TortureTensor> tensors;
  bool is_group = false;
  bool is_threaded = false;  // threads submit and wait
  int thread_count = 1;
};

struct TortureProgram {
  SyncOptions options;
  int rank_count = 1;
  int ranks_per_host = 1;
  std::vector<ProgramIteration> iterations;
  bool ends_with_join = false;
  int leaver = -1;  // a rank that goes away in the middle
};

template <typename T>
T Pick(std::mt19937& random, std::initializer_list<T> from) {
  return *(from.begin() + static_cast<ptrdiff_t>(random() % from.size()));
}

bool Chance(std::mt19937& random, unsigned of) { return random() % of == 0; }

int64_t PickCount(std::mt19937& random) {
  return Pick<int64_t>(random, {0, 1, 3, 16, 100, 1000, 5000, 70'000}) +
         static_cast<int64_t>(random() % 3);
}

std::vector<TortureTensor> MakeModel(std::mt19937& random, int rank_count) {
  std::vector<TortureTensor> model(1 + random() % 12);
  for (size_t i = 0; i < model.size(); ++i) {
    TortureTensor& tensor = model[i];
    tensor.name = fmt::format("t{}", i);
    tensor.type =
        Pick(random, {DataType::kFloat32, DataType::kFloat32, DataType::kFloat64, DataType::kInt32,
                      DataType::kInt64, DataType::kFloat16, DataType::kBFloat16});
    tensor.count = PickCount(random);
    tensor.root = static_cast<int>(random() % static_cast<unsigned>(rank_count));
    if (Chance(random, 8)) {
      tensor.operation = Pick(random, {Operation::kBroadcast, Operation::kAllGather,
                                       Operation::kReduceScatter, Operation::kBarrier});
    }
  }
  return model;
}

TortureProgram MakeProgram(unsigned seed) {
  std::mt19937 random(seed);
  TortureProgram program;
  program.rank_count = Pick(random, {1, 2, 2, 3, 4, 5, 8});
  program.ranks_per_host = Pick(random, {1, 2, 100, 100, 100});
  SyncOptions& options = program.options;
  options.coordinator =
      Pick<const char*>(random, {"horovod", "cache", "hierarchical", "topo", "caramel"});
  options.pacing = Pick<const char*>(random, {"event", "event", "cycle", "gs", "nbcs"});
  options.cycle_time = std::chrono::microseconds(Pick(random, {0, 200, 1000, 3000}));
  options.gs_cycles = Pick(random, {1U, 2U, 5U});
  options.fusion_threshold_bytes =
      Pick<uint64_t>(random, {0, 1, 100, 5000, uint64_t{1} << 20, uint64_t{64} << 20});
  options.gradient_bytes = Chance(random, 2) ? 0 : 100'000;
  options.cache_capacity = Pick(random, {0U, 1U, 2U, 5U, 1024U});
  options.num_groups = Pick(random, {0U, 0U, 1U, 3U});
  options.group_by = Pick<const char*>(random, {"bytes", "tensors"});
  options.plan_patience = std::chrono::milliseconds(Pick(random, {1, 5, 50}));
  options.collective = Pick<const char*>(random, {"auto", "auto", "ring", "direct"});
  options.tree_arity = seed % 3;
  constexpr uint64_t kSlices[] = {0, 1000, 20'000};
  if (options.follows_plans()) options.slice_bytes = kSlices[seed / 2 % 3];
  if (options.coordinator == "caramel" && options.num_groups > 0) options.order = "arrival";
  const bool may_split = options.coordinator == "caramel" && options.num_groups == 0;
  if (may_split && seed / 6 % 2 == 0) options.order = "split";
  options.silence_limit = 60s;  // all ranks share two cores with a sanitizer
  std::vector<TortureTensor> model = MakeModel(random, program.rank_count);
  const int iteration_count = 4 + static_cast<int>(random() % 12);
  for (int i = 0; i < iteration_count; ++i) {
    if (Chance(random, 6)) model = MakeModel(random, program.rank_count);
    ProgramIteration iteration{.tensors = model};
    if (Chance(random, 8)) {  // fewer, more, or another shape
      iteration.tensors.resize(1 + random() % iteration.tensors.size());
      TortureTensor extra = MakeModel(random, program.rank_count)[0];
      extra.name = fmt::format("extra{}", random() % 3);
      iteration.tensors.push_back(extra);
    }
    if (Chance(random, 10)) iteration.tensors[0].is_odd = program.rank_count > 1;
    iteration.is_group = Chance(random, 8);
    if (iteration.is_group) {
      for (TortureTensor& tensor : iteration.tensors) {
        tensor.operation = Operation::kAllReduce;
        tensor.is_odd = false;
      }
    }
    iteration.thread_count = Chance(random, 4) ? 3 : 1;
    program.iterations.push_back(std::move(iteration));
  }
  program.ends_with_join = Chance(random, 4);
  if (Chance(random, 5)) {
    program.leaver = static_cast<int>(random() % static_cast<unsigned>(program.rank_count));
  }
  return program;
}

// Element `at` of the values of a rank: small, so that sums are exact in every type.
uint8_t ValueOf(int rank, int iteration, size_t tensor, int64_t at) {
  return static_cast<uint8_t>(
      (static_cast<int64_t>(rank) * 3 + iteration + static_cast<int64_t>(tensor) + at) % 5);
}

// Numbers 0 .. 255 as the bytes of a type.
void Put(DataType type, double value, std::byte* to) {
  const auto put = [&](auto number) { std::memcpy(to, &number, sizeof number); };
  switch (type) {
    case DataType::kFloat32:
      return put(static_cast<float>(value));
    case DataType::kFloat64:
      return put(value);
    case DataType::kInt32:
      return put(static_cast<int32_t>(value));
    case DataType::kInt64:
      return put(static_cast<int64_t>(value));
    case DataType::kBFloat16: {
      const auto wide = static_cast<float>(value);
      uint32_t bits = 0;
      std::memcpy(&bits, &wide, sizeof bits);
      return put(static_cast<uint16_t>(bits >> 16));
    }
    case DataType::kFloat16: {
      uint16_t bits = 0;  // of a whole number below 2048
      if (value > 0) {
        int exponent = 0;
        while (value >= 2) {
          value /= 2;
          ++exponent;
        }
        bits =
            static_cast<uint16_t>(((exponent + 15) << 10) | static_cast<int>((value - 1) * 1024));
      }
      return put(bits);
    }
  }
}

std::vector<std::byte> ArrayOf(DataType type, int64_t count,
                               const std::function<double(int64_t at)>& value) {
  const size_t width = ElementBytes(type);
  std::vector<std::byte> bytes(static_cast<size_t>(count) * width);
  for (int64_t at = 0; at < count; ++at)
    Put(type, value(at), &bytes[static_cast<size_t>(at) * width]);
  return bytes;
}

// One rank's work.
class TortureRank {
 public:
  TortureRank(SyncJob& job, const TortureProgram& program, unsigned seed,
              Synchronizer& synchronizer)
      : job_(job),
        program_(program),
        synchronizer_(synchronizer),
        rank_(synchronizer.rank()),
        random_(seed * 31 + static_cast<unsigned>(rank_)) {}

  // False when nothing works any more, which is right after a rank has left.
  bool Play(int number) {
    const ProgramIteration& iteration = program_.iterations[static_cast<size_t>(number)];
    std::vector<size_t> order(iteration.tensors.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random_);
    if (Chance(random_, 5)) Pause();
    if (iteration.is_group) return PlayGroup(number, order);
    const auto threads = static_cast<size_t>(iteration.thread_count);
    if (threads == 1) return PlayPart(number, order, Seed());
    std::vector<std::thread> running;
    std::atomic<bool> is_good{true};
    for (size_t thread = 0; thread < threads; ++thread) {
      std::vector<size_t> part;
      for (size_t i = thread; i < order.size(); i += threads) part.push_back(order[i]);
      running.emplace_back([this, number, part, seed = Seed(), &is_good] {
        if (!PlayPart(number, part, seed)) is_good = false;
      });
    }
    for (std::thread& thread : running) thread.join();
    return is_good;
  }

  void Join() {
    Submission join;
    join.request.name = "join";
    join.request.operation = Operation::kJoin;
    auto handle = synchronizer_.Submit(std::move(join));
    if (Fits(handle ? Status() : Fail(handle.error().code(), handle.error().message()), "join") &&
        handle) {
      Fits(handle->Wait(), "join");
    }
  }

 private:
  struct Work {
    size_t index = 0;
    std::vector<std::byte> values;
    std::vector<std::byte> output;
    Submission submission;
  };

  unsigned Seed() { return static_cast<unsigned>(random_()); }
  void Pause() { std::this_thread::sleep_for(std::chrono::microseconds(random_() % 3000)); }

  // Whether the call succeeded. Records an error that the program does not expect.
  bool Fits(const Status& status, const std::string& what) {
    if (status) return true;
    const bool may_fail = program_.leaver >= 0 && status.error().code() == ErrorCode::kPeerFailed;
    if (!may_fail) job_.wrong.Add(rank_, what + ": " + status.error().message());
    return false;
  }

  std::vector<std::byte> Brought(const TortureTensor& tensor, int rank, int number, size_t index,
                                 int64_t count) const {
    return ArrayOf(tensor.type, count,
                   [&](int64_t at) { return ValueOf(rank, number, index, at); });
  }

  // Rows of an allgather differ from rank to rank.
  static int64_t CountOf(const TortureTensor& tensor, int rank) {
    if (tensor.operation == Operation::kBarrier) return 0;
    return tensor.operation == Operation::kAllGather ? tensor.count + rank : tensor.count;
  }

  Work Make(int number, size_t index) const {
    const TortureTensor& tensor = program_.iterations[static_cast<size_t>(number)].tensors[index];
    Work work;
    work.index = index;
    int64_t count = CountOf(tensor, rank_);
    if (tensor.is_odd && rank_ == synchronizer_.size() - 1) ++count;
    const bool brings = tensor.operation != Operation::kBroadcast || tensor.root == rank_;
    work.values = Brought(tensor, brings ? rank_ : 99, number, index, count);
    work.submission.request.name = tensor.name;
    work.submission.request.operation = tensor.operation;
    work.submission.request.type = tensor.type;
    work.submission.request.root = tensor.operation == Operation::kBroadcast ? tensor.root : 0;
    if (tensor.operation != Operation::kBarrier) work.submission.request.shape = {count};
    return work;
  }

  // Sets the addresses of inputs and outputs, after the last move of `work`.
  void Aim(Work& work, bool in_place) const {
    work.submission.input = work.values.data();
    if (!in_place) work.output.resize(work.values.size());
    work.submission.output = in_place ? work.values.data() : work.output.data();
  }

  bool PlayPart(int number, const std::vector<size_t>& part, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<Work> works;
    std::vector<Handle> handles;
    for (const size_t index : part) works.push_back(Make(number, index));
    bool is_good = true;
    for (Work& work : works) {
      Aim(work, work.index % 2 == 0);
      auto handle = synchronizer_.Submit(std::move(work.submission));
      if (!handle) {
        is_good = Fits(Fail(handle.error().code(), handle.error().message()), "Submit");
        break;
      }
      handles.push_back(std::move(*handle));
      if (Chance(random, 10)) std::this_thread::sleep_for(300us);
    }
    for (size_t i = 0; i < handles.size(); ++i) {
      if (!Check(number, works[i], handles[i])) is_good = false;
    }
    return is_good;
  }

  bool PlayGroup(int number, const std::vector<size_t>& order) {
    std::vector<Work> works;
    std::vector<Submission> submissions;
    for (const size_t index : order) works.push_back(Make(number, index));
    for (Work& work : works) {
      Aim(work, true);
      submissions.push_back(work.submission);
    }
    // A group goes by the name of its first tensor, so all ranks begin with the same.
    std::sort(submissions.begin(), submissions.end(),
              [](const auto& a, const auto& b) { return a.request.name < b.request.name; });
    std::sort(works.begin(), works.end(), [](const Work& a, const Work& b) {
      return a.submission.request.name < b.submission.request.name;
    });
    auto handles = synchronizer_.SubmitGroup(std::move(submissions));
    if (!handles) return Fits(Fail(handles.error().code(), handles.error().message()), "group");
    bool is_good = true;
    for (size_t i = 0; i < handles->size(); ++i) {
      if (!Check(number, works[i], (*handles)[i])) is_good = false;
    }
    return is_good;
  }

  bool Check(int number, const Work& work, Handle& handle) {
    const TortureTensor& tensor =
        program_.iterations[static_cast<size_t>(number)].tensors[work.index];
    const Status status = handle.Wait();
    const std::string what = fmt::format("iteration {}, tensor '{}'", number, tensor.name);
    const bool may_differ = tensor.is_odd && tensor.operation != Operation::kAllGather &&
                            tensor.operation != Operation::kBarrier;
    if (may_differ && !status && status.error().code() == ErrorCode::kInvalidArgument) return true;
    if (!Fits(status, what)) return false;
    if (may_differ) job_.wrong.Add(rank_, what + ": shapes differ, and nobody minds");
    CheckResult(tensor, number, work, handle, what);
    return true;
  }

  void CheckResult(const TortureTensor& tensor, int number, const Work& work, const Handle& handle,
                   const std::string& what) {
    const int size = synchronizer_.size();
    const auto sum = [&](int64_t at) {
      double total = 0;
      for (int rank = 0; rank < size; ++rank) total += ValueOf(rank, number, work.index, at);
      return total;
    };
    const auto& written = work.index % 2 == 0 || InGroup(number) ? work.values : work.output;
    Bytes result = written;
    std::vector<std::byte> expected;
    if (tensor.operation == Operation::kAllReduce) {
      expected = ArrayOf(tensor.type, tensor.count, sum);
    } else if (tensor.operation == Operation::kBroadcast) {
      expected = Brought(tensor, tensor.root, number, work.index, tensor.count);
    } else if (tensor.operation == Operation::kAllGather) {
      result = handle.result();
      for (int rank = 0; rank < size; ++rank) {
        const bool is_more = tensor.is_odd && rank == size - 1;
        const auto theirs =
            Brought(tensor, rank, number, work.index, CountOf(tensor, rank) + (is_more ? 1 : 0));
        expected.insert(expected.end(), theirs.begin(), theirs.end());
      }
    } else if (tensor.operation == Operation::kReduceScatter) {
      result = handle.result();
      const int64_t each = tensor.count / size;
      const int64_t more = tensor.count % size;
      const int64_t first = rank_ * each + std::min<int64_t>(rank_, more);
      expected = ArrayOf(tensor.type, each + (rank_ < more ? 1 : 0),
                         [&](int64_t at) { return sum(first + at); });
    } else {
      return;
    }
    if (!std::equal(result.begin(), result.end(), expected.begin(), expected.end())) {
      job_.wrong.Add(rank_, what + fmt::format(": operation {}: wrong values",
                                               static_cast<int>(tensor.operation)));
    }
  }

  bool InGroup(int number) const {
    return program_.iterations[static_cast<size_t>(number)].is_group;
  }

  SyncJob& job_;
  const TortureProgram& program_;
  Synchronizer& synchronizer_;
  int rank_;
  std::mt19937 random_;
};

std::vector<std::string> WrongWith(unsigned seed) {
  const TortureProgram program = MakeProgram(seed);
  // A launcher changes nothing of a program with several hosts.
  if (test::IsLaunched() && program.ranks_per_host < program.rank_count) return {};
  SyncJob job;
  job.ranks = {.rank_count = program.rank_count, .ranks_per_host = program.ranks_per_host};
  job.options = program.options;
  Watchdog watchdog(seed, program.rank_count);
  job.RunAndLeave([&](Synchronizer& synchronizer) {
    const int rank = synchronizer.rank();
    watchdog.Set(rank, &synchronizer);
    TortureRank player(job, program, seed, synchronizer);
    const auto count = static_cast<int>(program.iterations.size());
    bool goes_on = true;
    for (int i = 0; i < count && goes_on; ++i) {
      if (rank == program.leaver && i == count / 2) break;
      goes_on = player.Play(i);
    }
    if (program.leaver < 0) {
      if (program.ends_with_join) player.Join();
      job.wrong.Expect(synchronizer.Shutdown(), rank, "Shutdown");
    }
    watchdog.Set(rank, nullptr);
  });
  return job.wrong.lines();
}

unsigned NumberOf(const char* variable, unsigned otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : static_cast<unsigned>(std::strtoul(text, nullptr, 10));
}

TEST_CASE("Random programs get the right sums, and nothing hangs", "[sync][torture]") {
  const unsigned only = NumberOf("LMDBIO_TEST_SEED", 0);
  const unsigned first = NumberOf("LMDBIO_TEST_FIRST_SEED", 1);
  const unsigned count = NumberOf("LMDBIO_TEST_SEEDS", 60);
  for (unsigned seed = first; seed < first + count; ++seed) {
    const unsigned chosen = only != 0 ? only : seed;
    CAPTURE(chosen);
    const auto wrong = WrongWith(chosen);
    CHECK(wrong == std::vector<std::string>());
    if (only != 0) break;
  }
}

}  // namespace
}  // namespace lmdbio::sync
