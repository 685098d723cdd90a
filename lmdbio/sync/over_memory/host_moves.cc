// AllGather, Broadcast, AllToAll and Barrier: the calls that copy bytes and reduce none.
//
// Each call has two forms. If the bytes of every rank fit into its slot, they travel with the
// header, and the call has one wait. Else they go through the buffers in chunks (chunk_pipeline.h):
// each rank writes its chunk, waits for all, and copies the chunks of the others.
#include <algorithm>
#include <cstring>

#include "lmdbio/base/align.h"
#include "lmdbio/base/check.h"
#include "lmdbio/sync/over_memory/chunk_pipeline.h"
#include "lmdbio/sync/over_memory/host_calls.h"

namespace lmdbio::sync {
namespace {

uint64_t ChunksFor(uint64_t bytes, uint64_t each) {
  return std::max<uint64_t>(1, (bytes + each - 1) / each);
}

// How many of `total` bytes are in chunk `chunk`.
uint64_t BytesIn(uint64_t chunk, uint64_t each, uint64_t total) {
  return chunk * each < total ? std::min(each, total - chunk * each) : 0;
}

}  // namespace

Result<CallOutcome> HostCalls::Barrier(const CallTag& tag) {
  LMDBIO_TRY_VOID(table_.Begin());
  return Meet(tag, {.digest = tag.digest, .meaning = CallDigest({kBarrierCall}).value()});
}

// With parts of different sizes, all ranks use the form and the chunk count of the largest part.
Result<CallOutcome> HostCalls::AllGather(const CallTag& tag, Bytes mine, MutableBytes all,
                                         std::span<const uint64_t> part_bytes) {
  LMDBIO_CHECK(part_bytes.size() == static_cast<size_t>(size()));
  LMDBIO_CHECK(mine.size() == part_bytes[static_cast<size_t>(rank())]);
  LMDBIO_TRY_VOID(table_.Begin());
  CallDigest meaning({kAllGatherCall});
  meaning.Add(part_bytes);
  const CallHeader header{.digest = tag.digest, .meaning = meaning.value()};
  const uint64_t bytes_max = *std::max_element(part_bytes.begin(), part_bytes.end());
  const bool is_small = bytes_max <= table_.slot_bytes();
  const uint64_t each = is_small ? table_.slot_bytes() : table_.buffer_bytes();
  const auto take_from = [&](uint64_t chunk, const auto& place_of) {
    std::byte* part = all.data();
    for (int r = 0; r < size(); ++r) {
      const uint64_t total = part_bytes[static_cast<size_t>(r)];
      if (r != rank()) CopyBytes(part + chunk * each, place_of(r), BytesIn(chunk, each, total));
      if (r == rank() && chunk == 0) CopyBytes(part, mine.data(), total);
      part += total;
    }
  };
  if (is_small) {
    if (!tag.is_declined) CopyBytes(table_.SlotOf(rank()), mine.data(), mine.size());
    LMDBIO_TRY(const CallOutcome outcome, Meet(tag, header));
    if (outcome == CallOutcome::kDone) take_from(0, [&](int r) { return table_.SlotOf(r); });
    return outcome;
  }
  const auto write = [&](uint64_t chunk) {
    const uint64_t bytes = BytesIn(chunk, each, mine.size());
    if (bytes > 0) CopyBytes(table_.BufferOf(rank(), chunk), mine.data() + chunk * each, bytes);
  };
  const auto take = [&](uint64_t chunk) {
    take_from(chunk, [&](int r) { return table_.BufferOf(r, chunk); });
  };
  return RunCall(table_, tag, header, MakeChunks<2>(ChunksFor(bytes_max, each), write, take, take));
}

Result<CallOutcome> HostCalls::Broadcast(const CallTag& tag, MutableBytes bytes, int root) {
  LMDBIO_CHECK(root >= 0 && root < size());
  LMDBIO_TRY_VOID(table_.Begin());
  const CallDigest meaning({kBroadcastCall, bytes.size(), static_cast<uint64_t>(root)});
  const CallHeader header{.digest = tag.digest, .meaning = meaning.value()};
  if (bytes.size() <= table_.slot_bytes()) {
    if (!tag.is_declined && rank() == root)
      CopyBytes(table_.SlotOf(root), bytes.data(), bytes.size());
    LMDBIO_TRY(const CallOutcome outcome, Meet(tag, header));
    if (outcome == CallOutcome::kDone && rank() != root) {
      CopyBytes(bytes.data(), table_.SlotOf(root), bytes.size());
    }
    return outcome;
  }
  const uint64_t each = table_.buffer_bytes();
  const auto write = [&](uint64_t chunk) {
    if (rank() != root) return;
    CopyBytes(table_.BufferOf(root, chunk), bytes.data() + chunk * each,
              BytesIn(chunk, each, bytes.size()));
  };
  const auto take = [&](uint64_t chunk) {
    if (rank() == root) return;
    CopyBytes(bytes.data() + chunk * each, table_.BufferOf(root, chunk),
              BytesIn(chunk, each, bytes.size()));
  };
  return RunCall(table_, tag, header,
                 MakeChunks<2>(ChunksFor(bytes.size(), each), write, take, take));
}

// The slot of rank r in an AllToAll: the sizes that r sends to each rank, the sizes that it
// receives from each, and its bytes if they fit.
uint64_t HostCalls::SentBytes(int from, int to) const {
  uint64_t bytes = 0;
  std::memcpy(&bytes, table_.SlotOf(from) + sizeof(bytes) * static_cast<size_t>(to), sizeof(bytes));
  return bytes;
}

// Compares the sizes of all pairs. Every rank compares all of them, so all get the same outcome.
Result<CallOutcome> HostCalls::MeetForAllToAll(const CallTag& tag, Bytes send,
                                               std::span<const uint64_t> send_bytes,
                                               std::span<const uint64_t> receive_bytes) {
  const size_t row_bytes = send_bytes.size_bytes();
  std::byte* const slot = table_.SlotOf(rank());
  CopyBytes(slot, std::as_bytes(send_bytes).data(), row_bytes);
  CopyBytes(slot + row_bytes, std::as_bytes(receive_bytes).data(), row_bytes);
  if (!tag.is_declined && send.size() <= table_.slot_bytes() - 2 * row_bytes) {
    CopyBytes(slot + 2 * row_bytes, send.data(), send.size());
  }
  LMDBIO_TRY(const CallOutcome outcome,
             Meet(tag, {.digest = tag.digest, .meaning = CallDigest({kAllToAllCall}).value()}));
  for (int from = 0; from < size(); ++from) {
    for (int to = 0; to < size(); ++to) {
      // Row `to` of the receiver begins with the sizes that it sends.
      if (SentBytes(from, to) != SentBytes(to, size() + from)) return CallOutcome::kDeclined;
    }
  }
  return outcome;
}

// In chunks, the buffer of a rank has a piece for each receiver. The chunk count follows from the
// largest part of any pair, so all ranks run the same iterations.
Result<CallOutcome> HostCalls::AllToAll(const CallTag& tag, Bytes send,
                                        std::span<const uint64_t> send_bytes, MutableBytes receive,
                                        std::span<const uint64_t> receive_bytes) {
  LMDBIO_CHECK(send_bytes.size() == static_cast<size_t>(size()));
  LMDBIO_CHECK(receive_bytes.size() == send_bytes.size());
  LMDBIO_TRY_VOID(table_.Begin());
  LMDBIO_TRY(const CallOutcome outcome, MeetForAllToAll(tag, send, send_bytes, receive_bytes));
  if (outcome == CallOutcome::kDeclined) return outcome;
  const size_t table_bytes = 2 * send_bytes.size_bytes();
  uint64_t sum_max = 0;
  uint64_t part_max = 0;
  for (int from = 0; from < size(); ++from) {
    uint64_t sum = 0;
    for (int to = 0; to < size(); ++to) {
      sum += SentBytes(from, to);
      part_max = std::max(part_max, SentBytes(from, to));
    }
    sum_max = std::max(sum_max, sum);
  }
  if (sum_max <= table_.slot_bytes() - table_bytes) {
    std::byte* into = receive.data();
    for (int from = 0; from < size(); ++from) {
      const std::byte* part = table_.SlotOf(from) + table_bytes;
      for (int to = 0; to < rank(); ++to) part += SentBytes(from, to);
      CopyBytes(into, part, SentBytes(from, rank()));
      into += SentBytes(from, rank());
    }
    return outcome;
  }
  const uint64_t each =
      table_.buffer_bytes() / static_cast<uint64_t>(size()) / kCacheLineBytes * kCacheLineBytes;
  const auto write = [&](uint64_t chunk) {
    const std::byte* part = send.data();
    for (int to = 0; to < size(); ++to) {
      const uint64_t total = send_bytes[static_cast<size_t>(to)];
      CopyBytes(table_.BufferOf(rank(), chunk) + static_cast<uint64_t>(to) * each,
                part + chunk * each, BytesIn(chunk, each, total));
      part += total;
    }
  };
  const auto take = [&](uint64_t chunk) {
    std::byte* part = receive.data();
    for (int from = 0; from < size(); ++from) {
      const uint64_t total = receive_bytes[static_cast<size_t>(from)];
      CopyBytes(part + chunk * each,
                table_.BufferOf(from, chunk) + static_cast<uint64_t>(rank()) * each,
                BytesIn(chunk, each, total));
      part += total;
    }
  };
  const auto chunks = MakeChunks<2>(ChunksFor(part_max, each), write, take, take);
  LMDBIO_TRY_VOID(RunChunks(table_, chunks, 0, 1));
  return outcome;
}

}  // namespace lmdbio::sync
