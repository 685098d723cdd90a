#include "lmdbio/ranks/mpi/mpi_group.h"

#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "lmdbio/ranks/mpi/mpi_calls.h"
#include "tests/ranks/group/group_checks.h"
#include "tests/ranks/launcher/world_group.h"
#include "tests/support/catch.h"

namespace lmdbio::ranks {
namespace {

using test::Complaints;
using test::GroupCheck;

int WorldRank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int WorldSize() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

std::vector<std::byte> MyPattern(size_t size_bytes) {
  std::vector<std::byte> bytes(size_bytes);
  for (size_t i = 0; i < size_bytes; ++i) bytes[i] = test::PatternByte(WorldRank(), i);
  return bytes;
}

std::unique_ptr<Group> World() {
  auto world = test::WorldGroup();
  REQUIRE(world.has_value());
  return std::move(*world);
}

TEST_CASE("MpiGroup passes the checks of all groups", "[comm]") {
  const auto world = World();
  for (const GroupCheck& check : test::GroupChecks()) {
    INFO(check.name);
    Complaints complaints;
    check.run(*world, complaints);
    CHECK(complaints.list() == std::vector<std::string>{});
  }
}

TEST_CASE("MpiGroup says whether its ranks watch each other", "[comm]") {
  const auto world = World();
  const bool has_links = std::getenv("LMDBIO_TEST_NO_LISTEN") == nullptr;
  const bool is_alone = WorldSize() == 1;
  CAPTURE(world->note());
  CHECK(world->note().starts_with("the ranks have no links") == (!has_links && !is_alone));
}

TEST_CASE("MpiGroup gives the results of MPI's own calls", "[comm]") {
  const auto world = World();
  CHECK(world->rank() == WorldRank());
  CHECK(world->size() == WorldSize());

  std::vector<std::byte> expected(1000 * static_cast<size_t>(WorldSize()));
  const std::vector<std::byte> mine = MyPattern(1000);
  MPI_Allgather(mine.data(), 1000, MPI_BYTE, expected.data(), 1000, MPI_BYTE, MPI_COMM_WORLD);
  const auto gathered = world->AllGather(mine);
  REQUIRE(gathered.has_value());
  CHECK(*gathered == expected);

  const int root = WorldSize() - 1;
  std::vector<std::byte> expected_bytes = MyPattern(70000);
  std::vector<std::byte> bytes = expected_bytes;
  MPI_Bcast(expected_bytes.data(), 70000, MPI_BYTE, root, MPI_COMM_WORLD);
  CHECK(world->Broadcast(root, bytes).has_value());
  CHECK(bytes == expected_bytes);
}

struct RankAndSize {
  int rank = -1;
  int size = -1;
  friend bool operator==(const RankAndSize&, const RankAndSize&) = default;
};

RankAndSize Freed(MPI_Comm part) {
  RankAndSize found;
  MPI_Comm_rank(part, &found.rank);
  MPI_Comm_size(part, &found.size);
  MPI_Comm_free(&part);
  return found;
}

TEST_CASE("MpiGroup splits as MPI splits", "[comm]") {
  const auto world = World();
  MPI_Comm part = MPI_COMM_NULL;
  for (const int divisor : {1, 2, 3}) {
    MPI_Comm_split(MPI_COMM_WORLD, WorldRank() % divisor, WorldRank(), &part);
    const RankAndSize expected = Freed(part);
    const auto group = world->Split(WorldRank() % divisor);
    REQUIRE(group.has_value());
    CHECK(RankAndSize{(*group)->rank(), (*group)->size()} == expected);
  }
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, WorldRank(), MPI_INFO_NULL, &part);
  const RankAndSize expected = Freed(part);
  const auto host = world->SplitByHost();
  REQUIRE(host.has_value());
  CHECK(RankAndSize{(*host)->rank(), (*host)->size()} == expected);
}

// The order of ranks is that of the communicator, not of MPI_COMM_WORLD.
TEST_CASE("MpiGroup keeps the order of its communicator", "[comm]") {
  MPI_Comm reversed = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, 0, -WorldRank(), &reversed);
  const auto group = MpiGroup(reversed);
  REQUIRE(group.has_value());
  MPI_Comm_free(&reversed);  // the group works on a duplicate
  CHECK((*group)->rank() == WorldSize() - 1 - WorldRank());
  const auto host = (*group)->SplitByHost();
  REQUIRE(host.has_value());
  CHECK((*host)->rank() == (*group)->rank());
  for (const GroupCheck& check : test::GroupChecks()) {
    INFO(check.name);
    Complaints complaints;
    check.run(**group, complaints);
    CHECK(complaints.list() == std::vector<std::string>{});
  }
}

TEST_CASE("BroadcastInPieces and AllGatherInPieces take pieces of any size", "[comm]") {
  const auto size_bytes = GENERATE(as<size_t>{}, 0, 1, 99, 100, 101, 1000);
  const auto piece_bytes = GENERATE(as<uint64_t>{}, 1, 7, 99, 100, 1 << 20);
  CAPTURE(size_bytes, piece_bytes);
  const std::vector<std::byte> mine = MyPattern(size_bytes);
  std::vector<std::byte> expected(size_bytes * static_cast<size_t>(WorldSize()));
  MPI_Allgather(mine.data(), static_cast<int>(size_bytes), MPI_BYTE, expected.data(),
                static_cast<int>(size_bytes), MPI_BYTE, MPI_COMM_WORLD);

  std::vector<std::byte> all(expected.size());
  CHECK(AllGatherInPieces(MPI_COMM_WORLD, mine, all, piece_bytes).has_value());
  CHECK(all == expected);
  for (int root = 0; root < WorldSize(); ++root) {
    std::vector<std::byte> bytes = mine;
    CHECK(BroadcastInPieces(MPI_COMM_WORLD, root, bytes, piece_bytes).has_value());
    const auto theirs = expected.begin() + static_cast<std::ptrdiff_t>(size_bytes) * root;
    CHECK(std::equal(bytes.begin(), bytes.end(), theirs));
  }
}

TEST_CASE("MpiGroup refuses communicators without a group of ranks", "[comm]") {
  const auto none = MpiGroup(MPI_COMM_NULL);
  REQUIRE_FALSE(none.has_value());
  CHECK(none.error().code() == ErrorCode::kInvalidArgument);
  if (WorldSize() == 1) return;
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm between = MPI_COMM_NULL;
  const int my_half = WorldRank() == 0 ? 0 : 1;
  MPI_Comm_split(MPI_COMM_WORLD, my_half, WorldRank(), &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, my_half == 0 ? 1 : 0, 17, &between);
  const auto group = MpiGroup(between);
  REQUIRE_FALSE(group.has_value());
  CHECK(group.error().code() == ErrorCode::kInvalidArgument);
  CHECK(group.error().message() ==
        "the communicator is an intercommunicator: pass an intracommunicator");
  MPI_Comm_free(&between);
  MPI_Comm_free(&half);
}

TEST_CASE("MpiStatus has the message of MPI", "[comm]") {
  CHECK(MpiStatus(MPI_SUCCESS, "MPI_Bcast").has_value());
  const Status status = MpiStatus(MPI_ERR_ROOT, "MPI_Bcast");
  REQUIRE_FALSE(status.has_value());
  CHECK(status.error().code() == ErrorCode::kInternal);
  std::array<char, MPI_MAX_ERROR_STRING> text = {};
  int length = 0;
  MPI_Error_string(MPI_ERR_ROOT, text.data(), &length);
  CHECK(status.error().message() == std::string("MPI_Bcast: ") + text.data());
  const Status no_memory = MpiStatus(MPI_ERR_NO_MEM, "MPI_Win_allocate_shared");
  REQUIRE_FALSE(no_memory.has_value());
  CHECK(no_memory.error().code() == ErrorCode::kResourceExhausted);
}

// The path of the file that is mapped at `address`; "" for memory without a file.
std::string MappedFileAt(const std::byte* address) {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    int path_at = 0;
    std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %*s %*s %*s %*s %n", &begin, &end,
                &path_at);
    const auto at = reinterpret_cast<uintptr_t>(address);
    if (begin <= at && at < end) return line.substr(static_cast<size_t>(path_at));
  }
  return "no map";
}

TEST_CASE("MpiGroup gives a window of MPI's on request", "[comm]") {
  const auto world = World();
  const auto host = world->SplitByHost();
  REQUIRE(host.has_value());
  const bool is_alone = (*host)->size() == 1;
  const auto window = (*host)->AllocateMpiWindow(1 << 20);
  REQUIRE(window.has_value());
  CHECK((*window)->note().empty());
  CHECK((*window)->bytes().size() == 1 << 20);
  const std::string path = MappedFileAt((*window)->bytes().data());
  CAPTURE(path);
  CHECK_FALSE(path.starts_with("/memfd:"));
  CHECK(path.empty() == is_alone);
  // All ranks see what the last one writes.
  if ((*host)->rank() + 1 == (*host)->size()) (*window)->bytes()[4711] = std::byte{42};
  CHECK((*host)->Barrier().has_value());
  CHECK((*window)->bytes()[4711] == std::byte{42});
}

TEST_CASE("A window of MPI's has one size on all ranks", "[comm]") {
  const auto world = World();
  const auto host = world->SplitByHost();
  REQUIRE(host.has_value());
  if ((*host)->size() == 1) return;
  const auto window = (*host)->AllocateMpiWindow((*host)->rank() == 0 ? 4096 : 8192);
  REQUIRE_FALSE(window.has_value());
  CHECK(window.error().code() == ErrorCode::kInvalidArgument);
}

// Several pieces of memory at once, and more groups than are alive at a time.
TEST_CASE("MpiGroup gives everything back", "[comm]") {
  const auto world = World();
  const auto host = world->SplitByHost();
  REQUIRE(host.has_value());
  for (int round = 0; round < 50; ++round) {
    const auto group = world->Split(round % 2);
    REQUIRE(group.has_value());
    const auto first = (*host)->AllocateShared(1 << 20);
    const auto second = (*host)->AllocateShared(1 << 20);
    REQUIRE(first.has_value());
    REQUIRE(second.has_value());
    CHECK((*first)->bytes().data() != (*second)->bytes().data());
    CHECK((*first)->bytes()[0] == std::byte{0});
    CHECK((*host)->Barrier().has_value());  // all have looked
    (*first)->bytes()[0] = std::byte{1};
  }
}

}  // namespace
}  // namespace lmdbio::ranks
