#include "lmdbio/ranks/shm/huge_pages.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/ranks/shm/call_failure.h"

namespace lmdbio::ranks {
namespace {

constexpr int kCollapse = 25;  // MADV_COLLAPSE of Linux 6.1

// After this many refusals in a row no further region is tried: each try costs time, and the reason
// (no free huge page, a memory limit) seldom goes away.
constexpr int kRefusalsMax = 4;

// The kernel refuses for a moment while another process looks at the same pages.
constexpr int kTriesMax = 3;
constexpr auto kPauseBetweenTries = std::chrono::microseconds(100);

// The longest wait for a region that another thread or process prepares.
constexpr auto kOthersLimit = std::chrono::milliseconds(100);
constexpr auto kOthersCheckPeriod = std::chrono::microseconds(50);

bool DeniesHugePages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  std::string words;
  std::getline(file, words);
  return words.find("[deny]") != std::string::npos;
}

// `error_number` of MADV_COLLAPSE in words for the user.
std::string ReasonOf(int error_number) {
  switch (error_number) {
    case EINVAL:
      return DeniesHugePages() ? "/sys/kernel/mm/transparent_hugepage/shmem_enabled is deny"
                               : "the kernel has no MADV_COLLAPSE for this memory (Linux 6.1 has)";
    case ENOMEM:
      return "no huge page is free";
    case EBUSY:
      return "the memory limit of a control group is reached";
    default:
      return WordsOfFailure("MADV_COLLAPSE", error_number);
  }
}

// 0 if the kernel does not tell.
uint64_t KernelHugeBytes() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
  uint64_t bytes = 0;
  file >> bytes;
  return bytes;
}

std::string NoteOf(const std::string& reason) {
  return "the memory of batches has small pages, so direct reads may be slower: " + reason;
}

}  // namespace

int HugePages::Collapse(std::byte* region) {
  // A page of the region must exist. The byte is written as it is, in one step: a read into the
  // region may be in flight, if its reader did not wait.
  const std::atomic_ref<unsigned char> first(*reinterpret_cast<unsigned char*>(region));
  unsigned char value = first.load();
  first.compare_exchange_strong(value, value);
  for (int tries = 1;; ++tries) {
    if (::madvise(region, kPageBytes, kCollapse) == 0) return 0;
    if (errno != EAGAIN || tries == kTriesMax) return errno;
    std::this_thread::sleep_for(kPauseBetweenTries);
  }
}

HugePages::HugePages(MutableBytes memory, MutableBytes states, HugePageOptions options)
    : memory_(memory), options_(std::move(options)) {
  if (options_.collapse == nullptr) options_.collapse = &Collapse;
  LMDBIO_CHECK(states.size() >= StateBytes(memory.size()));
  if (reinterpret_cast<uintptr_t>(memory.data()) % kPageBytes != 0) {
    is_refused_ = true;
    note_ = NoteOf("it does not begin at a multiple of 2 MiB, as a window of MPI may");
    return;
  }
  if (options_.kernel_huge_bytes == 0) options_.kernel_huge_bytes = KernelHugeBytes();
  if (options_.kernel_huge_bytes > kPageBytes) {
    is_refused_ = true;
    note_ =
        NoteOf(fmt::format("a huge page of this kernel has {} MiB, more than the 2 MiB of a region",
                           options_.kernel_huge_bytes >> 20));
    return;
  }
  // Zero bytes are regions that nobody has touched.
  regions_ = {std::launder(reinterpret_cast<SharedRegion*>(states.data())),
              StateBytes(memory.size())};
}

HugePages::~HugePages() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  if (thread_.joinable()) thread_.join();
}

HugePages::Span HugePages::RegionsOf(const Extent& range) const {
  const auto region_at = [&](uint64_t offset) {
    return std::min<size_t>(offset / kPageBytes, regions_.size());
  };
  const uint64_t end = range.offset + range.length_bytes;
  return {region_at(range.offset), region_at(end + kPageBytes - 1)};
}

void HugePages::PrepareAhead(const Extent& range) {
  if (is_refused()) return;
  const std::lock_guard lock(mutex_);
  const Span wanted = RegionsOf(range);
  const uint64_t end = range.offset + range.length_bytes;
  const uint64_t room_bytes = options_.ahead_end - std::min(end, options_.ahead_end);
  wanted_.push_back(wanted);
  ahead_ = {wanted.end, RegionsOf({end, std::min(options_.ahead_bytes, room_bytes)}).end};
  StartThread();
  work_.notify_one();
}

// Without a thread, Prepare does all of the work.
void HugePages::StartThread() {
  if (thread_.joinable() || has_no_thread_) return;
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error&) {
    has_no_thread_ = true;
  }
}

bool HugePages::IsPrepared(const Extent& range) const {
  const Span wanted = RegionsOf(range);
  const auto regions = regions_.subspan(wanted.first, wanted.end - wanted.first);
  return std::all_of(regions.begin(), regions.end(), [](const SharedRegion& one) {
    const Region state = one.load();
    return state == Region::kHuge || state == Region::kSmall;
  });
}

void HugePages::Prepare(const Extent& range, uint64_t beyond_bytes) {
  const Span wanted = RegionsOf(range);
  Span beyond{wanted.end, RegionsOf({range.offset, range.length_bytes + beyond_bytes}).end};
  for (size_t i = wanted.first; i < wanted.end; ++i) PrepareRegion(i);
  // Regions of others come last: this call prepares its own meanwhile.
  const auto give_up = std::chrono::steady_clock::now() + kOthersLimit;
  for (size_t i = wanted.first; i < wanted.end; ++i) {
    while (regions_[i].load() == Region::kInProgress &&
           std::chrono::steady_clock::now() < give_up) {
      if (beyond.first == beyond.end) {
        std::this_thread::sleep_for(kOthersCheckPeriod);
      } else {
        PrepareRegion(beyond.first++);
      }
    }
    // So that later calls do not wait for it again.
    Region state = Region::kInProgress;
    regions_[i].compare_exchange_strong(state, Region::kSmall);
  }
}

void HugePages::PrepareRegion(size_t index) {
  Region state = Region::kUntouched;
  // After a refusal the region still gets a state, so that no other process touches it later.
  const Region next = is_refused() ? Region::kSmall : Region::kInProgress;
  if (!regions_[index].compare_exchange_strong(state, next) || next == Region::kSmall) return;
  const int error_number = options_.collapse(memory_.data() + index * kPageBytes);
  regions_[index].store(error_number == 0 ? Region::kHuge : Region::kSmall);
  if (error_number == 0) {
    refusals_.store(0);
  } else {
    TakeRefusal(error_number);
  }
}

void HugePages::TakeRefusal(int error_number) {
  // The same answer would come for every region.
  const bool is_final = error_number == EINVAL || error_number == ENOSYS;
  if (refusals_.fetch_add(1) + 1 >= kRefusalsMax || is_final) is_refused_.store(true);
  // Older kernels give private memory huge pages at its first touch, and have no MADV_COLLAPSE.
  if (is_final && MappedHugeBytes(memory_) > 0) return;
  const std::lock_guard lock(mutex_);
  if (note_.empty()) note_ = NoteOf(ReasonOf(error_number));
}

uint64_t HugePages::huge_bytes() const {
  const auto count = std::count_if(regions_.begin(), regions_.end(), [](const SharedRegion& one) {
    return one.load(std::memory_order_relaxed) == Region::kHuge;
  });
  return static_cast<uint64_t>(count) * kPageBytes;
}

std::optional<std::string> HugePages::TakeNote() {
  const std::lock_guard lock(mutex_);
  if (note_.empty() || has_taken_note_) return std::nullopt;
  has_taken_note_ = true;
  return note_;
}

// The next region for the thread: of the wanted ranges in their order, then ahead of them. Sleeps
// until there is one; nothing once the object is destroyed.
std::optional<size_t> HugePages::TakeNext() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    while (!wanted_.empty() && wanted_.front().first == wanted_.front().end) wanted_.pop_front();
    if (!wanted_.empty()) return wanted_.front().first++;
    if (ahead_.first < ahead_.end) return ahead_.first++;
    work_.wait(lock);
  }
  return std::nullopt;
}

void HugePages::Run() {
  ::pthread_setname_np(::pthread_self(), "lmdbio-pages");  // for ps, top and profilers
  // A failure leaves the thread on any core.
  static_cast<void>(PinThisThread(options_.cores));
  while (const std::optional<size_t> index = TakeNext()) {
    PrepareRegion(*index);
  }
}

// /proc/self/smaps has a line "BEGIN-END ..." for each mapping, and lines "NAME: N kB" below it.
uint64_t MappedHugeBytes(Bytes memory) {
  const auto begin = reinterpret_cast<uintptr_t>(memory.data());
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  uint64_t huge_bytes = 0;
  bool is_inside = false;
  while (std::getline(maps, line)) {
    uint64_t first = 0;
    uint64_t end = 0;
    uint64_t kib = 0;
    std::array<char, 32> name{};
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64, &first, &end) == 2) {
      is_inside = first < begin + memory.size() && begin < end;
    } else if (is_inside &&
               std::sscanf(line.c_str(), "%31[A-Za-z]: %" SCNu64 " kB", name.data(), &kib) == 2) {
      const std::string_view word = name.data();
      const bool is_huge =
          word == "AnonHugePages" || word == "ShmemPmdMapped" || word == "FilePmdMapped";
      if (is_huge) huge_bytes += kib << 10;
    }
  }
  return huge_bytes;
}

}  // namespace lmdbio::ranks
