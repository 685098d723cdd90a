// lmdbio/collective/host_calls.h - each collective call as steps at the table of a host.
//
// Only for host_collectives.cc. Steps and copies of each call: docs/collectives.md "Shared memory".
#ifndef LMDBIO_COLLECTIVE_HOST_CALLS_H_
#define LMDBIO_COLLECTIVE_HOST_CALLS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lmdbio/collective/host_collectives.h"
#include "lmdbio/collective/host_table.h"

namespace lmdbio::collective {

// The memory of all ranks, which end together.
struct HostMemory {
  std::unique_ptr<comm::SharedMemory> table;
  std::unique_ptr<comm::SharedMemory> registered;  // may be none
  uint64_t registered_bytes = 0;                   // of each rank
};

// Errors: as Collectives, of each call.
class HostCalls final : public Collectives {
 public:
  HostCalls(HostMemory memory, const HostTableShape& shape, int rank, const HostOptions& options,
            comm::Health& health);
  ~HostCalls() override;
  HostCalls(const HostCalls&) = delete;
  HostCalls& operator=(const HostCalls&) = delete;

  int rank() const override { return table_.rank(); }
  int size() const override { return table_.size(); }

  Result<CallOutcome> AllReduce(const CallTag& tag, const Values& values,
                                const reduce::Reduction& reduction) override;
  Result<CallOutcome> ReduceScatter(const CallTag& tag, const Values& input, std::byte* output,
                                    std::span<const uint64_t> counts,
                                    const reduce::Reduction& reduction) override;
  Result<CallOutcome> AllGather(const CallTag& tag, Bytes mine, MutableBytes all,
                                std::span<const uint64_t> part_bytes) override;
  Result<CallOutcome> Broadcast(const CallTag& tag, MutableBytes bytes, int root) override;
  Result<CallOutcome> AllToAll(const CallTag& tag, Bytes send, std::span<const uint64_t> send_bytes,
                               MutableBytes receive,
                               std::span<const uint64_t> receive_bytes) override;
  Result<CallOutcome> Barrier(const CallTag& tag) override;
  MutableBytes registered() const override { return RegisteredOf(rank()); }
  uint64_t ample_bytes() const override { return kAmpleBytes; }
  std::string Description() const override { return std::string(memory_.table->note()); }
  void Stop(const Error& why) override { table_.Stop(why); }

 private:
  // What several ranks have of so much still lies in the caches of their cores when it is reduced,
  // and a bucket of less would not be done sooner than it takes to wake everybody for it.
  static constexpr uint64_t kAmpleBytes = 1 << 20;

  MutableBytes RegisteredOf(int rank) const;
  uint64_t PlaceOf(const Values& values) const;
  std::optional<uint64_t> CommonPlace() const;

  Result<CallOutcome> Meet(const CallTag& tag, const CallHeader& header);
  Result<CallOutcome> ReduceInSlots(const CallTag& tag, const CallHeader& header,
                                    const Values& values, const reduce::Reduction& reduction);
  Result<CallOutcome> ReduceInTwoShots(const CallTag& tag, const CallHeader& header,
                                       const Values& values, const reduce::Reduction& reduction);
  Result<CallOutcome> ReduceInChunks(const CallTag& tag, const CallHeader& header,
                                     const Values& values, const reduce::Reduction& reduction);
  template <typename AnyChunks>
  Result<CallOutcome> ReduceBy(const AnyChunks& chunks, const CallTag& tag,
                               const CallHeader& header, const Values& values,
                               const reduce::Reduction& reduction);
  Status ReduceInPlace(const Values& values, uint64_t place, const reduce::Reduction& reduction);
  void ReduceBlock(reduce::DataType type, const reduce::Reduction& reduction, uint64_t offset,
                   uint64_t bytes);
  Result<CallOutcome> ScatterInSlots(const CallTag& tag, const CallHeader& header,
                                     const Values& input, std::byte* output, uint64_t first,
                                     uint64_t count, const reduce::Reduction& reduction);
  Result<CallOutcome> ScatterChunks(const CallTag& tag, const CallHeader& header,
                                    const Values& input, std::byte* output,
                                    std::span<const uint64_t> counts,
                                    const reduce::Reduction& reduction);
  Result<CallOutcome> MeetForAllToAll(const CallTag& tag, Bytes send,
                                      std::span<const uint64_t> send_bytes,
                                      std::span<const uint64_t> receive_bytes);
  uint64_t SentBytes(int from, int to) const;

  HostMemory memory_;
  HostTable table_;
  HostOptions options_;
  std::vector<const std::byte*> sources_;  // of a reduction; room for all ranks
};

}  // namespace lmdbio::collective
#endif  // LMDBIO_COLLECTIVE_HOST_CALLS_H_
