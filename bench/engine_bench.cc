// Question: how fast does each block engine bring a cold file into memory, in order and in random
// order, through the page cache and around it, compared with one pread of 1 MiB after another?
//
// State: cold. The pages of the file are dropped from the page cache before every repetition (not
// timed); the share that stayed is printed. The time includes opening the file and touching every
// byte. Every way reads every block once, and all sums must agree.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/bench_support.h"
#include "lmdbio/base/unique_fd.h"
#include "lmdbio/file/blocks/block_engine.h"
#include "lmdbio/file/io/read_progress.h"

namespace lmdbio::bench {
namespace {

using file::BlockEngine;
using file::BlockRead;
using file::CachePolicy;
using file::EngineKind;
using file::EngineOptions;

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kMiB = 1 << 20;

struct BenchFile {
  std::string path;
  uint64_t size_bytes = 0;
};

// The file is kept between runs. A run that was interrupted leaves a shorter one, which is written
// again.
BenchFile MakeFile(const BenchOptions& options) {
  const uint64_t size_bytes = options.is_tiny ? 4 * kMiB : 512 * kMiB;
  const std::string path = fmt::format("{}/blocks-{}", options.directory, size_bytes);
  if (!std::filesystem::exists(path) || std::filesystem::file_size(path) != size_bytes) {
    fmt::print("making {}\n", path);
    std::ofstream file(path, std::ios::binary);
    std::vector<std::byte> block(kMiB);
    for (uint64_t offset = 0; offset < size_bytes; offset += kMiB) {
      tools::FillSyntheticValue(1, offset, block);
      file.write(reinterpret_cast<const char*>(block.data()), kMiB);
    }
  }
  return {path, size_bytes};
}

// The offsets of all blocks of the file, each once.
std::vector<uint64_t> Offsets(const BenchFile& file, uint64_t block_bytes, RecordOrder order) {
  std::vector<uint64_t> offsets(file.size_bytes / block_bytes);
  const tools::Permutation shuffle(1, offsets.size());
  for (uint64_t i = 0; i < offsets.size(); ++i) {
    offsets[i] = block_bytes * (order == RecordOrder::kRandom ? shuffle(i) : i);
  }
  return offsets;
}

// Memory for some blocks. Its pages are touched before the time starts. Direct reads need the
// alignment to pages.
class BlockMemory {
 public:
  explicit BlockMemory(uint64_t size_bytes)
      : bytes_(static_cast<std::byte*>(std::aligned_alloc(kPageBytes, size_bytes)), std::free),
        size_bytes_(size_bytes) {
    std::fill_n(bytes_.get(), size_bytes, std::byte{1});
  }
  MutableBytes all() const { return {bytes_.get(), size_bytes_}; }

 private:
  std::unique_ptr<std::byte, void (*)(void*)> bytes_;
  uint64_t size_bytes_;
};

// The outcome of one way of reading: the sum of all words, and the engine's description.
struct EnginePass {
  uint64_t sum = 0;
  file::EngineCounters counters;
};

Result<EnginePass> ReadOneByOne(const std::string& path, const std::vector<uint64_t>& offsets,
                                MutableBytes block) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  EnginePass pass;
  for (const uint64_t offset : offsets) {
    LMDBIO_TRY_VOID(file::ReadFully(fd.get(), {offset, block}));
    pass.sum += SumWords(block);
  }
  return pass;
}

// Keeps as many blocks in flight as fit into `options.memory`.
Result<EnginePass> ReadThroughEngine(const std::string& path, const std::vector<uint64_t>& offsets,
                                     uint64_t block_bytes, const EngineOptions& options) {
  // The tag of a read is the number of its place in the memory. A place gets its next block once
  // its words are summed, so no block is overwritten early.
  LMDBIO_TRY(const std::unique_ptr<BlockEngine> engine, file::OpenBlockEngine(path, options));
  const auto place = [&](uint64_t tag) {
    return options.memory.subspan(tag * block_bytes, block_bytes);
  };
  std::vector<BlockRead> next;
  size_t started = 0;
  const size_t room = options.memory.size() / block_bytes;
  for (; started < std::min(room, offsets.size()); ++started) {
    next.push_back({offsets[started], place(started), started});
  }
  LMDBIO_TRY_VOID(engine->Start(next));
  EnginePass pass;
  while (engine->outstanding() > 0) {
    LMDBIO_TRY(const std::span<file::BlockDone> done, engine->WaitSome());
    for (file::BlockDone& block : done) {
      LMDBIO_TRY_VOID(std::move(block.status));
      pass.sum += SumWords(place(block.tag));
      if (started == offsets.size()) continue;
      const BlockRead read = {offsets[started++], place(block.tag), block.tag};
      LMDBIO_TRY_VOID(engine->Start({&read, 1}));
    }
  }
  pass.counters = engine->counters();
  return pass;
}

// Registers `read` as one row, timed with a cold cache.
void RegisterCold(const std::string& name, const BenchFile& file,
                  const std::shared_ptr<Agreement>& agreement,
                  const std::function<Result<EnginePass>()>& read) {
  const auto run = [=](benchmark::State& state) {
    for (auto _ : state) {
      state.counters["warm share"] = EvictFromCache(file.path);
      const auto begin = std::chrono::steady_clock::now();
      const Result<EnginePass> pass = read();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      if (!pass) {
        state.SkipWithError(pass.error().message().c_str());
        return;
      }
      // SumWords adds words and lengths. Blocks of any size that cover the file once give the same
      // sum.
      agreement->Check(name, pass->sum);
      state.SetIterationTime(took.count());
      const auto size_bytes = static_cast<double>(file.size_bytes);
      state.counters["MB/s"] = size_bytes / 1e6 / took.count();
      state.counters["direct share"] =
          static_cast<double>(pass->counters.direct_bytes) / size_bytes;
    }
  };
  // One pass for each repetition, because the second pass would find the file cached. The time is
  // manual, so that dropping the cache does not count.
  benchmark::RegisterBenchmark(name.c_str(), run)->UseManualTime()->Iterations(1);
}

void RegisterEngine(const std::string& group, const BenchFile& file, RecordOrder order,
                    uint64_t block_bytes, EngineOptions options,
                    const std::shared_ptr<Agreement>& agreement) {
  const std::string name = fmt::format(
      "{}/{} {} KiB, {}, {} deep", group, file::EngineKindName(options.kind), block_bytes >> 10,
      options.cache == CachePolicy::kDirect ? "direct" : "buffered", options.queue_depth);
  const auto memory = std::make_shared<BlockMemory>(options.queue_depth * block_bytes);
  options.memory = memory->all();
  const std::vector<uint64_t> offsets = Offsets(file, block_bytes, order);
  // The row owns the memory that `options` borrows.
  RegisterCold(name, file, agreement, [=, owned = memory, path = file.path] {
    return ReadThroughEngine(path, offsets, block_bytes, options);
  });
}

void RegisterGroup(const std::string& group, const BenchFile& file, RecordOrder order) {
  const auto agreement = std::make_shared<Agreement>();
  const auto block = std::make_shared<BlockMemory>(kMiB);
  const std::vector<uint64_t> offsets = Offsets(file, kMiB, order);
  RegisterCold(group + "/plain pread, 1024 KiB, buffered", file, agreement,
               [=, path = file.path] { return ReadOneByOne(path, offsets, block->all()); });
  for (const uint64_t block_bytes : {64 * uint64_t{1024}, kMiB}) {
    // mmap has no direct reads and no queue.
    RegisterEngine(group, file, order, block_bytes,
                   {EngineKind::kMmap, CachePolicy::kBuffered, 1, {}}, agreement);
    for (const EngineKind kind : {EngineKind::kPread, EngineKind::kUring}) {
      for (const CachePolicy cache : {CachePolicy::kBuffered, CachePolicy::kDirect}) {
        for (const uint32_t depth : {1U, 32U}) {
          RegisterEngine(group, file, order, block_bytes, {kind, cache, depth, {}}, agreement);
        }
      }
    }
  }
}

}  // namespace
}  // namespace lmdbio::bench

int main(int argc, char** argv) {
  using namespace lmdbio::bench;
  const BenchOptions options = ParseOptions(argc, argv);
  const BenchFile file = MakeFile(options);
  RegisterGroup("in order", file, RecordOrder::kSequential);
  RegisterGroup("at random", file, RecordOrder::kRandom);
  return RunAndCompare(argc, argv, options.is_tiny ? 2 : 7);
}
