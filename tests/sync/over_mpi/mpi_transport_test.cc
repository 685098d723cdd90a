// Goal: exchanges by calls of MPI give the same replies as a loop over all ranks, with blocking and
// with nonblocking calls. Method: ranks are processes, on emulated hosts.
#include "lmdbio/sync/over_mpi/mpi_transport.h"

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "lmdbio/base/kept_memory.h"
#include "tests/support/catch.h"
#include "tests/sync/transport/exchange_checks.h"

namespace {

int ranks_per_host = 0;  // of the emulated hosts; 0: the real ones

}  // namespace

// Replaces the function of MPI that finds the ranks of a host. MPI provides each of its functions a
// second time, with the prefix PMPI, for this purpose.
extern "C" int MPI_Comm_split_type(MPI_Comm communicator, int split_type, int key, MPI_Info info,
                                   MPI_Comm* part) {
  if (ranks_per_host == 0) {
    return PMPI_Comm_split_type(communicator, split_type, key, info, part);
  }
  int rank = 0;
  MPI_Comm_rank(communicator, &rank);
  return MPI_Comm_split(communicator, rank / ranks_per_host, key, part);
}

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;

bool AnyThreadMayCall() {
  int given = MPI_THREAD_SINGLE;
  MPI_Query_thread(&given);
  return given == MPI_THREAD_MULTIPLE;
}

TEST_CASE("MpiTransport gives the same replies as a loop over all ranks", "[mpi][transport]") {
  if (!AnyThreadMayCall()) return;
  auto transport = MpiTransport(MPI_COMM_WORLD);
  REQUIRE(transport);
  const auto waiting = GENERATE(test::ExchangeWait::kAsleep, test::ExchangeWait::kByTests);
  CHECK(test::WrongExchanges(**transport, waiting) == 0);
}

TEST_CASE("MpiTransport makes exchanges along a tree of hosts", "[mpi][transport]") {
  if (!AnyThreadMayCall()) return;
  ranks_per_host = GENERATE(1, 2);
  const uint32_t tree_arity = GENERATE(0U, 1U, 2U, 100U);
  auto transport = MpiTransport(MPI_COMM_WORLD, tree_arity);
  REQUIRE(transport);
  const int size = (*transport)->ranks().size;
  CHECK((*transport)->ranks().host_of.back() == (size - 1) / ranks_per_host);
  const auto waiting = GENERATE(test::ExchangeWait::kAsleep, test::ExchangeWait::kByTests);
  CHECK(test::WrongExchanges(**transport, waiting) == 0);
  ranks_per_host = 0;
}

TEST_CASE("MpiTransport makes the exchanges of another thread", "[mpi][transport]") {
  if (!AnyThreadMayCall()) return;
  auto transport = MpiTransport(MPI_COMM_WORLD);
  REQUIRE(transport);
  int wrong = -1;
  std::thread other(
      [&] { wrong = test::WrongExchanges(**transport, test::ExchangeWait::kByTests); });
  for (int i = 0; i < 20; ++i) MPI_Barrier(MPI_COMM_WORLD);  // the program's own calls go on
  other.join();
  CHECK(wrong == 0);
}

TEST_CASE("MpiTransport sleeps until it is woken", "[mpi][transport]") {
  if (!AnyThreadMayCall()) return;
  auto transport = MpiTransport(MPI_COMM_WORLD);
  REQUIRE(transport);
  (*transport)->Wake();
  (*transport)->Sleep(1h, WakeOn::kWakeOrRing);  // at once: it has been woken before
  std::thread waker([&] { (*transport)->Wake(); });
  (*transport)->Sleep(1h, WakeOn::kOrPeerCame);
  waker.join();
  CHECK_FALSE((*transport)->hears_peers());
}

TEST_CASE("MpiTransport leaves MPI the memory of an exchange that was given up",
          "[mpi][transport]") {
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (!AnyThreadMayCall() || size == 1) return;
  auto transport = MpiTransport(MPI_COMM_WORLD);
  REQUIRE(transport);
  constexpr size_t kWords = 100'000;  // MPI does not keep a copy of so many
  Exchange exchange;
  exchange.kind = ExchangeKind::kIntersect;
  exchange.words.assign(kWords, ~(uint64_t{1} << rank));
  const size_t kept_before = KeptCount();
  if (rank == 0) {
    REQUIRE((*transport)->Start(std::move(exchange)));
    const auto is_over = (*transport)->Test();
    REQUIRE(is_over);
    REQUIRE_FALSE(*is_over);
    transport->reset();
    CHECK(KeptCount() == kept_before + 1);
    MPI_Barrier(MPI_COMM_WORLD);
  } else {
    MPI_Barrier(MPI_COMM_WORLD);
    REQUIRE((*transport)->Start(std::move(exchange)));
    for (bool is_over = false; !is_over;) is_over = *(*transport)->Test();
    const uint64_t expected = ~((uint64_t{1} << size) - 1);
    CHECK((*transport)->TakeReply().words == std::vector<uint64_t>(kWords, expected));
  }
  MPI_Barrier(MPI_COMM_WORLD);  // rank 0 goes on with the exchange here
  if (rank != 0) CHECK(KeptCount() == kept_before);
}

TEST_CASE("MpiTransport refuses a program in which its thread may not call MPI",
          "[mpi][transport]") {
  if (AnyThreadMayCall()) return;
  const auto refused = MpiTransport(MPI_COMM_WORLD);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == ErrorCode::kUnsupported);
  CHECK(refused.error().message().find("MPI_THREAD_MULTIPLE") != std::string::npos);
}

}  // namespace
}  // namespace lmdbio::sync
