#include "lmdbio/ranks/mpi/mpi_group.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/ranks/group/host_memory.h"
#include "lmdbio/ranks/group/same_size.h"
#include "lmdbio/ranks/linked/connected_group.h"
#include "lmdbio/ranks/mpi/mpi_calls.h"
#include "lmdbio/ranks/mpi/mpi_meeting.h"
#include "lmdbio/ranks/mpi/mpi_memory.h"
#include "lmdbio/ranks/shm/anonymous_memory.h"

#ifdef __SANITIZE_THREAD__  // the thread sanitizer sees neither fences nor other processes
#pragma GCC diagnostic ignored "-Wtsan"
#endif

namespace lmdbio::ranks {

namespace {

// How long ranks may take to come to the same call, as those of a launcher.
constexpr auto kMpiMeetingLimit = std::chrono::seconds(300);

// Collective. The ranks that share memory with this one, in the order of `communicator`.
Result<MPI_Comm> HostPart(MPI_Comm communicator) {
  MPI_Comm part = MPI_COMM_NULL;
  LMDBIO_TRY_VOID(MpiStatus(
      MPI_Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, /*key=*/0, MPI_INFO_NULL, &part),
      "MPI_Comm_split_type"));
  return part;
}

// Collective. The name of this rank's host if `communicator` spans several hosts; else "".
Result<std::string> HostNameIfSeveral(MPI_Comm communicator) {
  // All calls here are collective or local, so ranks of one host and of several make the same ones.
  LMDBIO_TRY(MPI_Comm host, HostPart(communicator));
  int size = 0;
  int host_size = 0;
  MPI_Comm_size(communicator, &size);
  MPI_Comm_size(host, &host_size);
  MPI_Comm_free(&host);
  if (host_size == size) return std::string();
  std::array<char, MPI_MAX_PROCESSOR_NAME> name = {};
  int length = 0;
  LMDBIO_TRY_VOID(
      MpiStatus(MPI_Get_processor_name(name.data(), &length), "MPI_Get_processor_name"));
  return std::string(name.data(), static_cast<size_t>(length));
}

// For ranks that cannot have links.
class CommunicatorGroup final : public Group {
 public:
  // Takes ownership of the communicator.
  // host_name  "" if all ranks share a host
  CommunicatorGroup(MPI_Comm communicator, std::string host_name, std::string note)
      : communicator_(communicator), host_name_(std::move(host_name)), note_(std::move(note)) {
    MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(communicator_, &rank_);
    MPI_Comm_size(communicator_, &size_);
  }
  // MPI_Comm_free is collective by the standard, but implementations do not wait in it.
  ~CommunicatorGroup() override {
    if (IsMpiRunning()) MPI_Comm_free(&communicator_);
  }
  CommunicatorGroup(const CommunicatorGroup&) = delete;
  CommunicatorGroup& operator=(const CommunicatorGroup&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::string& host_name() const override { return host_name_; }
  std::string_view note() const override { return note_; }

  Status Barrier() override;
  Status Broadcast(int root, MutableBytes bytes) override;
  Result<std::vector<std::byte>> AllGather(Bytes mine) override;
  Result<std::unique_ptr<Group>> SplitByHost() override;
  Result<std::unique_ptr<Group>> Split(int color) override;
  Result<std::unique_ptr<SharedMemory>> AllocateShared(uint64_t size_bytes) override;
  Result<std::unique_ptr<SharedMemory>> AllocateMpiWindow(uint64_t size_bytes) override;

 private:
  MPI_Comm communicator_;
  std::string host_name_;
  std::string note_;
  int rank_ = 0;
  int size_ = 0;
};

Status CommunicatorGroup::Barrier() {
  // MPI guarantees nothing about stores outside of MPI. The fences of the ranks pair: a store
  // before the first fence of one rank is visible after the second fence of another.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  LMDBIO_TRY_VOID(MpiStatus(MPI_Barrier(communicator_), "MPI_Barrier"));
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return {};
}

Status CommunicatorGroup::Broadcast(int root, MutableBytes bytes) {
  LMDBIO_CHECK(root >= 0 && root < size_);
  return BroadcastInPieces(communicator_, root, bytes);
}

Result<std::vector<std::byte>> CommunicatorGroup::AllGather(Bytes mine) {
  std::vector<std::byte> all(mine.size() * static_cast<size_t>(size_));
  LMDBIO_TRY_VOID(AllGatherInPieces(communicator_, mine, all));
  return all;
}

Result<std::unique_ptr<Group>> CommunicatorGroup::SplitByHost() {
  LMDBIO_TRY(MPI_Comm part, HostPart(communicator_));
  return std::make_unique<CommunicatorGroup>(part, "", "");
}

Result<std::unique_ptr<Group>> CommunicatorGroup::Split(int color) {
  // MPI refuses negative colors. So the first rank with a color represents it.
  LMDBIO_TRY(const std::vector<std::byte> colors, AllGather(std::as_bytes(std::span(&color, 1))));
  int first = 0;
  while (std::memcmp(&colors[static_cast<size_t>(first) * sizeof(int)], &color, sizeof(int)) != 0) {
    ++first;
  }
  MPI_Comm part = MPI_COMM_NULL;
  // The key keeps the ranks in their order.
  LMDBIO_TRY_VOID(MpiStatus(MPI_Comm_split(communicator_, first, rank_, &part), "MPI_Comm_split"));
  LMDBIO_TRY(std::string host_name, HostNameIfSeveral(part));
  return std::make_unique<CommunicatorGroup>(part, std::move(host_name), "");
}

// AllocateHostMemory returns the same code on all ranks, so all ranks call MPI or none does.
Result<std::unique_ptr<SharedMemory>> CommunicatorGroup::AllocateShared(uint64_t size_bytes) {
  if (size_ == 1) return AllocateAnonymous(size_bytes);
  auto memory = AllocateHostMemory(*this, size_bytes);
  if (memory || memory.error().code() != ErrorCode::kUnsupported) return memory;
  return AllocateWindowMemory(communicator_, size_bytes, memory.error().message());
}

Result<std::unique_ptr<SharedMemory>> CommunicatorGroup::AllocateMpiWindow(uint64_t size_bytes) {
  if (size_ == 1) return AllocateAnonymous(size_bytes);
  LMDBIO_TRY(const auto bytes, AllGather(std::as_bytes(std::span(&size_bytes, 1))));
  std::vector<uint64_t> sizes(static_cast<size_t>(size_));
  std::memcpy(sizes.data(), bytes.data(), bytes.size());
  LMDBIO_TRY_VOID(CheckSameSize(sizes));
  return AllocateWindowMemory(communicator_, size_bytes, "");
}

// Windows of MPI's for the ranks of a host.
class MpiWindows final : public WindowMaker {
 public:
  // Takes ownership of the communicator, that of the job.
  explicit MpiWindows(MPI_Comm communicator) : communicator_(communicator) {}
  ~MpiWindows() override {
    if (IsMpiRunning()) MPI_Comm_free(&communicator_);
  }
  MpiWindows(const MpiWindows&) = delete;
  MpiWindows& operator=(const MpiWindows&) = delete;

  Result<std::unique_ptr<SharedMemory>> Allocate(std::span<const int> members, uint64_t size_bytes,
                                                 std::string_view why_window) override {
    LMDBIO_TRY(MPI_Comm part, PartOf(members));
    auto memory = AllocateWindowMemory(part, size_bytes, why_window);
    MPI_Comm_free(&part);  // the window keeps what it needs
    return memory;
  }

 private:
  // Collective over the members.
  Result<MPI_Comm> PartOf(std::span<const int> members) {
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group some = MPI_GROUP_NULL;
    MPI_Comm part = MPI_COMM_NULL;
    MPI_Comm_group(communicator_, &all);
    MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &some);
    const int code = MPI_Comm_create_group(communicator_, some, /*tag=*/0, &part);
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    LMDBIO_TRY_VOID(MpiStatus(code, "MPI_Comm_create_group"));
    MPI_Comm_set_errhandler(part, MPI_ERRORS_RETURN);
    return part;
  }

  MPI_Comm communicator_;
};

// Takes ownership of the communicator.
Result<std::unique_ptr<Group>> MeetOver(MPI_Comm communicator) {
  MeetingSeat seat;
  MPI_Comm_rank(communicator, &seat.rank);
  MPI_Comm_size(communicator, &seat.size);
  auto windows = std::make_shared<MpiWindows>(communicator);
  MpiMeeting meeting(communicator, kMpiMeetingLimit);
  Result<std::unique_ptr<LinkedGroup>> linked = ConnectedGroup(meeting, seat);
  const Status connected = linked ? Status() : Fail(linked.error().Copy());
  LMDBIO_TRY(const MpiMeeting::CommonEnd common, meeting.AgreeOnEnd(connected));
  if (common.end == MeetingEnd::kConnected) {
    (*linked)->MakeWindowsBy(std::move(windows));
    return linked;
  }
  if (common.end == MeetingEnd::kFailed) {
    const bool is_own = !connected && connected.error().code() != ErrorCode::kIo;
    if (is_own) return Fail(connected.error().Copy());
    return Fail(ErrorCode::kPeerFailed, common.words);
  }
  // The ranks have MPI alone.
  MPI_Comm own = MPI_COMM_NULL;
  LMDBIO_TRY_VOID(MpiStatus(MPI_Comm_dup(communicator, &own), "MPI_Comm_dup"));
  MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
  LMDBIO_TRY(std::string host_name, HostNameIfSeveral(own));
  return std::make_unique<CommunicatorGroup>(
      own, std::move(host_name),
      fmt::format("the ranks have no links, so a rank that ends while others open or close is "
                  "noticed by MPI alone ({})",
                  common.words));
}

}  // namespace

Result<std::unique_ptr<Group>> MpiGroup(MPI_Comm communicator) {
  if (!IsMpiRunning()) {
    return Fail(ErrorCode::kInvalidArgument,
                "MPI is not running: call this after MPI_Init and before MPI_Finalize");
  }
  if (communicator == MPI_COMM_NULL) {
    return Fail(ErrorCode::kInvalidArgument, "the communicator is MPI_COMM_NULL");
  }
  int is_intercommunicator = 0;
  LMDBIO_TRY_VOID(
      MpiStatus(MPI_Comm_test_inter(communicator, &is_intercommunicator), "MPI_Comm_test_inter"));
  if (is_intercommunicator != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                "the communicator is an intercommunicator: pass an intracommunicator");
  }
  int size = 0;
  MPI_Comm_size(communicator, &size);
  if (size == 1) return SoloGroup();
  LMDBIO_TRY(MPI_Comm duplicate, DuplicateWithin(communicator, kMpiMeetingLimit));
  return MeetOver(duplicate);
}

}  // namespace lmdbio::ranks
