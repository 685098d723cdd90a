#include "lmdbio/file/map/map_guard.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <mutex>

#include "lmdbio/base/align.h"
#include "lmdbio/base/check.h"

namespace lmdbio::file {

// The handler reads a range while other threads begin and end other ones, and it may not wait. So
// ranges are never freed, and a version tells whether one changed meanwhile: odd while it does.
struct GuardedRange {
  static constexpr uint64_t kNone = ~uint64_t{0};

  std::atomic<uint32_t> version{0};
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};  // 0: free
  std::atomic<int> fd{-1};
  std::atomic<uint64_t> file_bytes{kNone};  // written before lost_at
  std::atomic<uint64_t> lost_at{kNone};
};

namespace {

// All ranges: blocks of them, one behind the other.
struct RangeBlock {
  std::array<GuardedRange, 64> ranges;
  std::atomic<RangeBlock*> next{nullptr};
};

struct GuardState {
  const uintptr_t page_bytes = MemoryPageBytes();
  RangeBlock first;
  std::mutex mutex;  // of what follows; the handler does not take it
  size_t range_count = 0;
  bool has_handler = false;
  struct sigaction before = {};  // written while the handler is not set
};

// Never destroyed: a signal may arrive while the process ends.
GuardState& State() {
  static GuardState* const state = new GuardState;
  return *state;
}
// For the handler, which must not begin a static variable.
std::atomic<GuardState*> g_state{nullptr};

// --- In the handler: calls that are safe in signals, and no allocation ---------------------------

struct AddressRange {
  uintptr_t begin = 0;
  uintptr_t end = 0;
};

// False if `address` is not in the range.
bool Contains(const GuardedRange& range, uintptr_t address, AddressRange& found) {
  while (true) {
    const uint32_t version = range.version.load();
    found = {range.begin.load(), range.end.load()};
    if (version % 2 == 0 && version == range.version.load()) break;
  }
  return found.begin <= address && address < found.end;
}

// Puts zeros in the place of a page that cannot be read. Behind the end of a file they go up to the
// end of the map, so that a file that has lost many pages does not need as many maps.
bool ReplaceLost(GuardedRange& range, const AddressRange& map, uintptr_t address) {
  const uintptr_t page_bytes = g_state.load()->page_bytes;
  uintptr_t begin = AlignDown(address, page_bytes);
  uintptr_t end = begin + page_bytes;
  const uint64_t offset = begin - map.begin;
  struct stat file = {};
  const bool is_cut = ::fstat(range.fd.load(), &file) == 0 && file.st_size >= 0 &&
                      static_cast<uint64_t>(file.st_size) <= offset;
  if (is_cut) {
    begin = map.begin + AlignUp(static_cast<uint64_t>(file.st_size), page_bytes);
    end = AlignUp(map.end, page_bytes);
  }
  uint64_t none = GuardedRange::kNone;
  if (is_cut && range.lost_at.load() == none) {
    range.file_bytes.store(static_cast<uint64_t>(file.st_size));
  }
  range.lost_at.compare_exchange_strong(none, is_cut ? begin - map.begin : offset);
  return ::mmap(reinterpret_cast<void*>(begin), end - begin, PROT_READ,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

bool Replace(uintptr_t address) {
  GuardState* const state = g_state.load();
  for (RangeBlock* block = &state->first; block != nullptr; block = block->next.load()) {
    for (GuardedRange& range : block->ranges) {
      AddressRange map;
      if (Contains(range, address, map)) return ReplaceLost(range, map, address);
    }
  }
  return false;
}

void SetDefault(int signal) {
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  ::sigaction(signal, &action, nullptr);
}

// Does what would have happened without the guard. A fault comes again when the handler returns.
void PassOn(int signal, siginfo_t* info, void* context) {
  const struct sigaction& before = g_state.load()->before;
  const bool is_sent = info->si_code <= 0;  // by a process
  const bool has_info = (before.sa_flags & SA_SIGINFO) != 0;
  const bool is_default = !has_info && before.sa_handler == SIG_DFL;
  const bool is_ignored = !has_info && before.sa_handler == SIG_IGN;
  if (is_ignored && is_sent) return;
  if (is_default || is_ignored) {
    SetDefault(signal);
    if (is_sent) ::raise(signal);
    return;
  }
  if ((before.sa_flags & static_cast<int>(SA_RESETHAND)) != 0) SetDefault(signal);
  if (has_info) return before.sa_sigaction(signal, info, context);
  before.sa_handler(signal);
}

void OnBusError(int signal, siginfo_t* info, void* context) {
  const int error_number = errno;
  const bool is_fault = info->si_code > 0 && info->si_code != BUS_MCEERR_AO;
  if (!is_fault || !Replace(reinterpret_cast<uintptr_t>(info->si_addr))) {
    PassOn(signal, info, context);
  }
  errno = error_number;
}

// --- Outside of the handler ----------------------------------------------------------------------

bool IsOurs(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == OnBusError;
}

bool IsHandlerSet() {
  struct sigaction present = {};
  return ::sigaction(SIGBUS, nullptr, &present) == 0 && IsOurs(present);
}

// The mask and the stack are those of the program's own handler, which may be called.
void SetHandler(GuardState& state) {
  ::sigaction(SIGBUS, nullptr, &state.before);
  struct sigaction action = state.before;
  action.sa_sigaction = OnBusError;
  action.sa_flags &= ~static_cast<int>(SA_RESETHAND);
  action.sa_flags |= SA_SIGINFO | SA_ONSTACK;
  state.has_handler = ::sigaction(SIGBUS, &action, nullptr) == 0;
}

// Another handler may call this one, so it stays then.
void RemoveHandler(GuardState& state) {
  if (!IsHandlerSet()) return;
  ::sigaction(SIGBUS, &state.before, nullptr);
  state.has_handler = false;
}

GuardedRange& FreeRange(GuardState& state) {
  RangeBlock* block = &state.first;
  while (true) {
    for (GuardedRange& range : block->ranges) {
      if (range.end.load() == 0) return range;
    }
    if (block->next.load() == nullptr) block->next.store(new RangeBlock);
    block = block->next.load();
  }
}

}  // namespace

MapGuard::MapGuard(Bytes map, int fd) {
  LMDBIO_CHECK(!map.empty());
  GuardState& state = State();
  const std::lock_guard lock(state.mutex);
  g_state.store(&state);
  if (!state.has_handler) SetHandler(state);
  ++state.range_count;
  GuardedRange& range = FreeRange(state);
  const auto begin = reinterpret_cast<uintptr_t>(map.data());
  ++range.version;
  range.fd.store(fd);
  range.file_bytes.store(GuardedRange::kNone);
  range.lost_at.store(GuardedRange::kNone);
  range.begin.store(begin);
  range.end.store(begin + map.size());
  ++range.version;
  range_.reset(&range);
}

void MapGuard::Remove::operator()(GuardedRange* range) const {
  GuardState& state = State();
  const std::lock_guard lock(state.mutex);
  ++range->version;
  range->begin.store(0);
  range->end.store(0);
  ++range->version;
  if (--state.range_count == 0) RemoveHandler(state);
}

std::optional<MapLoss> MapGuard::loss() const {
  if (!range_) return std::nullopt;
  const uint64_t lost_at = range_->lost_at.load(std::memory_order_acquire);
  if (lost_at == GuardedRange::kNone) return std::nullopt;
  const uint64_t file_bytes = range_->file_bytes.load();
  if (file_bytes == GuardedRange::kNone) return MapLoss{lost_at, std::nullopt};
  return MapLoss{lost_at, file_bytes};
}

bool MapGuard::IsInForce() {
  GuardState& state = State();
  const std::lock_guard lock(state.mutex);
  return !state.has_handler || IsHandlerSet();
}

}  // namespace lmdbio::file
