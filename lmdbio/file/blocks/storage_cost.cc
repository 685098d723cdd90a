#include "lmdbio/file/blocks/storage_cost.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "lmdbio/base/align.h"

namespace lmdbio::file {
namespace {

// The length of a small read, and the alignment that direct reads need: of storage, not of memory.
constexpr uint64_t kSmallBytes = 4096;
constexpr uint64_t kSmallReads = 32;
constexpr uint64_t kLargeReads = 8;

constexpr size_t kLoneReads = 5;

struct Freed {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using TrialMemory = std::unique_ptr<std::byte, Freed>;

// Aligned, so that direct reads take their usual path; zeroed, because page faults must not count
// as storage. Null: there is no such memory.
TrialMemory ZeroedMemory(uint64_t size_bytes) {
  TrialMemory memory(
      static_cast<std::byte*>(std::aligned_alloc(kSmallBytes, AlignUp(size_bytes, kSmallBytes))));
  if (memory) std::fill_n(memory.get(), size_bytes, std::byte{0});
  return memory;
}

// An engine of its own, so that the trial reads do not mix with blocks in flight.
Result<std::unique_ptr<BlockEngine>> OpenTrialEngine(const std::string& path,
                                                     const EngineOptions& options) {
  EngineOptions own = options;
  own.memory = {};
  return OpenBlockEngine(path, own);
}

// Reads `count` pieces at random offsets, all at once. Returns the mean seconds of one read. The
// reads overlap, as those of the loader do. So the mean is the time that one more read adds.
Result<double> TimeReads(BlockEngine& engine, uint64_t count, uint64_t length_bytes,
                         uint64_t file_bytes, MutableBytes memory, std::mt19937_64& random) {
  std::vector<BlockRead> reads;
  const uint64_t places = std::max<uint64_t>(1, (file_bytes - length_bytes) / kSmallBytes);
  for (uint64_t i = 0; i < count; ++i) {
    reads.push_back(
        {random() % places * kSmallBytes, memory.subspan(i * length_bytes, length_bytes), i});
  }
  const auto start = std::chrono::steady_clock::now();
  LMDBIO_TRY_VOID(engine.Start(reads));
  while (engine.outstanding() > 0) {
    LMDBIO_TRY(const auto done, engine.WaitSome());
    for (const BlockDone& block : done) {
      if (!block.status) return Fail(block.status.error().Copy());
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return took.count() / static_cast<double>(count);
}

// Small reads give the cost of a request, large reads the cost of a byte.
Result<StorageCost> TimeBothSizes(BlockEngine& engine, uint64_t large_bytes, uint64_t file_bytes,
                                  MutableBytes memory) {
  // Each process reads at other offsets. Otherwise the second would read from the page cache.
  std::mt19937_64 random(std::random_device{}());
  StorageCost cost;
  LMDBIO_TRY(cost.request_s,
             TimeReads(engine, kSmallReads, kSmallBytes, file_bytes, memory, random));
  LMDBIO_TRY(const double large_s,
             TimeReads(engine, kLargeReads, large_bytes, file_bytes, memory, random));
  cost.byte_s = large_s / static_cast<double>(large_bytes);
  return cost;
}

}  // namespace

Result<StorageCost> MeasureStorageCost(const std::string& path, const EngineOptions& options,
                                       uint64_t file_bytes, uint64_t block_bytes,
                                       std::vector<std::string>* notes) {
  const uint64_t large_bytes = std::min(block_bytes, file_bytes / kSmallBytes * kSmallBytes);
  if (large_bytes == 0) return kAssumedCost;
  const uint64_t memory_bytes = std::max(kSmallReads * kSmallBytes, kLargeReads * large_bytes);
  const TrialMemory memory = ZeroedMemory(memory_bytes);
  if (!memory) return Fail(ErrorCode::kResourceExhausted, path + ": no memory for trial reads");
  LMDBIO_TRY(const auto engine, OpenTrialEngine(path, options));
  const MutableBytes bytes(memory.get(), memory_bytes);
  Result<StorageCost> cost = TimeBothSizes(*engine, large_bytes, file_bytes, bytes);
  if (notes != nullptr) *notes = engine->TakeNotes();
  return cost;
}

Result<double> MeasureReadSeconds(const std::string& path, const EngineOptions& options,
                                  uint64_t file_bytes) {
  if (file_bytes < kSmallBytes) return 0;
  const TrialMemory memory = ZeroedMemory(kSmallBytes);
  if (!memory) return Fail(ErrorCode::kResourceExhausted, path + ": no memory for trial reads");
  LMDBIO_TRY(const auto engine, OpenTrialEngine(path, options));
  std::mt19937_64 random(std::random_device{}());
  std::array<double, kLoneReads> times_s;
  for (double& read_s : times_s) {
    LMDBIO_TRY(read_s,
               TimeReads(*engine, 1, kSmallBytes, file_bytes, {memory.get(), kSmallBytes}, random));
  }
  std::nth_element(times_s.begin(), times_s.begin() + kLoneReads / 2, times_s.end());
  return times_s[kLoneReads / 2];
}

}  // namespace lmdbio::file
