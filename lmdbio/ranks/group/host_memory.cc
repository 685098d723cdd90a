// Three steps. After each of them all ranks know whether it succeeded on all:
//
//   1. rank 0 creates the file; each other rank opens an inbox and publishes its address
//   2. rank 0 puts the descriptor of the file into every inbox
//   3. the other ranks take it out and map the file
#include "lmdbio/ranks/group/host_memory.h"

#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/ranks/group/same_size.h"
#include "lmdbio/ranks/shm/descriptor_inbox.h"
#include "lmdbio/ranks/shm/memory_file.h"

namespace lmdbio::ranks {
namespace {

// The message of every rank after a step. All ranks return the code of the lowest failed rank,
// while Agree would return kPeerFailed on the others. So all ranks make the same decision on
// another kind of memory.
struct StepOutcome {
  int32_t code = 0;  // of the failure; 0: none
  std::array<char, 252> words{};

  static StepOutcome Of(const Status& status) {
    StepOutcome outcome;
    if (status) return outcome;
    outcome.code = static_cast<int32_t>(status.error().code());
    status.error().message().copy(outcome.words.data(), outcome.words.size() - 1);
    return outcome;
  }
};

struct Arrival {
  uint64_t size_bytes = 0;
  DescriptorInbox::Address inbox;
  StepOutcome outcome;
};
static_assert(std::is_trivially_copyable_v<Arrival>);

template <typename T>
Result<std::vector<T>> GatherAll(Group& group, const T& mine) {
  LMDBIO_TRY(const auto bytes, group.AllGather(std::as_bytes(std::span(&mine, 1))));
  std::vector<T> all(bytes.size() / sizeof(T));
  std::memcpy(static_cast<void*>(all.data()), bytes.data(), bytes.size());
  return all;
}

// The failure of the lowest rank that has one.
Status FirstFailure(const Group& group, std::span<const StepOutcome> outcomes) {
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    const StepOutcome& outcome = outcomes[rank];
    if (outcome.code == 0) continue;
    const bool is_own = rank == static_cast<size_t>(group.rank());
    return Fail(static_cast<ErrorCode>(outcome.code),
                is_own ? std::string(outcome.words.data())
                       : fmt::format("rank {}: {}", rank, outcome.words.data()));
  }
  return {};
}

// Collective.
Status EndStep(Group& group, const Status& mine) {
  LMDBIO_TRY(const auto outcomes, GatherAll(group, StepOutcome::Of(mine)));
  return FirstFailure(group, outcomes);
}

template <typename T>
Status StatusOf(const Result<T>& result) {
  if (result) return {};
  return Fail(result.error().code(), result.error().message());
}

// Collective. The inboxes of the ranks, after they have compared sizes and outcomes of step 1.
// made  the outcome of step 1 on this rank: of its file or its inbox
Result<std::vector<DescriptorInbox::Address>> MeetAll(Group& group, uint64_t size_bytes,
                                                      const DescriptorInbox::Address& mine,
                                                      const Status& made) {
  LMDBIO_TRY(const auto arrivals,
             GatherAll(group, Arrival{size_bytes, mine, StepOutcome::Of(made)}));
  std::vector<uint64_t> sizes;
  std::vector<DescriptorInbox::Address> inboxes;
  std::vector<StepOutcome> outcomes;
  for (const Arrival& one : arrivals) {
    sizes.push_back(one.size_bytes);
    inboxes.push_back(one.inbox);
    outcomes.push_back(one.outcome);
  }
  LMDBIO_TRY_VOID(CheckSameSize(sizes));
  LMDBIO_TRY_VOID(FirstFailure(group, outcomes));
  return inboxes;
}

using Memory = Result<std::unique_ptr<SharedMapping>>;

Memory Map(const Result<UniqueFd>& file, uint64_t size_bytes) {
  LMDBIO_TRY_VOID(StatusOf(file));
  return SharedMapping::Map(*file, size_bytes);
}

// The steps of rank 0. Collective, with TakeMemory on the other ranks.
Memory GiveMemory(Group& group, uint64_t size_bytes) {
  const Result<UniqueFd> file = CreateMemoryFile(size_bytes);
  Memory memory = Map(file, size_bytes);
  LMDBIO_TRY(const auto inboxes, MeetAll(group, size_bytes, {}, StatusOf(memory)));
  Status sent;
  for (size_t rank = 1; rank < inboxes.size() && sent; ++rank) {
    sent = SendDescriptor(inboxes[rank], *file);
    if (!sent)
      sent = Fail(
          std::move(sent).error().Within(fmt::format("passing shared memory to rank {}", rank)));
  }
  LMDBIO_TRY_VOID(EndStep(group, sent));
  LMDBIO_TRY_VOID(EndStep(group, {}));
  return memory;
}

Memory TakeMemory(Group& group, uint64_t size_bytes) {
  Result<DescriptorInbox> inbox = DescriptorInbox::Open();
  const DescriptorInbox::Address mine = inbox ? inbox->address() : DescriptorInbox::Address();
  LMDBIO_TRY_VOID(MeetAll(group, size_bytes, mine, StatusOf(inbox)));
  LMDBIO_TRY_VOID(EndStep(group, {}));
  Memory memory = Map(inbox->Take(), size_bytes);
  LMDBIO_TRY_VOID(EndStep(group, StatusOf(memory)));
  return memory;
}

}  // namespace

Result<std::unique_ptr<SharedMemory>> AllocateHostMemory(Group& group, uint64_t size_bytes) {
  return group.rank() == 0 ? GiveMemory(group, size_bytes) : TakeMemory(group, size_bytes);
}

}  // namespace lmdbio::ranks
