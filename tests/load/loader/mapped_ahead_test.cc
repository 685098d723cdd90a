// Goal: the reading thread of a process with one rank maps the values that the rank gets next.
// Method: Linux tells in /proc/self/pagemap which pages of a process are mapped.
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "lmdbio/base/align.h"
#include "lmdbio/base/unique_fd.h"
#include "lmdbio/load/loader/loader.h"
#include "lmdbio/ranks/group/group.h"
#include "tests/fixtures/tiny_db.h"
#include "tests/support/catch.h"
#include "tests/support/good.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

using load::Loader;
using load::LoaderOptions;

constexpr uint64_t kPieceBytes = 64 << 10;  // what the kernel maps at a touch

bool IsMapped(int pagemap, const std::byte* address) {
  uint64_t entry = 0;
  const auto page = reinterpret_cast<std::uintptr_t>(address) / MemoryPageBytes();
  REQUIRE(::pread(pagemap, &entry, sizeof entry, static_cast<off_t>(page * sizeof entry)) ==
          sizeof entry);
  return entry >> 63 != 0;
}

struct Pieces {
  uint64_t mapped = 0;
  uint64_t count = 0;
};

// The first page of each piece of the batch's values, except those that begin a value: the check of
// a record's head maps them.
Pieces PiecesOf(const load::Batch& batch) {
  const UniqueFd pagemap(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  REQUIRE(pagemap.get() >= 0);
  Pieces pieces;
  for (size_t i = 0; i < batch.record_count(); ++i) {
    const Bytes value = batch.value(i);
    for (uint64_t at = 2 * kPieceBytes; at < value.size(); at += kPieceBytes) {
      ++pieces.count;
      pieces.mapped += IsMapped(pagemap.get(), value.data() + at) ? 1 : 0;
    }
  }
  return pieces;
}

TEST_CASE("The values of an only rank are mapped before it gets them", "[loader]") {
  const TempDir dir;
  TinyDb db(dir.path());
  for (int i = 0; i < 8; ++i) db.Put(fmt::format("{:04}", i), std::string(1 << 20, 'v'));
  db.Commit();
  LoaderOptions options;
  options.global_batch_size = 8;
  options.layout_cache = "off";
  const auto solo = ranks::SoloGroup();
  const auto loader = Good(Loader::Open(*solo, db.data_file().string(), options));
  Good(loader->Next());
  REQUIRE(loader->Describe().find("in place") != std::string::npos);
  const Pieces pieces = PiecesOf(loader->batch());
  CHECK(pieces.count == 8 * 14);
  CHECK(pieces.mapped == pieces.count);
}

}  // namespace
}  // namespace lmdbio::test
