// lmdbio/sync/over_wire/wire_values.h - the values of a reduction over a wire, wherever they are.
//
// The algorithms decide which chunks go to which rank, and when. How a chunk gets from the memory
// of the values to the wire, and how a received one is reduced, is up to an implementation: for
// memory of the host it is here, for memory of a GPU in sync/over_device_wire.
//
// Source: Awan et al. V-A; docs/collectives.md "Messages".
#ifndef LMDBIO_SYNC_OVER_WIRE_WIRE_VALUES_H_
#define LMDBIO_SYNC_OVER_WIRE_WIRE_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/sync/collective/collectives.h"
#include "lmdbio/sync/collective/wire.h"
#include "lmdbio/sync/over_wire/wire_algorithms.h"
#include "lmdbio/sync/reduce/data_type.h"

namespace lmdbio::sync {

// The bytes [begin, begin + size_bytes) of the values; whole elements.
struct ValueRange {
  uint64_t begin = 0;
  uint64_t size_bytes = 0;
};

// How values are divided into messages, the same on every rank.
struct WirePieces {
  uint64_t count = 0;  // elements
  DataType type = DataType::kFloat32;
  uint64_t chunk_bytes = 0;  // > 0; the size of a message, whole elements
  uint64_t chunk_depth = 0;  // > 0; the number of chunks that a rank receives at once

  uint64_t size_bytes() const { return count * ElementBytes(type); }
};

// Chunks are rounded down to whole elements, and are no larger than the values.
// count  [> 0]
WirePieces PiecesOf(uint64_t count, DataType type, uint64_t chunk_bytes, uint32_t chunk_depth);

// Messages between two ranks arrive in the order in which they were begun. What is begun stays
// under way while this rank waits for anything. Values that are sent are not written before they
// were awaited.
//
// `from` and `to` are other ranks. A `turn` counts the chunks that are received to be reduced, from
// 0 in each algorithm; so many as chunk_depth may be begun before the first is finished.
//
// Errors of every call: as Wire, and those of an implementation
// Threads: one at a time
class WireValues {
 public:
  static constexpr int kNobody = -1;

  virtual ~WireValues() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const WirePieces& pieces() const = 0;

  virtual Status StartSend(int to, const ValueRange& chunk) = 0;
  // Waits for the oldest send to that rank that was not awaited.
  virtual Status AwaitSend(int to) = 0;

  // Receives values that replace those of the chunk.
  virtual Status StartStore(int from, const ValueRange& chunk) = 0;
  // Waits for the oldest one. Then begins to send the chunk to rank `forward_to`, or to kNobody.
  virtual Status FinishStore(int from, const ValueRange& chunk, int forward_to) = 0;

  // Receives values to reduce.
  virtual Status StartReduce(int from, uint64_t turn, const ValueRange& chunk) = 0;
  // Waits for the oldest one: values = (values op received) * scale. Then as FinishStore.
  virtual Status FinishReduce(int from, uint64_t turn, const ValueRange& chunk,
                              const Reduction& reduction, int forward_to) = 0;
  // Waits for the oldest one of each other rank: values = (those of all ranks, in their order) *
  // scale.
  virtual Status FinishReduceOfAll(uint64_t turn, const ValueRange& chunk,
                                   const Reduction& reduction) = 0;
};

// Values in memory of the host.
class HostValues final : public WireValues {
 public:
  // job     its wire and scratch memory outlive this
  // values  [> 0 elements] outlive this
  // senders  1, or the number of all ranks: from how many ranks this rank receives at a time
  HostValues(const WireJob& job, const Values& values, int senders);

  // FinishReduceOfAll writes the part of this rank here, and the values stay as they are.
  // part  [the bytes of `part_begin` and later that are reduced] its first byte
  void WriteTo(std::byte* part, uint64_t part_begin) {
    part_ = part;
    part_begin_ = part_begin;
  }

  int rank() const override { return wire_.rank(); }
  int size() const override { return wire_.size(); }
  const WirePieces& pieces() const override { return pieces_; }
  Status StartSend(int to, const ValueRange& chunk) override {
    return wire_.StartSend(to, BytesOf(chunk));
  }
  Status AwaitSend(int to) override { return wire_.AwaitSend(to); }
  Status StartStore(int from, const ValueRange& chunk) override {
    return wire_.StartReceive(from, BytesOf(chunk));
  }
  Status FinishStore(int from, const ValueRange& chunk, int forward_to) override;
  Status StartReduce(int from, uint64_t turn, const ValueRange& chunk) override {
    return wire_.StartReceive(from, {SlotOf(from, turn), chunk.size_bytes});
  }
  Status FinishReduce(int from, uint64_t turn, const ValueRange& chunk, const Reduction& reduction,
                      int forward_to) override;
  Status FinishReduceOfAll(uint64_t turn, const ValueRange& chunk,
                           const Reduction& reduction) override;

 private:
  MutableBytes BytesOf(const ValueRange& chunk) const {
    return {data_ + chunk.begin, chunk.size_bytes};
  }
  // The slots of a turn are neighbours.
  std::byte* SlotOf(int from, uint64_t turn) const {
    const uint64_t sender = senders_ == 1 ? 0 : static_cast<uint64_t>(from);
    return &scratch_[(turn % pieces_.chunk_depth * senders_ + sender) * pieces_.chunk_bytes];
  }

  Wire& wire_;
  std::byte* const data_;
  const uint64_t senders_;
  const WirePieces pieces_;
  const MutableBytes scratch_;
  std::byte* part_;
  uint64_t part_begin_ = 0;
  std::vector<const std::byte*> sources_;
};

// The algorithms of wire_algorithms.h over any values. See there.
// Errors: as WireValues
Status RingAllReduce(WireValues& values, const Reduction& reduction);
Status HalvingAllReduce(WireValues& values, const Reduction& reduction);
Status DirectAllReduce(WireValues& values, const Reduction& reduction);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_WIRE_WIRE_VALUES_H_
