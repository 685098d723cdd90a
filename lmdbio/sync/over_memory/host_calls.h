// lmdbio/sync/over_memory/host_calls.h - each collective call as steps in a host segment.
//
// Only for host_collectives.cc. Steps and copies of each call: docs/collectives.md "Shared memory".
#ifndef LMDBIO_SYNC_OVER_MEMORY_HOST_CALLS_H_
#define LMDBIO_SYNC_OVER_MEMORY_HOST_CALLS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lmdbio/sync/over_memory/host_collectives.h"
#include "lmdbio/sync/over_memory/host_segment.h"

namespace lmdbio::sync {

// The shared memory of all ranks. They release it together.
struct HostMemory {
  std::unique_ptr<ranks::SharedMemory> segment;
  std::unique_ptr<ranks::SharedMemory> registered;  // null: none
  uint64_t registered_bytes = 0;                    // of each rank
};

// Errors: as those of each call of Collectives.
class HostCalls final : public Collectives {
 public:
  HostCalls(HostMemory memory, const HostSegmentShape& shape, int rank, const HostOptions& options,
            ranks::Health& health);
  ~HostCalls() override;
  HostCalls(const HostCalls&) = delete;
  HostCalls& operator=(const HostCalls&) = delete;

  int rank() const override { return table_.rank(); }
  int size() const override { return table_.size(); }

  Result<CallOutcome> AllReduce(const CallTag& tag, const Values& values,
                                const Reduction& reduction) override;
  Result<CallOutcome> ReduceScatter(const CallTag& tag, const Values& input, std::byte* output,
                                    std::span<const uint64_t> counts,
                                    const Reduction& reduction) override;
  Result<CallOutcome> AllGather(const CallTag& tag, Bytes mine, MutableBytes all,
                                std::span<const uint64_t> part_bytes) override;
  Result<CallOutcome> Broadcast(const CallTag& tag, MutableBytes bytes, int root) override;
  Result<CallOutcome> AllToAll(const CallTag& tag, Bytes send, std::span<const uint64_t> send_bytes,
                               MutableBytes receive,
                               std::span<const uint64_t> receive_bytes) override;
  Result<CallOutcome> Barrier(const CallTag& tag) override;
  MutableBytes registered() const override { return RegisteredOf(rank()); }
  uint64_t ample_bytes() const override { return kAmpleBytes; }
  bool is_reproducible() const override { return true; }
  std::string Description() const override { return std::string(memory_.segment->note()); }
  void Stop(const Error& why) override { table_.Stop(why); }

 private:
  // Recommended bucket size. So many bytes of each rank are still in the cores' caches when they
  // are reduced. Smaller buckets are not faster, because waking the ranks takes most of their time.
  static constexpr uint64_t kAmpleBytes = 1 << 20;

  MutableBytes RegisteredOf(int rank) const;
  uint64_t PlaceOf(const Values& values) const;
  std::optional<uint64_t> CommonPlace() const;

  Result<CallOutcome> Meet(const CallTag& tag, const CallHeader& header);
  Result<CallOutcome> ReduceInSlots(const CallTag& tag, const CallHeader& header,
                                    const Values& values, const Reduction& reduction);
  Result<CallOutcome> ReduceInTwoShots(const CallTag& tag, const CallHeader& header,
                                       const Values& values, const Reduction& reduction);
  Result<CallOutcome> ReduceInChunks(const CallTag& tag, const CallHeader& header,
                                     const Values& values, const Reduction& reduction);
  template <typename AnyChunks>
  Result<CallOutcome> ReduceBy(const AnyChunks& chunks, const CallTag& tag,
                               const CallHeader& header, const Values& values,
                               const Reduction& reduction);
  Status ReduceInPlace(const Values& values, uint64_t place, const Reduction& reduction);
  void ReduceBlock(DataType type, const Reduction& reduction, uint64_t offset, uint64_t bytes);
  Result<CallOutcome> ScatterInSlots(const CallTag& tag, const CallHeader& header,
                                     const Values& input, std::byte* output, uint64_t first,
                                     uint64_t count, const Reduction& reduction);
  Result<CallOutcome> ScatterChunks(const CallTag& tag, const CallHeader& header,
                                    const Values& input, std::byte* output,
                                    std::span<const uint64_t> counts, const Reduction& reduction);
  Result<CallOutcome> MeetForAllToAll(const CallTag& tag, Bytes send,
                                      std::span<const uint64_t> send_bytes,
                                      std::span<const uint64_t> receive_bytes);
  uint64_t SentBytes(int from, int to) const;

  HostMemory memory_;
  HostSegment table_;
  HostOptions options_;
  std::vector<const std::byte*> sources_;  // [ranks] of the reduction under way
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_MEMORY_HOST_CALLS_H_
