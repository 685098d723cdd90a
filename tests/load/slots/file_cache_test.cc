#include "lmdbio/load/slots/file_cache.h"

#include <cstddef>
#include <set>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/random.h"

namespace lmdbio::load {
namespace {

PlannedBlock BlockAt(uint64_t offset, uint64_t length_bytes) {
  return {{offset, length_bytes}, offset};
}

TEST_CASE("Readers together ask for each chunk once", "[loader][kept]") {
  constexpr uint64_t kFileBytes = 100 * 4096 + 512;
  constexpr uint64_t kChunkBytes = 3 * 4096;
  std::vector<std::byte> memory(FileCache::BytesNeeded(kFileBytes));
  for (const size_t reader_count : {1U, 2U, 3U}) {
    std::vector<FileCache> readers;
    for (size_t i = 0; i < reader_count; ++i) {
      readers.emplace_back(memory, kFileBytes, kChunkBytes, i, reader_count);
    }
    test::Random random(reader_count);
    std::set<uint64_t> wanted;  // chunks
    std::set<uint64_t> read;
    for (int slot = 0; slot < 50; ++slot) {
      std::vector<PlannedBlock> blocks;
      for (int i = 0; i < 3; ++i) {
        const uint64_t page = random.Below(101);
        const uint64_t bytes = page == 100 ? 512 : 4096;
        blocks.push_back(BlockAt(page * 4096, bytes));
        wanted.insert(page / 3);
      }
      for (FileCache& reader : readers) {
        std::vector<Extent> missing;
        reader.TakeMissing(blocks, missing);
        for (const Extent& chunk : missing) {
          REQUIRE(chunk.offset % kChunkBytes == 0);
          REQUIRE(chunk.offset + chunk.length_bytes <= kFileBytes);
          REQUIRE(read.insert(chunk.offset / kChunkBytes).second);
        }
      }
      REQUIRE(read == wanted);
    }
  }
}

TEST_CASE("A chunk that was lost is asked for again", "[loader][kept]") {
  std::vector<std::byte> memory(4 * 4096);
  FileCache file(memory, 4 * 4096, 4096, 0, 1);
  const std::vector<PlannedBlock> blocks = {BlockAt(0, 4 * 4096)};
  std::vector<Extent> missing;
  file.TakeMissing(blocks, missing);
  REQUIRE(missing.size() == 4);
  file.Forget(missing[2]);
  std::vector<Extent> again;
  file.TakeMissing(blocks, again);
  CHECK(again == std::vector<Extent>{{2 * 4096, 4096}});
}

}  // namespace
}  // namespace lmdbio::load
