// Goal: sources and probes work where a sandbox or an old kernel refuses a system call that has an
// older substitute. The engines are tried in block_engine_fault_test.cc.
// Method: a child process in which a filter refuses the calls.
#include <fcntl.h>
#include <sys/syscall.h>

#include <catch2/catch.hpp>

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "lmdbio/io/file_source.h"
#include "tests/io/engine_fixture.h"
#include "tests/support/check_in_child.h"
#include "tests/support/good.h"

namespace lmdbio::io {
namespace {

using test::CheckInChild;
using test::RefuseSystemCall;
using test::Verdict;

constexpr uint64_t kFileBytes = 1 << 20;

// Whether `source` tells the size of the file and reads all of it, in many requests.
bool ReadsRight(const ByteSource& source, const EngineFile& file) {
  std::vector<std::byte> bytes(kFileBytes);
  std::vector<ReadRequest> requests;
  for (uint64_t at = 0; at < kFileBytes; at += kPageBytes) {
    requests.push_back({at, MutableBytes(bytes).subspan(at, kPageBytes)});
  }
  return source.SizeBytes() == kFileBytes && source.ReadMany(requests) && file.Holds(0, bytes);
}

TEST_CASE("A FileSource reads many requests without io_uring", "[io][fault]") {
  const EngineFile file(kFileBytes);
  const long call = GENERATE(long{SYS_io_uring_setup}, long{SYS_io_uring_enter});
  const int error_number = GENERATE(EPERM, ENOSYS);
  CAPTURE(call, error_number);
  CheckInChild([&] {
    if (!RefuseSystemCall({call, error_number})) return Verdict::kCannotTell;
    CHILD_CHECK(ReadsRight(*test::Good(FileSource::Open(file.path())), file));
    return Verdict::kRight;
  });
}

}  // namespace
}  // namespace lmdbio::io
