// All memory is rank 0's part of one window:
//
//   each rank maps it      | MPI's own state | padding | size_bytes, returned |
//   at a page boundary     ^ page            ^ window  ^ page
//
// The window starts after MPI's own state, at the same distance from a page boundary in every rank.
// CheckOutcomes compares these distances. So each rank finds the same first page in the window.
//
// The window has one passive-target epoch for its whole life, in which MPI's unified memory model
// permits loads and stores. Group::Barrier orders them between ranks. Newly mapped memory is
// zero-filled, so no rank needs to clear it.
#include "lmdbio/ranks/mpi/mpi_memory.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/align.h"
#include "lmdbio/ranks/mpi/mpi_calls.h"

namespace lmdbio::ranks {

namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kAddressableBytes = uint64_t{1} << 62;  // more than any address space
constexpr uint64_t kForMpiBytes = 1 << 20;                 // more than MPI's own state
constexpr const char* kUsualDirectory = "/dev/shm";

class WindowMemory final : public SharedMemory {
 public:
  WindowMemory(MPI_Win window, MutableBytes bytes, std::string note)
      : window_(window), bytes_(bytes), note_(std::move(note)) {}
  ~WindowMemory() override {
    // MPI_Win_free is collective. Without all ranks it would not return, so the window is left to
    // MPI_Finalize.
    if (is_abandoned_ || !IsMpiRunning()) return;
    MPI_Win_unlock_all(window_);
    MPI_Win_free(&window_);
  }
  WindowMemory(const WindowMemory&) = delete;
  WindowMemory& operator=(const WindowMemory&) = delete;

  MutableBytes bytes() const override { return bytes_; }
  void Abandon() override { is_abandoned_ = true; }
  std::string_view note() const override { return note_; }

 private:
  MPI_Win window_;
  MutableBytes bytes_;
  std::string note_;
  bool is_abandoned_ = false;
};

// The directory of the files behind Open MPI's windows; "" if it is unknown. MPI's own interface
// for this question, MPI_T, takes 0.2 s, because Open MPI loads all its components to answer.
std::string BackingDirectory() {
#ifdef OPEN_MPI
  const char* const chosen = std::getenv("OMPI_MCA_osc_sm_backing_directory");
  if (chosen != nullptr) return chosen;
  if (::access(kUsualDirectory, W_OK) == 0) return kUsualDirectory;
#endif
  return "";
}

// The free and the total bytes of the directory of the windows; kUnlimited if unknown.
struct Room {
  uint64_t free_bytes = kUnlimited;
  uint64_t all_bytes = kUnlimited;
};

Room FindRoom() {
  struct statvfs found = {};
  const std::string directory = BackingDirectory();
  if (directory.empty() || ::statvfs(directory.c_str(), &found) != 0) return {};
  return {static_cast<uint64_t>(found.f_bavail) * found.f_frsize,
          static_cast<uint64_t>(found.f_blocks) * found.f_frsize};
}

// The text of an error: the requested and the available bytes, and the remedy.
std::string WordsOfNoRoom(uint64_t size_bytes, const Room& room, std::string_view why_window) {
  std::string asked = fmt::format("{} bytes of shared memory", size_bytes);
  if (room.free_bytes == kUnlimited || size_bytes >= kAddressableBytes) return asked;
  const std::string directory = BackingDirectory();
  const uint64_t used_bytes = room.all_bytes - std::min(room.free_bytes, room.all_bytes);
  const uint64_t mib = AlignUp(used_bytes + size_bytes + kForMpiBytes, 1 << 20) / (1 << 20);
  const std::string for_docker =
      directory == kUsualDirectory ? fmt::format("docker run --shm-size={}m, or ", mib) : "";
  const std::string refusal =
      why_window.empty() ? "" : fmt::format(", and memory outside it is refused ({})", why_window);
  return fmt::format(
      "{}: {} has {} bytes, of which {} are free{}; make {} larger ({}mount -o remount,size={}m "
      "{}) "
      "or ask for less",
      asked, directory, room.all_bytes, room.free_bytes, refusal, directory, for_docker, mib,
      directory);
}

// If there is no room, rank 0 of Open MPI returns an error without a message to the others, which
// then wait for ever. So rank 0 checks for room beforehand, and broadcasts the result.
Status CheckRoom(MPI_Comm communicator, int rank, uint64_t size_bytes,
                 std::string_view why_window) {
  Room room = rank == 0 ? FindRoom() : Room();
  LMDBIO_TRY_VOID(BroadcastInPieces(communicator, 0, std::as_writable_bytes(std::span(&room, 1))));
  if (size_bytes < kAddressableBytes && size_bytes + kForMpiBytes <= room.free_bytes) return {};
  return Fail(ErrorCode::kResourceExhausted, WordsOfNoRoom(size_bytes, room, why_window));
}

struct MpiWindow {
  int code = MPI_SUCCESS;      // the first failure
  const char* call = nullptr;  // the call that failed
  MPI_Win handle = MPI_WIN_NULL;
  std::byte* address = nullptr;  // of rank 0's part, here
};

// Returns the first failure in `code`, and no error. So all ranks reach the exchange of codes.
MpiWindow AllocateWindow(MPI_Comm communicator, int rank, uint64_t window_bytes) {
  MpiWindow window;
  const auto keep = [&window](int code, const char* call) {
    if (window.code != MPI_SUCCESS || code == MPI_SUCCESS) return;
    window.code = code;
    window.call = call;
  };
  MPI_Info info = MPI_INFO_NULL;
  MPI_Info_create(&info);
  MPI_Info_set(info, "alloc_shared_noncontig", "true");  // lets MPI align the parts of the ranks
  void* mine = nullptr;
  const auto my_bytes = static_cast<MPI_Aint>(rank == 0 ? window_bytes : 0);
  keep(MPI_Win_allocate_shared(my_bytes, 1, info, communicator, static_cast<void*>(&mine),
                               &window.handle),
       "MPI_Win_allocate_shared");
  MPI_Info_free(&info);
  if (window.code != MPI_SUCCESS) return window;
  MPI_Win_set_errhandler(window.handle, MPI_ERRORS_RETURN);
  MPI_Aint size_bytes = 0;
  int unit_bytes = 0;
  keep(MPI_Win_shared_query(window.handle, 0, &size_bytes, &unit_bytes,
                            static_cast<void*>(&window.address)),
       "MPI_Win_shared_query");
  keep(MPI_Win_lock_all(MPI_MODE_NOCHECK, window.handle), "MPI_Win_lock_all");
  return window;
}

struct AllocationOutcome {
  uint64_t failed = 0;
  uint64_t page_distance = 0;  // bytes from the window's start to the next page
};

// Success if all ranks have the window, at the same distance from a page boundary.
Status CheckOutcomes(MPI_Comm communicator, int rank_count, const MpiWindow& window,
                     const AllocationOutcome& mine) {
  std::vector<AllocationOutcome> all(static_cast<size_t>(rank_count));
  LMDBIO_TRY_VOID(AllGatherInPieces(communicator, std::as_bytes(std::span(&mine, 1)),
                                    std::as_writable_bytes(std::span(all))));
  if (mine.failed != 0) return MpiStatus(window.code, window.call);
  for (int rank = 0; rank < rank_count; ++rank) {
    const AllocationOutcome& theirs = all[static_cast<size_t>(rank)];
    if (theirs.failed != 0) {
      return Fail(ErrorCode::kInternal,
                  fmt::format("MPI allocated no shared memory on rank {}", rank));
    }
    if (theirs.page_distance != all[0].page_distance) {
      return Fail(
          ErrorCode::kInternal,
          fmt::format(
              "the MPI window starts {} bytes before a page on rank 0, and {} bytes before a "
              "page on rank {}",
              all[0].page_distance, theirs.page_distance, rank));
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<SharedMemory>> AllocateWindowMemory(MPI_Comm communicator,
                                                           uint64_t size_bytes,
                                                           std::string_view why_window) {
  int rank = 0;
  int rank_count = 0;
  MPI_Comm_rank(communicator, &rank);
  MPI_Comm_size(communicator, &rank_count);
  LMDBIO_TRY_VOID(CheckRoom(communicator, rank, size_bytes, why_window));
  const auto page_bytes = MemoryPageBytes();
  // One page more, because the returned memory starts at a page boundary inside the window.
  const MpiWindow window = AllocateWindow(communicator, rank, size_bytes + page_bytes);
  const uint64_t page_distance = -reinterpret_cast<uintptr_t>(window.address) % page_bytes;
  LMDBIO_TRY_VOID(CheckOutcomes(
      communicator, rank_count, window,
      {.failed = window.code == MPI_SUCCESS ? 0U : 1U, .page_distance = page_distance}));
  return std::make_unique<WindowMemory>(
      window.handle, MutableBytes(window.address + page_distance, size_bytes),
      why_window.empty() ? "" : fmt::format("shared memory is a window of MPI's: {}", why_window));
}

}  // namespace lmdbio::ranks
