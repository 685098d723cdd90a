// Goal: the collectives of MPI, and the algorithms over messages of MPI, pass the checks of all
// collectives, also with several messages for each call. Ranks that sleep learn that a rank stops.
// Method: ranks are processes.
#include "lmdbio/sync/over_mpi/mpi_collectives.h"

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "lmdbio/ranks/mpi/mpi_group.h"
#include "lmdbio/sync/over_mpi/fastest_over_mpi.h"
#include "lmdbio/sync/over_mpi/mpi_wire.h"
#include "lmdbio/sync/over_wire/wire_collectives.h"
#include "lmdbio/sync/tiers/make_collectives.h"
#include "tests/support/catch.h"
#include "tests/sync/collective/collective_checks.h"

namespace lmdbio::sync {
namespace {

using test::Complaints;
using Result = std::unique_ptr<Collectives>;

ranks::SoloHealth& Healthy() {
  static ranks::SoloHealth health;
  return health;
}

std::vector<std::string> ComplaintsAbout(Collectives& all) {
  Complaints complaints;
  const test::CollectiveSizes sizes{.small = {0, 8, 40, 1000}, .large = {65'528, 100'008}};
  for (const auto& check : test::CollectiveChecks()) check.run(all, sizes, complaints);
  return complaints.list();
}

// The ends of the ranks of a host, in shared memory.
class SharedHealth final : public ranks::Health {
 public:
  explicit SharedHealth(MutableBytes memory)
      : state_(*reinterpret_cast<std::atomic<uint32_t>*>(memory.data())),
        words_(memory.subspan(64)) {}
  Status Check() override {
    if (state_.load() == 0) return {};
    return Fail(ErrorCode::kPeerFailed, reinterpret_cast<const char*>(words_.data()));
  }
  void GiveUp(const Error& why) override {
    std::memcpy(words_.data(), why.message().c_str(), why.message().size() + 1);
    state_.store(1);
  }

 private:
  std::atomic<uint32_t>& state_;
  MutableBytes words_;
};

TEST_CASE("The collectives of MPI pass the checks of all collectives", "[collective]") {
  const auto waiting = GENERATE(MpiWaiting::kBlock, MpiWaiting::kSleep);
  const uint64_t piece_bytes_max = GENERATE(uint64_t{1} << 30, uint64_t{20'000});
  const auto made = MpiCollectives(MPI_COMM_WORLD, Healthy(),
                                   {.waiting = waiting,
                                    .caller = ranks::MpiCaller::kMainThread,
                                    .piece_bytes_max = piece_bytes_max});
  REQUIRE(made);
  CHECK(ComplaintsAbout(**made) == std::vector<std::string>{});
}

TEST_CASE("Our algorithms work over MPI's messages", "[collective]") {
  const auto algorithm = GENERATE(WireAlgorithm::kDoubling, WireAlgorithm::kRing,
                                  WireAlgorithm::kHalving, WireAlgorithm::kDirect);
  auto wire = MpiWire(MPI_COMM_WORLD, Healthy(), {.piece_bytes_max = 8'000});
  REQUIRE(wire);
  const auto made =
      WireCollectives(std::move(*wire), {.table = OneWireAlgorithm(algorithm, 20'000, 3)});
  REQUIRE(made);
  CHECK(ComplaintsAbout(**made) == std::vector<std::string>{});
}

TEST_CASE("The faster way over MPI passes the checks, and says which one it is", "[collective]") {
  const auto made =
      FastestOverMpi(MPI_COMM_WORLD, Healthy(), {.caller = ranks::MpiCaller::kMainThread});
  REQUIRE(made);
  CHECK(ComplaintsAbout(**made) == std::vector<std::string>{});
  const std::string text = (*made)->Description();
  if ((*made)->size() == 1) {
    CHECK(text == "MPI's collectives, nonblocking");  // one rank needs no trial
    return;
  }
  CHECK(text.find("over MPI, by trial: MPI's ") == 0);
  // All ranks have chosen alike: the choice is part of the first line.
  std::string first = text.substr(0, text.find(';'));
  first.resize(64, ' ');
  std::vector<char> all(64 * static_cast<size_t>((*made)->size()));
  MPI_Allgather(first.data(), 64, MPI_CHAR, all.data(), 64, MPI_CHAR, MPI_COMM_WORLD);
  for (size_t at = 0; at < all.size(); at += 64) {
    CHECK(std::string(&all[at], 64) == first);
  }
}

TEST_CASE("Collectives of processes pass the checks of all collectives", "[collective]") {
  const std::string name = GENERATE("auto", "shm", "ring");
  const auto world = ranks::MpiGroup(MPI_COMM_WORLD);
  REQUIRE(world);
  const auto made = MakeCollectives(**world, Healthy(), {.collective = name});
  REQUIRE(made);
  CHECK(ComplaintsAbout(**made) == std::vector<std::string>{});
}

TEST_CASE("A rank that stops is heard of by ranks that sleep for it", "[collective]") {
  const auto world = ranks::MpiGroup(MPI_COMM_WORLD);
  REQUIRE(world);
  if ((*world)->size() == 1) return;
  const auto memory = (*world)->AllocateShared(4096);
  REQUIRE(memory);
  SharedHealth health((*memory)->bytes());
  const std::string way = GENERATE("messages", "collectives", "fastest");
  (*memory)->bytes()[0] = std::byte{0};
  REQUIRE((*world)->Barrier());
  Result all;
  if (way == "messages") {
    auto wire = MpiWire(MPI_COMM_WORLD, health);
    REQUIRE(wire);
    all = *WireCollectives(std::move(*wire), {.table = UsualWireTable()});
  } else if (way == "collectives") {
    all = *MpiCollectives(MPI_COMM_WORLD, health, {.caller = ranks::MpiCaller::kMainThread});
  } else {
    all = *FastestOverMpi(MPI_COMM_WORLD, health, {.caller = ranks::MpiCaller::kMainThread});
  }
  Complaints complaints;
  test::CheckStop(*all, complaints);
  CHECK(complaints.list() == std::vector<std::string>{});
  REQUIRE((*world)->Barrier());
}

TEST_CASE("Threads that may not call MPI are refused", "[collective]") {
  int given = MPI_THREAD_SINGLE;
  MPI_Query_thread(&given);
  CHECK(ranks::CheckMpiThread(ranks::MpiCaller::kMainThread));
  CHECK(ranks::CheckMpiThread(ranks::MpiCaller::kOneAtATime).has_value() ==
        (given >= MPI_THREAD_SERIALIZED));
  CHECK(ranks::CheckMpiThread(ranks::MpiCaller::kAnyThread).has_value() ==
        (given >= MPI_THREAD_MULTIPLE));
  if (given == MPI_THREAD_FUNNELED) {
    const auto refused = MpiCollectives(MPI_COMM_WORLD, Healthy(), {});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message() ==
          "a helper thread may not call MPI: MPI was initialized with MPI_THREAD_FUNNELED; "
          "initialize MPI with MPI_THREAD_MULTIPLE");
  }
  std::thread other([] { CHECK_FALSE(ranks::CheckMpiThread(ranks::MpiCaller::kMainThread)); });
  other.join();
}

}  // namespace
}  // namespace lmdbio::sync
