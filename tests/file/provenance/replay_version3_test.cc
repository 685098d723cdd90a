// Replay of loads into files of data version 3. The installed liblmdb cannot write them, so the
// oracle is a few numbers read from files that LMDB 1.0.1 wrote.
#include <cstdint>
#include <vector>

#include "lmdbio/file/provenance/replay.h"
#include "tests/support/catch.h"

namespace lmdbio::file {

namespace {

constexpr uint64_t kInOneTransaction = ~uint64_t{0};

// FNV-1a over the numbers of all runs.
struct DigestSink : RecordRunSink {
  uint64_t digest = 0xcbf29ce484222325;
  void Mix(uint64_t number) { digest = (digest ^ number) * 0x100000001b3; }
  Status Add(const RecordRun& run) override {
    Mix(run.first_record.value);
    Mix(run.leaf.value);
    for (const Extent& value : run.values) {
      Mix(value.offset);
      Mix(value.length_bytes);
    }
    return {};
  }
};

struct Version3File {
  uint32_t page_size_bytes;
  uint64_t commit_interval_records;
  PutMode put_mode;
  uint32_t value_bytes_min, value_bytes_range;
  uint64_t root, last_page, branch_pages, leaf_pages, overflow_pages;
  uint64_t digest;  // of the runs, as DigestSink computes it
};

}  // namespace

// Goal: the sizes of LMDB 1.0, and its fit test. Every file holds 4000 records, record r with a key
// of 20 + r * r % 11 bytes and a value of value_bytes_min + r * r * 31 / 4 % value_bytes_range
// bytes.
TEST_CASE("Replay places records as LMDB 1.0 does", "[provenance]") {
  const auto file = GENERATE(
      Version3File{4096, 100, PutMode::kDefault, 0, 6000, 1005, 4370, 6, 569, 3785,
                   0xd7801941a4982e50},
      Version3File{4096, 1, PutMode::kAppend, 0, 2100, 2, 1321, 11, 1155, 145, 0xebcb920e48eb516c},
      Version3File{512, 7, PutMode::kDefault, 300, 700, 15, 7698, 49, 572, 7065,
                   0xc2296826269ecef3},
      Version3File{65536, 1000, PutMode::kDefault, 0, 40000, 4, 2047, 1, 1280, 758,
                   0xf8d8730fa62f3ff4},
      Version3File{4096, kInOneTransaction, PutMode::kDefault, 0, 2100, 132, 1754, 15, 1593, 145,
                   0x3cc6a2de0b11fb71});
  std::vector<uint32_t> key_bytes;
  std::vector<uint32_t> value_bytes;
  for (uint64_t r = 0; r < 4000; ++r) {
    key_bytes.push_back(static_cast<uint32_t>(20 + r * r % 11));
    value_bytes.push_back(
        static_cast<uint32_t>(file.value_bytes_min + r * r * 31 / 4 % file.value_bytes_range));
  }
  CAPTURE(file.page_size_bytes, file.commit_interval_records, file.value_bytes_range);

  DigestSink sink;
  const auto totals = Replay(PageFormat(DataVersion::k3, file.page_size_bytes),
                             {.record_count = 4000,
                              .commit_interval_records = file.commit_interval_records,
                              .key_bytes = SizeColumn::Each(key_bytes),
                              .value_bytes = SizeColumn::Each(value_bytes),
                              .put_mode = file.put_mode},
                             sink);

  REQUIRE(totals.has_value());
  CHECK(totals->root.value == file.root);
  CHECK(totals->last_page.value == file.last_page);
  CHECK(totals->branch_pages == file.branch_pages);
  CHECK(totals->leaf_pages == file.leaf_pages);
  CHECK(totals->overflow_pages == file.overflow_pages);
  CHECK(sink.digest == file.digest);
}

}  // namespace lmdbio::file
