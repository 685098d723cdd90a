// Goal: the ranks of a host share memory that never has a name, or all of them return the same
// error; no other process gets the memory.
// Method: the ranks are threads, and each maps the file for itself. A seccomp filter refuses system
// calls of one thread.
#include "lmdbio/ranks/group/host_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/ranks/group/thread_group.h"
#include "lmdbio/ranks/shm/descriptor_inbox.h"
#include "lmdbio/ranks/shm/memory_file.h"
#include "tests/ranks/group/group_checks.h"
#include "tests/ranks/hooked_group.h"
#include "tests/support/catch.h"
#include "tests/support/in_child.h"

namespace lmdbio::ranks {
namespace {

using test::InChild;
using test::RefuseSystemCall;
using test::Verdict;

void Expect(Verdict verdict) {
  if (verdict == Verdict::kCannotTell) WARN("skipped: this cannot be arranged here");
  CHECK(verdict != Verdict::kWrong);
}

size_t OpenDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& one : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

TEST_CASE("AllocateHostMemory gives memory that passes the checks of all groups",
          "[comm][host_memory]") {
  const int rank_count = GENERATE(1, 2, 3, 8);
  const int ranks_per_host = GENERATE(2, 1 << 20);
  CAPTURE(rank_count, ranks_per_host);
  const size_t before = OpenDescriptors();
  for (const test::GroupCheck& check : test::GroupChecks()) {
    INFO(check.name);
    std::vector<test::Complaints> complaints(static_cast<size_t>(rank_count));
    RunAsThreads({rank_count, ranks_per_host}, [&](Group& group) {
      HookedGroup hooked(group, AllocateHostMemory);
      check.run(hooked, complaints[static_cast<size_t>(group.rank())]);
    });
    for (const test::Complaints& one : complaints) CHECK(one.list() == std::vector<std::string>{});
  }
  CHECK(OpenDescriptors() == before);
}

TEST_CASE("Host memory starts at a multiple of 2 MiB on all ranks", "[comm][host_memory]") {
  const uint64_t size_bytes = GENERATE(as<uint64_t>{}, 0, 1, 4096, (2 << 20) + 1, 64 << 20);
  std::vector<std::string> wrong(3);
  RunAsThreads({3}, [&](Group& group) {
    std::string& mine = wrong[static_cast<size_t>(group.rank())];
    const auto memory = AllocateHostMemory(group, size_bytes);
    if (!memory) return void(mine = memory.error().message());
    const MutableBytes bytes = (*memory)->bytes();
    if (bytes.size() != size_bytes) mine = "size";
    if (reinterpret_cast<uintptr_t>(bytes.data()) % SharedMapping::kAlignBytes != 0) mine = "start";
    if (!bytes.empty()) bytes.back() = std::byte{1};
    if (!(*memory)->note().empty()) mine = "a note";
    if (!group.Barrier()) mine = "Barrier";
  });
  CHECK(wrong == std::vector<std::string>(3));
}

// Each of three ranks gets `code` and `words` when the kernel refuses `call` to one of them.
Verdict AllHear(int refused_rank, long call, int error_number, ErrorCode code,
                const std::string& words) {
  bool can_refuse = true;
  std::array<bool, 3> is_right{};
  RunAsThreads({3}, [&](Group& group) {
    const bool is_refused = group.rank() == refused_rank;
    if (is_refused && !RefuseSystemCall({call, error_number})) can_refuse = false;
    const auto memory = AllocateHostMemory(group, 1 << 20);
    const std::string expected =
        is_refused ? words : fmt::format("rank {}: {}", refused_rank, words);
    const std::string heard = memory ? "memory" : memory.error().message();
    const bool is_as_expected =
        !memory && memory.error().code() == code && heard.substr(0, expected.size()) == expected;
    if (!is_as_expected) std::fprintf(stderr, "rank %d: %s\n", group.rank(), heard.c_str());
    is_right[static_cast<size_t>(group.rank())] = is_as_expected && group.Barrier().has_value();
  });
  if (!can_refuse) return Verdict::kCannotTell;
  const bool are_right =
      std::all_of(is_right.begin(), is_right.end(), [](bool one) { return one; });
  return are_right ? Verdict::kRight : Verdict::kWrong;
}

TEST_CASE("A call that one rank is refused fails host memory alike on all", "[comm][host_memory]") {
  const auto hear = [](int rank, long call, int error_number, ErrorCode code,
                       const std::string& words) {
    INFO(words);
    Expect(InChild([&] { return AllHear(rank, call, error_number, code, words); }));
  };
  hear(0, SYS_memfd_create, EPERM, ErrorCode::kUnsupported,
       "memfd_create: Operation not permitted");
  hear(0, SYS_ftruncate, EPERM, ErrorCode::kUnsupported, "ftruncate of a memory file: Operation");
  hear(0, SYS_fcntl, EINVAL, ErrorCode::kUnsupported, "sealing a memory file: Invalid argument");
  hear(0, SYS_connect, ECONNREFUSED, ErrorCode::kUnsupported,
       "passing shared memory to rank 1: connect: Connection refused");
  hear(1, SYS_bind, EACCES, ErrorCode::kUnsupported, "bind: Permission denied");
  hear(2, SYS_socket, EMFILE, ErrorCode::kResourceExhausted,
       "socket: Too many open files (the limit of this process is ");
  hear(2, SYS_accept4, EPERM, ErrorCode::kUnsupported, "accept: Operation not permitted");
  hear(2, SYS_recvmsg, EPERM, ErrorCode::kUnsupported, "recvmsg: Operation not permitted");
}

TEST_CASE("A limit for files is an error and not a signal", "[comm][host_memory]") {
  Expect(InChild([] {
    const rlimit limit{1 << 20, 1 << 20};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return Verdict::kCannotTell;
    const auto small = CreateMemoryFile(1 << 20);
    const auto large = CreateMemoryFile((1 << 20) + 1);
    return small && !large && large.error().code() == ErrorCode::kResourceExhausted &&
                   large.error().message().find("ulimit -f") != std::string::npos
               ? Verdict::kRight
               : Verdict::kWrong;
  }));
}

TEST_CASE("A memory file keeps its size", "[comm][host_memory]") {
  const auto file = CreateMemoryFile(10000);
  REQUIRE(file);
  CHECK(::ftruncate(file->get(), 0) != 0);
  CHECK(::ftruncate(file->get(), 1 << 20) != 0);
  CHECK(SharedMapping::Map(*file, 10000));
  const auto larger = SharedMapping::Map(*file, 100000);
  REQUIRE_FALSE(larger);
  CHECK(larger.error().code() == ErrorCode::kUnsupported);
  const UniqueFd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(unsealed.get(), 4096) == 0);
  CHECK_FALSE(SharedMapping::Map(unsealed, 4096));
}

TEST_CASE("An inbox takes a descriptor from a sender with its secret only", "[comm][host_memory]") {
  auto inbox = DescriptorInbox::Open();
  REQUIRE(inbox);
  const auto file = CreateMemoryFile(1);
  REQUIRE(file);
  CHECK_FALSE(inbox->Take());  // nothing has been sent
  // The name is public, the secret is not.
  DescriptorInbox::Address guessed = inbox->address();
  guessed.secret[0] ^= std::byte{1};
  const size_t before = OpenDescriptors();
  REQUIRE(SendDescriptor(guessed, *file));
  REQUIRE(SendDescriptor(guessed, *file));
  CHECK_FALSE(inbox->Take());
  CHECK(OpenDescriptors() == before);
  REQUIRE(SendDescriptor(guessed, *file));
  REQUIRE(SendDescriptor(inbox->address(), *file));
  const auto taken = inbox->Take();
  REQUIRE(taken);
  CHECK(SharedMapping::Map(*taken, 1));
  CHECK(OpenDescriptors() == before + 1);
}

TEST_CASE("Descriptors do not go between users", "[comm][host_memory]") {
  Expect(InChild([] {
    const auto file = CreateMemoryFile(1);
    auto inbox = DescriptorInbox::Open();
    if (!file || !inbox || ::seteuid(12345) != 0) return Verdict::kCannotTell;
    const auto sent = SendDescriptor(inbox->address(), *file);
    const bool refuses_to_send =
        !sent &&
        sent.error().message() ==
            "the socket belongs to user 0, not to user 12345: all ranks of a host must run as one "
            "user";
    // This user refuses a descriptor that the other user sends to itself.
    auto theirs = DescriptorInbox::Open();
    if (!theirs || !SendDescriptor(theirs->address(), *file)) return Verdict::kWrong;
    if (::seteuid(0) != 0) return Verdict::kCannotTell;
    return refuses_to_send && !inbox->Take() && !theirs->Take() ? Verdict::kRight : Verdict::kWrong;
  }));
}

}  // namespace
}  // namespace lmdbio::ranks
