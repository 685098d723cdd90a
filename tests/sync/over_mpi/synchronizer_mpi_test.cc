// Goal: the synchronizer works over processes of MPI's, over each transport and collective that the
// level of thread support lets it have, and leaves nothing behind. Oracle: sums made by one thread.
#include "lmdbio/sync/engine/synchronizer.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mpi.h>

#include "lmdbio/sync/over_mpi/mpi_collectives.h"
#include "lmdbio/sync/over_mpi/mpi_transport.h"
#include "tests/ranks/launcher/world_group.h"
#include "tests/support/catch.h"
#include "tests/sync/engine/sync_job.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;
using test::GradientOf;
using test::SumOf;
using Made = std::unique_ptr<Synchronizer>;

constexpr int kTensorCount = 7;

bool AnyThreadMayCall() {
  int given = MPI_THREAD_SINGLE;
  MPI_Query_thread(&given);
  return given == MPI_THREAD_MULTIPLE;
}

size_t CountOf(int tensor) { return static_cast<size_t>(tensor * 97 % 400); }

// Runs some iterations, in which each rank has an order of its own. Returns the error, or "".
std::string Train(Synchronizer& synchronizer, int first, int last, const std::string& prefix = "") {
  const int rank = synchronizer.rank();
  for (int iteration = first; iteration < last; ++iteration) {
    std::vector<std::vector<float>> values(kTensorCount);
    std::vector<Handle> handles;
    std::vector<int> order(kTensorCount);
    for (int tensor = 0; tensor < kTensorCount; ++tensor)
      order[static_cast<size_t>(tensor)] = tensor;
    std::mt19937 random(static_cast<unsigned>(iteration * 100 + rank));
    std::shuffle(order.begin(), order.end(), random);
    for (const int tensor : order) {
      auto& one = values[static_cast<size_t>(tensor)];
      one = GradientOf(rank, tensor, iteration, CountOf(tensor));
      auto handle =
          synchronizer.Submit(AllReduceOf(fmt::format("{}w{}", prefix, tensor), one.data(),
                                          one.data(), static_cast<int64_t>(one.size())));
      if (!handle) return handle.error().message();
      handles.push_back(std::move(*handle));
    }
    for (Handle& handle : handles) {
      const Status status = handle.Wait();
      if (!status) return status.error().message();
    }
    for (int tensor = 0; tensor < kTensorCount; ++tensor) {
      const auto expected = SumOf(synchronizer.size(), tensor, iteration, CountOf(tensor));
      if (values[static_cast<size_t>(tensor)] != expected) return "a wrong sum";
    }
  }
  return "";
}

void TrainAndShutDown(Synchronizer& synchronizer) {
  CHECK(Train(synchronizer, 0, 12) == "");
  const auto down = synchronizer.Shutdown();
  CHECK((down ? "" : down.error().message()) == "");
}

TEST_CASE("Synchronizer sums over processes, at any level of thread support", "[mpi][sync]") {
  const auto world = test::WorldGroup();
  REQUIRE(world);
  SyncOptions options;
  options.coordinator = GENERATE("horovod", "cache", "hierarchical", "topo");
  options.pacing = GENERATE("event", "cycle", "gs", "nbcs");
  options.collective = options.pacing == "gs" ? "ring" : "auto";
  CAPTURE(options.coordinator, options.pacing);
  auto made = Synchronizer::Create(**world, options, {});
  REQUIRE(made);
  TrainAndShutDown(**made);
}

TEST_CASE("Synchronizer sums over MPI's exchanges", "[mpi][sync]") {
  if (!AnyThreadMayCall()) return;
  const auto world = test::WorldGroup();
  REQUIRE(world);
  SyncOptions options;
  options.coordinator = GENERATE("horovod", "cache", "hierarchical", "topo");
  options.pacing = GENERATE("event", "cycle", "gs", "nbcs");
  CAPTURE(options.coordinator, options.pacing);
  SyncParts parts;
  parts.transport = std::move(*MpiTransport(MPI_COMM_WORLD, options.tree_arity));
  auto made = Synchronizer::Create(**world, options, std::move(parts));
  REQUIRE(made);
  TrainAndShutDown(**made);
}

TEST_CASE("A transport with another tree than that of the options is refused", "[mpi][sync]") {
  if (!AnyThreadMayCall()) return;
  const auto world = test::WorldGroup();
  REQUIRE(world);
  SyncOptions options;
  options.coordinator = GENERATE("hierarchical", "cache");
  SyncParts parts;
  parts.transport = std::move(*MpiTransport(MPI_COMM_WORLD, 0));
  auto made = Synchronizer::Create(**world, options, std::move(parts));
  // The other coordinators have no tree.
  REQUIRE(made.has_value() == (options.coordinator == "cache"));
  if (made) return TrainAndShutDown(**made);
  CHECK(made.error().code() == ErrorCode::kInvalidArgument);
  CHECK(made.error().message() ==
        "tree_arity: the transport was made for a tree of arity 0, the option is 4; make the "
        "transport with the value of the option");
}

TEST_CASE("Several roots on each host are refused with the collectives of MPI", "[mpi][sync]") {
  if (!AnyThreadMayCall()) return;
  const auto world = test::WorldGroup();
  REQUIRE(world);
  SyncOptions options;
  options.host_roots = 2;
  SyncParts parts;
  parts.collectives = [](ranks::Health& health) {
    return MpiCollectives(MPI_COMM_WORLD, health, {});
  };
  const auto made = Synchronizer::Create(**world, options, std::move(parts));
  REQUIRE_FALSE(made);
  CHECK(made.error().message().find("host_roots: 2 roots on each host need collective 'auto'") !=
        std::string::npos);
}

TEST_CASE("Synchronizer sums by MPI's collectives", "[mpi][sync]") {
  if (!AnyThreadMayCall()) return;
  const auto world = test::WorldGroup();
  REQUIRE(world);
  SyncOptions options;
  options.coordinator = GENERATE("cache", "topo");
  options.pacing = GENERATE("event", "cycle", "nbcs");
  options.fusion_threshold_bytes = 1000;
  const auto waiting = GENERATE(MpiWaiting::kBlock, MpiWaiting::kSleep);
  const bool is_all_mpi = GENERATE(false, true);
  CAPTURE(options.coordinator, options.pacing, static_cast<int>(waiting), is_all_mpi);
  SyncParts parts;
  parts.collectives = [waiting](ranks::Health& health) {
    return MpiCollectives(MPI_COMM_WORLD, health, {.waiting = waiting});
  };
  if (is_all_mpi) parts.transport = std::move(*MpiTransport(MPI_COMM_WORLD, options.tree_arity));
  auto made = Synchronizer::Create(**world, options, std::move(parts));
  REQUIRE(made);
  TrainAndShutDown(**made);
}

TEST_CASE("A tensor that a rank never submits is found while the collectives of MPI wait for it",
          "[mpi][sync][stall]") {
  const auto world = test::WorldGroup();
  REQUIRE(world);
  if (!AnyThreadMayCall() || (*world)->size() == 1) return;
  SyncOptions options;
  options.coordinator = "topo";
  options.stall_report = 300ms;
  options.stall_limit = 5000ms;  // the last rank has to get processor time within it
  test::Findings notes;
  SyncParts parts;
  parts.collectives = [](ranks::Health& health) {
    return MpiCollectives(MPI_COMM_WORLD, health, {});
  };
  parts.log = [&notes, rank = (*world)->rank()](const std::string& line) { notes.Add(rank, line); };
  auto made = Synchronizer::Create(**world, options, std::move(parts));
  REQUIRE(made);
  CHECK(Train(**made, 0, 12) == "");
  CHECK((*made)->counters().plan_count == 1);
  const int lazy = (*world)->size() - 1;
  MPI_Barrier(MPI_COMM_WORLD);
  if ((*world)->rank() != lazy) {
    const std::string how = Train(**made, 12, 13);  // its first bucket waits in MPI
    INFO(how << "; notes: " << fmt::format("{}", fmt::join(notes.lines(), "; ")));
    CHECK(how.find("tensor 'w") != std::string::npos);
    CHECK(notes.Has("tensor 'w"));
    // Only the first rank learns which rank it is.
    if ((*world)->rank() == 0) CHECK(notes.Has(fmt::format("for rank {}", lazy)));
  }
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK_FALSE((*made)->Shutdown());
  made->reset();
}

TEST_CASE("Synchronizers of several process sets work at once", "[mpi][sync]") {
  const auto world = test::WorldGroup();
  REQUIRE(world);
  const int rank = (*world)->rank();
  const auto parity = (*world)->Split(rank % 2);
  const auto half = (*world)->Split(rank * 2 / (*world)->size());
  REQUIRE(parity);
  REQUIRE(half);
  std::vector<Made> all;
  for (ranks::Group* const group : {world->get(), parity->get(), half->get()}) {
    SyncOptions options;
    options.coordinator = all.size() == 1 ? "cache" : "topo";
    auto made = Synchronizer::Create(*group, options, {});
    REQUIRE(made);
    all.push_back(std::move(*made));
  }
  // All three at once, each from a thread of its own.
  std::vector<std::string> wrong(all.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < all.size(); ++i) {
    threads.emplace_back([&, i] {
      wrong[i] = Train(*all[i], 0, 12);
      const Status down = all[i]->Shutdown();
      if (!down) wrong[i] += down.error().message();
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<std::string>(all.size()));
}

// The resources of a process that could leak.
struct Belongings {
  size_t fds = 0;
  size_t threads = 0;
  size_t shared_files = 0;
  size_t shared_mappings = 0;
};

size_t EntriesOf(const char* path) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(path)) ++count;
  return count;
}

size_t SharedMappings() {
  size_t count = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const bool is_shared = line.find("/dev/shm/") != std::string::npos ||
                           line.find("/memfd:lmdbio") != std::string::npos;
    count += is_shared ? 1 : 0;
  }
  return count;
}

Belongings Look() {
  MPI_Barrier(MPI_COMM_WORLD);
  const Belongings found{.fds = EntriesOf("/proc/self/fd"),
                         .threads = EntriesOf("/proc/self/task"),
                         .shared_files = EntriesOf("/dev/shm"),
                         .shared_mappings = SharedMappings()};
  MPI_Barrier(MPI_COMM_WORLD);
  return found;
}

TEST_CASE("Synchronizers that come and go leave nothing behind", "[.leftovers]") {
  const auto world = test::WorldGroup();
  REQUIRE(world);
  Belongings before;
  for (int i = 0; i < 50; ++i) {
    if (i == 10) before = Look();
    SyncOptions options;
    options.coordinator = i % 2 == 0 ? "topo" : "hierarchical";
    options.pacing = i % 3 == 0 ? "gs" : "event";
    options.collective = i % 5 == 0 ? "direct" : "auto";
    options.gradient_bytes = 1 << 20;
    SyncParts parts;
    if (AnyThreadMayCall() && i % 7 == 0) {
      parts.transport = std::move(*MpiTransport(MPI_COMM_WORLD, options.tree_arity));
    }
    auto made = Synchronizer::Create(**world, options, std::move(parts));
    REQUIRE(made);
    CHECK(Train(**made, 0, 2) == "");
    CHECK((*made)->Shutdown());
  }
  const Belongings after = Look();
  CHECK(after.fds == before.fds);
  CHECK(after.threads == before.threads);
  CHECK(after.shared_files == before.shared_files);
  CHECK(after.shared_mappings == before.shared_mappings);
}

}  // namespace
}  // namespace lmdbio::sync
