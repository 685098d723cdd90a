// Goal: every source returns exactly the bytes of the file, at every edge, in any order and to
// several threads at once. It reports an error if the file ends before the extent. Method: a file
// of random bytes that is larger than the internal buffers. The oracle is its content.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lmdbio/base/unique_fd.h"
#include "lmdbio/file/source/file_source.h"
#include "lmdbio/file/source/map_source.h"
#include "lmdbio/file/source/read_ahead_source.h"
#include "tests/support/catch.h"
#include "tests/support/check_failure.h"
#include "tests/support/file_bytes.h"
#include "tests/support/good.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::file {
namespace {

namespace fs = std::filesystem;
using test::AsText;
using test::TempDir;

// Sizes in ReadAheadSource: its buffer, the largest read that it serves from the buffer, and the
// largest gap within a pass. They only choose the edges to test.
constexpr uint64_t kWindowBytes = 256 << 10;
constexpr uint64_t kServedBytesMax = kWindowBytes / 2;
constexpr uint64_t kSkipBytesMax = 64 << 10;

constexpr uint64_t kOddFileBytes = 3 * kWindowBytes + 4097;

template <typename Source>
std::unique_ptr<ByteSource> Open(const fs::path& path) {
  auto source = Source::Open(path);
  if (!source) throw std::runtime_error(source.error().message());
  return std::move(*source);
}

struct SourceKind {
  const char* name;
  std::function<std::unique_ptr<ByteSource>(const fs::path&)> open;
};

const std::vector<SourceKind>& SourceKinds() {
  static const std::vector<SourceKind> kinds = {{"FileSource", Open<FileSource>},
                                                {"ReadAheadSource", Open<ReadAheadSource>},
                                                {"MapSource", Open<MapSource>}};
  return kinds;
}

// A file and its content.
class TestFile {
 public:
  explicit TestFile(uint64_t size_bytes = kOddFileBytes) {
    test::Random random(1);
    content_ = random.BytesOf(size_bytes);
    test::WriteWholeFile(path(), test::AsBytes(content_));
  }

  fs::path path() const { return dir_.path() / "file"; }
  const std::string& content() const { return content_; }
  bool Holds(Extent extent) const {
    return extent.offset <= content_.size() &&
           extent.length_bytes <= content_.size() - extent.offset;
  }
  std::string_view At(Extent extent) const {
    return std::string_view(content_).substr(extent.offset, extent.length_bytes);
  }

 private:
  TempDir dir_;
  std::string content_;
};

// Whether `source` returns the content of the file.
bool ReadsRight(const ByteSource& source, const TestFile& file, Extent extent) {
  std::vector<std::byte> scratch(extent.length_bytes);
  const Result<Bytes> bytes = source.Read(extent, scratch);
  if (!file.Holds(extent)) return !bytes && bytes.error().code() == ErrorCode::kCorruption;
  return bytes && AsText(*bytes) == file.At(extent);
}

std::vector<Extent> EdgeExtents() {
  const std::vector<uint64_t> edges = {0,
                                       4096,
                                       kSkipBytesMax,
                                       kServedBytesMax,
                                       kWindowBytes,
                                       kWindowBytes + kSkipBytesMax,
                                       2 * kWindowBytes,
                                       kOddFileBytes};
  std::vector<uint64_t> numbers;
  for (const uint64_t edge : edges) {
    if (edge > 0) numbers.push_back(edge - 1);
    numbers.push_back(edge);
    numbers.push_back(edge + 1);
  }
  std::vector<Extent> extents;
  for (const uint64_t offset : numbers) {
    for (const uint64_t length_bytes : numbers) {
      // An empty extent beyond the end may succeed or fail.
      if (length_bytes == 0 && offset > kOddFileBytes) continue;
      extents.push_back({offset, length_bytes});
    }
  }
  return extents;
}

TEST_CASE("Every source reads extents at every edge", "[io][source]") {
  const TestFile file;
  for (const SourceKind& kind : SourceKinds()) {
    const std::unique_ptr<ByteSource> used = kind.open(file.path());
    for (const Extent& extent : EdgeExtents()) {
      INFO(kind.name << " offset " << extent.offset << " length " << extent.length_bytes);
      CHECK(ReadsRight(*used, file, extent));
      CHECK(ReadsRight(*kind.open(file.path()), file, extent));
    }
  }
}

TEST_CASE("Every source reads in any order", "[io][source]") {
  const TestFile file;
  for (const SourceKind& kind : SourceKinds()) {
    const std::unique_ptr<ByteSource> source = kind.open(file.path());
    test::Random random(7);
    uint64_t offset = 0;
    for (int step = 0; step < 3000; ++step) {
      const uint64_t length_bytes = random.Below(random.Below(10) == 0 ? kWindowBytes : 5000);
      // The next extent continues the last, overlaps it, skips a little, or is anywhere.
      switch (random.Below(6)) {
        case 0:
          offset = random.Below(kOddFileBytes);
          break;
        case 1:
          offset -= std::min(offset, random.Below(kWindowBytes));
          break;
        case 2:
          offset += random.Below(2 * kSkipBytesMax);
          break;
        default:
          break;
      }
      if (step % 500 == 0) source->Advise(AccessPattern::kSequential);
      if (step % 500 == 250) source->Advise(AccessPattern::kRandom);
      INFO(kind.name << " step " << step << " offset " << offset << " length " << length_bytes);
      REQUIRE(ReadsRight(*source, file, {offset, length_bytes}));
      offset = offset + length_bytes > kOddFileBytes ? 0 : offset + length_bytes;
    }
  }
}

TEST_CASE("Every source returns its name, its size and its counters", "[io][source]") {
  const TestFile file;
  for (const SourceKind& kind : SourceKinds()) {
    INFO(kind.name);
    const std::unique_ptr<ByteSource> source = kind.open(file.path());
    CHECK(source->name() == file.path());
    CHECK(source->SizeBytes() == kOddFileBytes);
    CHECK(source->counters().request_count == 0);
    std::vector<std::byte> scratch(kServedBytesMax + 1);
    REQUIRE(source->Read({5, scratch.size()}, scratch));  // too large to be read ahead
    CHECK(source->counters().request_count == 1);
    CHECK(source->counters().bytes == scratch.size());
  }
}

TEST_CASE("Every source reads an empty file", "[io][source]") {
  const TestFile file(0);
  for (const SourceKind& kind : SourceKinds()) {
    INFO(kind.name);
    const std::unique_ptr<ByteSource> source = kind.open(file.path());
    CHECK(source->SizeBytes() == 0);
    CHECK(ReadsRight(*source, file, {0, 0}));
    CHECK(ReadsRight(*source, file, {0, 1}));
    source->Advise(AccessPattern::kSequential);
  }
}

TEST_CASE("Prefetch accepts any extent", "[io][source]") {
  const TestFile file(GENERATE(uint64_t{0}, kOddFileBytes));
  for (const SourceKind& kind : SourceKinds()) {
    INFO(kind.name);
    const std::unique_ptr<ByteSource> source = kind.open(file.path());
    for (const uint64_t offset : {uint64_t{0}, kOddFileBytes - 1, kOddFileBytes, ~uint64_t{0}}) {
      for (const uint64_t length_bytes : {uint64_t{0}, uint64_t{1}, uint64_t{4096}, ~uint64_t{0}}) {
        source->Prefetch({offset, length_bytes});
      }
    }
    CHECK(source->counters().bytes == 0);
    CHECK(ReadsRight(*source, file, {0, file.content().size()}));
  }
}

TEST_CASE("Every source names the file that cannot be opened", "[io][source]") {
  const TempDir dir;
  const fs::path missing = dir.path() / "missing";
  for (const SourceKind& kind : SourceKinds()) {
    INFO(kind.name);
    CHECK_THROWS_WITH(kind.open(missing),
                      missing.string() + ": cannot be opened: No such file or directory");
  }
  CHECK(FileSource::Open(missing).error().code() == ErrorCode::kNotFound);
  CHECK(ReadAheadSource::Open(missing).error().code() == ErrorCode::kNotFound);
  CHECK(MapSource::Open(missing).error().code() == ErrorCode::kNotFound);
}

// Reads `extents` into one buffer with ReadMany, and compares it with the file.
bool ReadsManyRight(const ByteSource& source, const TestFile& file,
                    const std::vector<Extent>& extents) {
  uint64_t total_bytes = 0;
  for (const Extent& extent : extents) total_bytes += extent.length_bytes;
  std::vector<std::byte> buffer(total_bytes);
  std::vector<ReadRequest> requests;
  std::string expected;
  for (const Extent& extent : extents) {
    requests.push_back(
        {extent.offset, MutableBytes(buffer).subspan(expected.size(), extent.length_bytes)});
    expected += file.At(extent);
  }
  return source.ReadMany(requests) && AsText(buffer) == expected;
}

TEST_CASE("Every source reads any number of requests at once", "[io][source]") {
  const TestFile file;
  for (const SourceKind& kind : SourceKinds()) {
    const std::unique_ptr<ByteSource> source = kind.open(file.path());
    // Fewer and more requests than a ring is set up for, and more than its depth.
    for (const uint64_t count : {0U, 1U, 3U, 4U, FileSource::kReadsInFlight, 1000U}) {
      INFO(kind.name << " " << count << " requests");
      test::Random random(count + 1);
      std::vector<Extent> scattered(count);
      for (Extent& extent : scattered) {
        extent.offset = random.Below(kOddFileBytes);
        extent.length_bytes = random.Below(std::min<uint64_t>(3000, kOddFileBytes - extent.offset));
      }
      CHECK(ReadsManyRight(*source, file, scattered));
      CHECK(ReadsManyRight(*source, file, std::vector<Extent>(count, {kOddFileBytes - 100, 100})));
      CHECK(ReadsManyRight(*source, file, std::vector<Extent>(count, {kOddFileBytes, 0})));
    }
    INFO(kind.name);
    CHECK(ReadsManyRight(*source, file, std::vector<Extent>(5, {0, kOddFileBytes})));
  }
}

TEST_CASE("Every source fails many requests when the file ends before one", "[io][source]") {
  const TestFile file;
  for (const SourceKind& kind : SourceKinds()) {
    const std::unique_ptr<ByteSource> source = kind.open(file.path());
    for (const size_t count : {1U, 3U, 4U, 1000U}) {
      for (const size_t wrong : {size_t{0}, count / 2, count - 1}) {
        INFO(kind.name << " request " << wrong << " of " << count);
        std::vector<std::byte> buffer(count * 16);
        std::vector<ReadRequest> requests;
        for (size_t i = 0; i < count; ++i) {
          requests.push_back(
              {i == wrong ? kOddFileBytes - 15 : 16 * i, MutableBytes(buffer).subspan(16 * i, 16)});
        }
        const Status read = source->ReadMany(requests);
        REQUIRE_FALSE(read.has_value());
        CHECK(read.error().code() == ErrorCode::kCorruption);
        requests[wrong].offset = kOddFileBytes - 16;
        CHECK(source->ReadMany(requests).has_value());
      }
    }
  }
}

TEST_CASE("A truncated file gives an error, not a signal", "[io][source]") {
  for (const SourceKind& kind : SourceKinds()) {
    if (kind.name == std::string("MapSource")) continue;  // below
    INFO(kind.name);
    const TestFile file;
    const std::unique_ptr<ByteSource> source = kind.open(file.path());
    std::vector<std::byte> scratch(4096);
    REQUIRE(source->Read({0, 4096}, scratch));
    constexpr uint64_t kLeftBytes = 2 * kWindowBytes;
    fs::resize_file(file.path(), kLeftBytes);
    CHECK(source->SizeBytes() == kLeftBytes);
    CHECK(ReadsRight(*source, file, {kLeftBytes - 4096, 4096}));
    for (const uint64_t offset : {kLeftBytes - 1, kLeftBytes, kOddFileBytes - 4096}) {
      const Result<Bytes> bytes = source->Read({offset, 4096}, scratch);
      REQUIRE_FALSE(bytes.has_value());
      CHECK(bytes.error().code() == ErrorCode::kCorruption);
    }
    const ReadRequest beyond{kLeftBytes, scratch};
    CHECK_FALSE(source->ReadMany(std::vector<ReadRequest>(200, beyond)).has_value());
  }
}

TEST_CASE("A file that has grown can be read to its new end", "[io][source]") {
  for (const SourceKind& kind : SourceKinds()) {
    INFO(kind.name);
    const TestFile file(5000);
    const std::unique_ptr<ByteSource> source = kind.open(file.path());
    REQUIRE(ReadsRight(*source, file, {4900, 100}));
    REQUIRE(ReadsRight(*source, file, {4900, 101}));
    fs::resize_file(file.path(), 6000);
    const bool is_map = kind.name == std::string("MapSource");  // keeps the size at its opening
    CHECK(source->SizeBytes() == (is_map ? 5000 : 6000));
    std::vector<std::byte> scratch(1100);
    const Result<Bytes> bytes = source->Read({4900, 1100}, scratch);
    REQUIRE(bytes.has_value() == !is_map);
    if (!is_map) {
      CHECK(AsText(*bytes) == std::string(file.At({4900, 100})) + std::string(1000, '\0'));
    }
  }
}

TEST_CASE("MapSource returns the current size of a shrunken file", "[io][source]") {
  const TestFile file;
  const std::unique_ptr<ByteSource> source = Open<MapSource>(file.path());
  fs::resize_file(file.path(), 4096);
  CHECK(source->SizeBytes() == 4096);
}

TEST_CASE("MapSource reads zeros where a file was truncated, and says so", "[io][source]") {
  const TestFile file;
  const auto source = test::Good(MapSource::Open(file.path()));
  const Bytes before = test::Good(source->Read({kOddFileBytes - 4096, 4096}, {}));
  fs::resize_file(file.path(), 2 * kWindowBytes);
  CHECK(ReadsRight(*source, file, {2 * kWindowBytes - 4096, 4096}));
  CHECK(source->CheckWhole());
  CHECK(AsText(before) == std::string(4096, '\0'));
  const Result<Bytes> after = source->Read({0, 4096}, {});
  REQUIRE_FALSE(after.has_value());
  CHECK(after.error().code() == ErrorCode::kStale);
  CHECK(after.error().message() == source->CheckWhole().error().message());
}

TEST_CASE("MapSource accepts hints for any extent, also beyond the file", "[io][source]") {
  const TestFile file;
  const auto source = MapSource::Open(file.path());
  REQUIRE(source);
  const uint64_t huge = uint64_t{1} << 62;
  for (const Extent& extent :
       {Extent{0, 0}, Extent{0, kOddFileBytes}, Extent{5000, 100'000}, Extent{kOddFileBytes - 1, 1},
        Extent{kOddFileBytes, 1}, Extent{kOddFileBytes - 7, huge}, Extent{huge, huge}}) {
    (*source)->Expect(extent);
    (*source)->Await(extent);
    (*source)->Prefetch(extent);
  }
  CHECK(ReadsRight(**source, file, {0, kOddFileBytes}));
  std::filesystem::resize_file(file.path(), 0);
  (*source)->Expect({0, kOddFileBytes});
  (*source)->Await({0, kOddFileBytes});  // must touch no page
}

TEST_CASE("ReadAheadSource takes one large read for many small ones", "[io][source]") {
  const TestFile file;
  const std::unique_ptr<ByteSource> source = Open<ReadAheadSource>(file.path());
  uint64_t reads = 0;
  for (uint64_t offset = 0; offset + 4096 <= kOddFileBytes; offset += 4096, ++reads) {
    REQUIRE(ReadsRight(*source, file, {offset, 4096}));
  }
  // One read to start the pass, then one for each buffer.
  // The first 128 KiB are never buffered: 32 reads of a page.
  CHECK(source->counters().request_count <= 2 + 32 + kOddFileBytes / kWindowBytes);
  CHECK(reads > 100);
}

TEST_CASE("A failed check of the library names its file by the path in the tree", "[io][source]") {
  const TestFile file;
  const std::unique_ptr<ByteSource> source = Open<FileSource>(file.path());
  std::vector<std::byte> scratch(9);
  const std::string line = test::LineOfFailedCheck([&] {
    static_cast<void>(source->Read({0, 10}, scratch));
  });
  INFO(line);
  CHECK(line.find("lmdbio/file/source/file_source.cc:") == 0);
}

TEST_CASE("Several threads read one source", "[io][source][threads]") {
  const TestFile file;
  for (const SourceKind& kind : SourceKinds()) {
    INFO(kind.name);
    const std::unique_ptr<ByteSource> source = kind.open(file.path());
    source->Advise(AccessPattern::kSequential);
    std::atomic<int> wrong_count{0};
    const auto pass = [&](uint64_t seed) {
      test::Random random(seed);
      for (uint64_t offset = 0; offset < kOddFileBytes; offset += random.Below(20000)) {
        const uint64_t length_bytes = std::min(random.Below(9000), kOddFileBytes - offset);
        if (!ReadsRight(*source, file, {offset, length_bytes})) ++wrong_count;
        if (seed % 2 == 0 &&
            !ReadsManyRight(*source, file, std::vector<Extent>(6, {offset, length_bytes}))) {
          ++wrong_count;
        }
      }
    };
    std::vector<std::thread> threads;
    for (uint64_t seed = 0; seed < 4; ++seed) threads.emplace_back(pass, seed);
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong_count == 0);
  }
}

}  // namespace
}  // namespace lmdbio::file
