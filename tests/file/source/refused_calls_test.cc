// Goal: sources and probes work if a sandbox or an old kernel refuses a system call that has an
// older substitute. block_engine_fault_test.cc tests the engines. Method: a child process with a
// filter that refuses the calls.
#include <fcntl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "lmdbio/file/io/cache_probe.h"
#include "lmdbio/file/source/file_source.h"
#include "lmdbio/file/source/map_source.h"
#include "lmdbio/file/source/read_ahead_source.h"
#include "tests/file/blocks/engine_fixture.h"
#include "tests/support/catch.h"
#include "tests/support/check_in_child.h"
#include "tests/support/good.h"

namespace lmdbio::file {
namespace {

using test::CheckInChild;
using test::RefuseSystemCall;
using test::Verdict;

constexpr uint64_t kFileBytes = 1 << 20;
constexpr long kCachestatCall = 451;

// Whether `source` returns the size of the file and reads all of it with many requests.
bool ReadsRight(const ByteSource& source, const EngineFile& file) {
  std::vector<std::byte> bytes(kFileBytes);
  std::vector<ReadRequest> requests;
  for (uint64_t at = 0; at < kFileBytes; at += kPageBytes) {
    requests.push_back({at, MutableBytes(bytes).subspan(at, kPageBytes)});
  }
  return source.SizeBytes() == kFileBytes && source.ReadMany(requests) && file.Holds(0, bytes);
}

TEST_CASE("Sources, engines and probes work without statx, cachestat and mincore", "[io][fault]") {
  const EngineFile file(kFileBytes);
  const int error_number = GENERATE(EPERM, ENOSYS);
  const bool has_mincore = GENERATE(true, false);
  CAPTURE(error_number, has_mincore);
  CheckInChild([&] {
    if (!RefuseSystemCall({SYS_statx, error_number}) ||
        !RefuseSystemCall({kCachestatCall, error_number}) ||
        (!has_mincore && !RefuseSystemCall({SYS_mincore, error_number}))) {
      return Verdict::kCannotTell;
    }
    CHILD_CHECK(ReadsRight(*test::Good(FileSource::Open(file.path())), file));
    CHILD_CHECK(ReadsRight(*test::Good(ReadAheadSource::Open(file.path())), file));
    CHILD_CHECK(ReadsRight(*test::Good(MapSource::Open(file.path())), file));
    const CacheProbe probe = test::Good(ProbeCache(file.path()));
    CHILD_CHECK(probe.share <= 1 && probe.is_counted == has_mincore);
    for (const EngineKind kind : {EngineKind::kMmap, EngineKind::kPread, EngineKind::kUring}) {
      const auto engine = OpenOrThrow(file.path(), {.kind = kind});
      BlockList blocks(kFileBytes + 2 * kPageBytes);
      CHILD_CHECK(engine->Start(blocks.Add(0, kFileBytes).reads()));
      CHILD_CHECK(Drain(*engine).empty());
      CHILD_CHECK(blocks.HoldWhat(file));
    }
    return Verdict::kRight;
  });
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
}  // namespace lmdbio::file
