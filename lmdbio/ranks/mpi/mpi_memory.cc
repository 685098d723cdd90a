// One window holds everything, as rank 0's part:
//
//   each rank maps it      | MPI's own state | up to a page | size_bytes, handed out |
//   on a page of its own   ^ page            ^ window       ^ page
//
// The window starts wherever MPI's state ends, at the same distance from a page in every rank, so
// that each rank finds the same first page in it; this is checked.
//
// The window is one passive-target epoch for its whole life, in which MPI's unified memory model
// lets loads and stores be used; Group::Barrier orders them between ranks. What a system gives a
// process to map is zero-filled, so nobody touches the memory to make it so.
#include "lmdbio/ranks/mpi/mpi_memory.h"

#include <sys/statvfs.h>
#include <unistd.h>

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

using ranks::SharedMemory;

namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kAddressableBytes = uint64_t{1} << 62;  // more than any address space
constexpr uint64_t kForMpiBytes = 1 << 20;                 // MPI's own state, generously
constexpr const char* kUsualDirectory = "/dev/shm";

class WindowMemory final : public SharedMemory {
 public:
  WindowMemory(MPI_Win window, MutableBytes bytes, std::string note)
      : window_(window), bytes_(bytes), note_(std::move(note)) {}
  ~WindowMemory() override {
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

// Where Open MPI puts the files behind its windows; "" where that is unknown. MPI's own way to ask,
// MPI_T, takes 0.2 s, because Open MPI loads every component it has to answer.
std::string BackingDirectory() {
#ifdef OPEN_MPI
  const char* const chosen = std::getenv("OMPI_MCA_osc_sm_backing_directory");
  if (chosen != nullptr) return chosen;
  if (::access(kUsualDirectory, W_OK) == 0) return kUsualDirectory;
#endif
  return "";
}

// The free and the total bytes of the directory of the windows, as far as they can be known.
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

// The room, the need, and the remedy, as text for an error.
std::string WordsOfNoRoom(uint64_t size_bytes, const Room& room, std::string_view why_window) {
  std::string asked = fmt::format("{} bytes of shared memory", size_bytes);
  if (room.free_bytes == kUnlimited || size_bytes >= kAddressableBytes) return asked;
  const std::string directory = BackingDirectory();
  const uint64_t used_bytes = room.all_bytes - std::min(room.free_bytes, room.all_bytes);
  const uint64_t mib = AlignUp(used_bytes + size_bytes + kForMpiBytes, 1 << 20) / (1 << 20);
  const std::string for_docker =
      directory == kUsualDirectory ? fmt::format("docker run --shm-size={}m, or ", mib) : "";
  return fmt::format(
      "{}: {} has {} bytes, of which {} are free, and memory outside it is refused ({}); make {} "
      "larger ({}mount -o remount,size={}m {}) or ask for less",
      asked, directory, room.all_bytes, room.free_bytes, why_window, directory, for_docker, mib,
      directory);
}

// Open MPI's rank 0 looks for room itself, and returns without a word to the others, which wait for
// it for ever. So this rank 0 looks beforehand, and tells all ranks.
Status CheckRoom(MPI_Comm communicator, int rank, uint64_t size_bytes,
                 std::string_view why_window) {
  Room room = rank == 0 ? FindRoom() : Room();
  LMDBIO_TRY_VOID(BroadcastInPieces(communicator, 0, std::as_writable_bytes(std::span(&room, 1))));
  if (size_bytes < kAddressableBytes && size_bytes + kForMpiBytes <= room.free_bytes) return {};
  return Fail(ErrorCode::kResourceExhausted, WordsOfNoRoom(size_bytes, room, why_window));
}

struct MpiWindow {
  int code = MPI_SUCCESS;      // the first failure
  const char* call = nullptr;  // and whose it is
  MPI_Win handle = MPI_WIN_NULL;
  std::byte* address = nullptr;  // of rank 0's part, here
};

// Every step is made known by `code` alone, so that all ranks reach the exchange of codes.
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

struct Outcome {
  uint64_t failed = 0;
  uint64_t page_distance = 0;  // bytes from the window's start to the next page
};

// Success if all ranks have the window, at the same distance from a page.
Status CheckOutcomes(MPI_Comm communicator, int rank_count, const MpiWindow& window,
                     const Outcome& mine) {
  std::vector<Outcome> all(static_cast<size_t>(rank_count));
  LMDBIO_TRY_VOID(AllGatherInPieces(communicator, std::as_bytes(std::span(&mine, 1)),
                                    std::as_writable_bytes(std::span(all))));
  if (mine.failed != 0) return MpiStatus(window.code, window.call);
  for (int rank = 0; rank < rank_count; ++rank) {
    const Outcome& theirs = all[static_cast<size_t>(rank)];
    if (theirs.failed != 0) {
      return Fail(ErrorCode::kInternal, fmt::format("rank {} got no shared memory", rank));
    }
    if (theirs.page_distance != all[0].page_distance) {
      return Fail(
          ErrorCode::kInternal,
          fmt::format("shared memory starts {} bytes before a page on rank 0, {} on rank {}",
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
  const auto page_bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const MpiWindow window = AllocateWindow(communicator, rank, size_bytes + page_bytes);
  const uint64_t page_distance = -reinterpret_cast<uintptr_t>(window.address) % page_bytes;
  LMDBIO_TRY_VOID(CheckOutcomes(
      communicator, rank_count, window,
      {.failed = window.code == MPI_SUCCESS ? 0U : 1U, .page_distance = page_distance}));
  return std::make_unique<WindowMemory>(
      window.handle, MutableBytes(window.address + page_distance, size_bytes),
      fmt::format("shared memory is a window of MPI's: {}", why_window));
}

}  // namespace lmdbio::ranks
