#include "bench/loader/bench_raw.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <random>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/align.h"
#include "lmdbio/base/errno_error.h"
#include "lmdbio/base/unique_fd.h"
#include "lmdbio/ranks/net/sleeping_barrier.h"
#include "lmdbio/ranks/shm/anonymous_memory.h"
#include "lmdbio/ranks/shm/huge_pages.h"

namespace lmdbio::tools {
namespace {

// The figures of one reader.
constexpr uint64_t kBufferBytesMax = uint64_t{1} << 30;

// The number of a rank among the readers of the job.
struct Role {
  int index = -1;  // -1: it does not read
  int count = 0;
};

// The transfers of one reader, in the order of their reads.
struct RawPart {
  std::vector<Extent> transfers;
  uint64_t bytes = 0;
};

// Collective.
Result<Role> FindRole(ranks::Group& group, const ranks::Group& host, uint32_t readers_per_host) {
  // Hosts may have different numbers of ranks, so each rank tells whether it reads. Readers are
  // then numbered in rank order, and hosts with ranks in sequence read adjacent parts.
  const bool reads = static_cast<uint32_t>(host.rank()) < readers_per_host;
  LMDBIO_TRY(const auto all, group.AllGather(std::as_bytes(std::span(&reads, 1))));
  Role role;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (all[static_cast<size_t>(rank)] == std::byte{0}) continue;
    if (rank == group.rank()) role.index = role.count;
    ++role.count;
  }
  return role;
}

RawPart PartOf(const RawBenchOptions& request, uint64_t total_bytes, const Role& role) {
  RawPart part;
  if (role.index < 0) return part;
  const uint64_t transfers = (total_bytes + request.transfer_bytes - 1) / request.transfer_bytes;
  const auto readers = static_cast<uint64_t>(role.count);
  const auto index = static_cast<uint64_t>(role.index);
  // Parts differ by one transfer at most. The last transfer of the file may be shorter.
  const uint64_t first = transfers * index / readers;
  const uint64_t end = transfers * (index + 1) / readers;
  for (uint64_t i = first; i < end; ++i) {
    const uint64_t offset = i * request.transfer_bytes;
    part.transfers.push_back({offset, std::min(request.transfer_bytes, total_bytes - offset)});
  }
  if (request.is_random) {
    // A fixed seed: all engines and all repeated runs read the same places in the same order.
    std::mt19937_64 random(index + 1);
    std::shuffle(part.transfers.begin(), part.transfers.end(), random);
    const uint64_t sample = (request.sample_bytes / readers) / request.transfer_bytes;
    if (request.sample_bytes > 0 && sample < part.transfers.size()) part.transfers.resize(sample);
  }
  for (const Extent& transfer : part.transfers) part.bytes += transfer.length_bytes;
  return part;
}

// Reads into a few buffers in rotation, so that the memory is small and stays in the cache.
Status ReadPart(file::BlockEngine& engine, const RawPart& part, MutableBytes memory,
                const RawBenchOptions& request) {
  const size_t buffers = memory.size() / request.transfer_bytes;
  std::vector<uint64_t> free_buffers(buffers);
  std::iota(free_buffers.begin(), free_buffers.end(), 0);
  std::vector<file::BlockRead> reads;
  // Every free buffer starts a read before the loop waits, so the queue stays full to its depth.
  // The loop ends after the last read has completed.
  for (size_t next = 0; next < part.transfers.size() || engine.outstanding() > 0;) {
    reads.clear();
    while (next < part.transfers.size() && !free_buffers.empty()) {
      const uint64_t buffer = free_buffers.back();
      free_buffers.pop_back();
      const Extent& transfer = part.transfers[next++];
      reads.push_back({transfer.offset,
                       memory.subspan(buffer * request.transfer_bytes, transfer.length_bytes),
                       buffer});
    }
    LMDBIO_TRY_VOID(engine.Start(reads));
    LMDBIO_TRY(const auto done, engine.WaitSome());
    for (const file::BlockDone& block : done) {
      // The engine ends its other reads when it is destroyed, and MeasureRaw destroys it before the
      // memory.
      if (!block.status) return Fail(block.status.error().Copy());
      free_buffers.push_back(block.tag);
    }
  }
  return {};
}

// Whether a plain loop of pread replaces the engine, which would hand each read to a thread and
// back. That costs more than a small read from the page cache (dissertation 5.1.1).
bool IsPlainLoop(const RawBenchOptions& request) {
  return request.engine == file::EngineKind::kPread && request.queue_depth == 1 &&
         request.cache == file::CachePolicy::kBuffered;
}

// Reads one transfer after the other in the calling thread. Returns the number of calls of pread.
Result<uint64_t> ReadInThisThread(const std::string& path, const RawPart& part,
                                  MutableBytes memory) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return Fail(ErrnoError(errno, path, "cannot be opened"));
  uint64_t calls = 0;
  for (const Extent& transfer : part.transfers) {
    for (uint64_t done = 0; done < transfer.length_bytes;) {
      const ssize_t got = ::pread(file.get(), memory.data() + done, transfer.length_bytes - done,
                                  static_cast<off_t>(transfer.offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Fail(ErrnoError(errno, path, "cannot be read"));
      if (got == 0) {
        return Fail(
            ErrorCode::kCorruption,
            fmt::format("{}: the file ends at byte {}, before byte {}; it has been cut "
                        "short meanwhile",
                        path, transfer.offset + done, transfer.offset + transfer.length_bytes));
      }
      done += static_cast<uint64_t>(got);
      ++calls;
    }
  }
  return calls;
}

// Reads the part of this rank. Returns the number of requests.
Result<uint64_t> Read(file::BlockEngine& engine, const RawPart& part, MutableBytes memory,
                      const RawBenchOptions& request) {
  if (IsPlainLoop(request)) return ReadInThisThread(request.data_path, part, memory);
  LMDBIO_TRY_VOID(ReadPart(engine, part, memory, request));
  return engine.counters().request_count;
}

// Memory for the transfers in flight of this rank.
struct Buffers {
  std::unique_ptr<ranks::SharedMemory> memory;
  MutableBytes mine;
  std::string words;  // for the report
};

// The first touch of a page allocates it. That happens here, before the clock starts, and on the
// rank that reads into it.
void Touch(Buffers& buffers, RawMemory kind) {
  const MutableBytes mine = buffers.mine;
  ::madvise(mine.data(), mine.size(), kind == RawMemory::kSmall ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
  if (kind != RawMemory::kSmall) {
    std::vector<std::byte> states(ranks::HugePages::StateBytes(mine.size()));
    ranks::HugePages pages(mine, states, {});
    pages.Prepare({0, mine.size()});
  }
  std::memset(mine.data(), 0, mine.size());
  const double huge = static_cast<double>(ranks::MappedHugeBytes(mine));
  buffers.words = fmt::format("{} memory, {:.0f} % in huge pages",
                              kind == RawMemory::kWindow ? "shared" : "private",
                              100 * std::min(1.0, huge / static_cast<double>(mine.size())));
}

// Every rank computes the same size, as the collective call for shared memory requires. The part of
// each rank begins and ends with a huge page.
Result<Buffers> AllocateBuffers(ranks::Group& host, const RawBenchOptions& request,
                                uint64_t total_bytes, bool is_reader) {
  const uint64_t transfers = (total_bytes + request.transfer_bytes - 1) / request.transfer_bytes;
  const uint64_t count =
      std::clamp<uint64_t>(std::min<uint64_t>(request.queue_depth, transfers), 1,
                           std::max<uint64_t>(1, kBufferBytesMax / request.transfer_bytes));
  const uint64_t size_bytes = AlignUp(count * request.transfer_bytes, ranks::HugePages::kPageBytes);
  Buffers buffers;
  if (request.memory == RawMemory::kWindow) {
    LMDBIO_TRY(buffers.memory,
               host.AllocateShared(size_bytes * static_cast<uint64_t>(host.size())));
    buffers.mine = buffers.memory->bytes().subspan(size_bytes * static_cast<uint64_t>(host.rank()),
                                                   size_bytes);
  } else {
    auto memory = is_reader ? ranks::AllocateAnonymous(size_bytes) : ranks::AllocateAnonymous(0);
    LMDBIO_TRY(buffers.memory, ranks::ForAll(host, std::move(memory)));
    buffers.mine = buffers.memory->bytes();
  }
  if (is_reader) Touch(buffers, request.memory);
  return buffers;
}

}  // namespace

Result<RawResult> MeasureRaw(ranks::Group& group, const RawBenchOptions& request) {
  const auto prepare = [&]() -> Result<uint64_t> {
    std::error_code failed;
    const uint64_t file_bytes = std::filesystem::file_size(request.data_path, failed);
    if (failed) return Fail(ErrnoError(failed.value(), request.data_path, "cannot be opened"));
    return request.total_bytes == 0 ? file_bytes : std::min(request.total_bytes, file_bytes);
  };
  Result<uint64_t> total = prepare();
  LMDBIO_TRY_VOID(ranks::Agree(group, total ? Status() : Fail(std::move(total).error())));
  RawResult result;
  LMDBIO_TRY(result.cache_words, PrepareCache(group, request.cache_state, request.data_path));
  LMDBIO_TRY(const auto host, group.SplitByHost());
  LMDBIO_TRY(const Role role, FindRole(group, *host, request.readers_per_host));
  const RawPart part = PartOf(request, *total, role);
  LMDBIO_TRY(const Buffers buffers,
             AllocateBuffers(*host, request, *total, !part.transfers.empty()));
  const MutableBytes buffer = buffers.mine;
  result.memory_words = buffers.words;
  Result<std::unique_ptr<file::BlockEngine>> engine = file::OpenBlockEngine(
      request.data_path, {request.engine, request.cache, request.queue_depth, buffer});
  LMDBIO_TRY_VOID(ranks::Agree(group, engine ? Status() : Fail(std::move(engine).error())));
  LMDBIO_TRY(const auto barrier, ranks::SleepingBarrier::Create(group));
  // All readers start together, because they share the storage. The time of each ends before the
  // barrier, so the slowest reader counts and no wait does.
  LMDBIO_TRY_VOID(group.Barrier());
  const auto start = std::chrono::steady_clock::now();
  Result<uint64_t> read = Read(**engine, part, buffer, request);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  const uint64_t requests = read ? *read : 0;
  // A rank that waits in MPI takes processor time from the ranks that read.
  LMDBIO_TRY_VOID(
      ranks::Agree(group, barrier->Meet(read ? Status() : Fail(std::move(read).error()))));
  struct Mine {
    double seconds;
    uint64_t bytes, requests;
  } mine{took.count(), part.bytes, requests};
  LMDBIO_TRY(const auto all, group.AllGather(std::as_bytes(std::span(&mine, 1))));
  result.readers = role.count;
  for (int rank = 0; rank < group.size(); ++rank) {
    Mine one{};
    std::memcpy(&one, all.data() + static_cast<size_t>(rank) * sizeof one, sizeof one);
    result.bytes += one.bytes;
    result.requests += one.requests;
    if (one.bytes > 0) result.seconds = std::max(result.seconds, one.seconds);
  }
  return result;
}

}  // namespace lmdbio::tools
