// Goal: loaders on several hosts read the file once together, and none needs another one to go on.
// Oracle: liblmdb's cursor, for the values; the size of the file, for the bytes.
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "lmdbio/base/check.h"
#include "lmdbio/load/loader/loader.h"
#include "lmdbio/load/loader/reader_links.h"
#include "lmdbio/ranks/group/thread_group.h"
#include "tests/fixtures/lmdb_oracle.h"
#include "tests/load/loader/stream_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/good.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

using load::ExchangeUse;
using load::Loader;
using load::LoaderOptions;

constexpr uint64_t kRecordCount = 600;
constexpr uint64_t kRecordsPerHost = 2;  // of a batch
constexpr uint64_t kAllBatches = ~uint64_t{0};

LoaderOptions OptionsFor(int host_count, ExchangeUse exchange) {
  LoaderOptions options;
  options.strategy = load::Strategy::kScan;
  options.global_batch_size = static_cast<uint64_t>(host_count) * kRecordsPerHost;
  options.max_batches = kRecordCount / options.global_batch_size;
  options.block_bytes = 64 << 10;
  options.cache = file::CachePolicy::kDirect;
  options.exchange = exchange;
  return options;
}

void Fill(TinyDb& db) {
  for (uint64_t i = 0; i < kRecordCount; ++i) {
    db.Put(std::to_string(1000 + i), std::string(3080, static_cast<char>('a' + i % 26)));
  }
  db.Commit();
}

// The records that all hosts together got, and the bytes that they read.
struct Together {
  std::mutex mutex;
  std::map<std::string, std::string> records;
  uint64_t read_bytes = 0;
  std::vector<std::string> engines;
};

// Host 0 closes its loader after `first_batches` batches.
void Read(int host_count, const std::filesystem::path& path, const LoaderOptions& options,
          uint64_t first_batches, Together& together) {
  ranks::RunAsThreads({host_count, 1}, [&](ranks::Group& group) {
    auto loader = Good(Loader::Open(group, path.string(), options));
    std::map<std::string, std::string> mine;
    for (uint64_t batch = 0; group.rank() != 0 || batch < first_batches; ++batch) {
      if (!Good(loader->Next())) break;
      const load::Batch& got = loader->batch();
      for (size_t i = 0; i < got.record_count(); ++i) {
        mine.emplace(AsText(got.key(i)), AsText(got.value(i)));
      }
    }
    {
      const std::lock_guard lock(together.mutex);
      together.records.insert(mine.begin(), mine.end());
      together.read_bytes += loader->counters().bytes_read;
      together.engines.push_back(loader->Describe());
    }
    // The other loaders close together, because what a closed one has read is read again.
    if (group.rank() == 0 && first_batches != kAllBatches) loader.reset();
    LMDBIO_CHECK(group.Barrier().has_value());
  });
}

TEST_CASE("Many readers exchange in groups of neighbours of about equal size",
          "[loader][exchange]") {
  for (const int reader_count : {1, 2, 63, 64, 65, 128, 129, 1000}) {
    CAPTURE(reader_count);
    std::map<int, int> sizes;
    int last = 0;
    for (int reader = 0; reader < reader_count; ++reader) {
      const int group = load::ExchangeGroupOf(reader, reader_count);
      CHECK(group >= last);
      last = group;
      ++sizes[group];
    }
    const int least = reader_count / static_cast<int>(sizes.size());
    for (const auto& [group, size] : sizes) {
      CHECK(size >= least);
      CHECK(size <= least + 1);
      CHECK(size <= load::kExchangeReadersMax);
    }
  }
}

TEST_CASE("Hosts that exchange read each byte about once", "[loader][exchange]") {
  const TempDir dir;
  TinyDb db(dir.path());
  Fill(db);
  const uint64_t file_bytes = std::filesystem::file_size(db.data_file());
  const int host_count = 4;
  Together alone;
  Read(host_count, db.data_file(), OptionsFor(host_count, ExchangeUse::kOff), kAllBatches, alone);
  Together together;
  Read(host_count, db.data_file(), OptionsFor(host_count, ExchangeUse::kOn), kAllBatches, together);
  CHECK(together.records.size() == kRecordCount);
  CHECK((together.records == alone.records));
  for (const std::string& engine : together.engines) {
    CHECK(engine.find("exchange of 4 readers") != std::string::npos);
  }
  for (const std::string& engine : alone.engines) {
    CHECK(engine.find("exchange") == std::string::npos);
  }
  // The walk over the leaf pages, and one pass over the pages of the records.
  CHECK(together.read_bytes < file_bytes + file_bytes / 5);
  CHECK(together.read_bytes > file_bytes / 2);  // chunks after a host's last block are not counted
}

TEST_CASE("A host that closes its loader early stops nobody", "[loader][exchange]") {
  const TempDir dir;
  TinyDb db(dir.path());
  Fill(db);
  const int host_count = GENERATE(2, 5);
  Together together;
  Read(host_count, db.data_file(), OptionsFor(host_count, ExchangeUse::kOn), 3, together);
  const uint64_t of_others =
      kRecordCount / static_cast<uint64_t>(host_count) * static_cast<uint64_t>(host_count - 1);
  CHECK(together.records.size() == of_others + 3 * kRecordsPerHost);
  for (const auto& [key, value] : together.records) {
    const uint64_t number = std::stoull(key) - 1000;
    REQUIRE(value == std::string(3080, static_cast<char>('a' + number % 26)));
  }
}

}  // namespace
}  // namespace lmdbio::test
