#include "lmdbio/base/placement.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <iterator>
#include <memory>
#include <system_error>

#include <fmt/format.h>

namespace lmdbio {
namespace {

constexpr int kCoreMax = (1 << 20) - 1;  // above the limit of every kernel

// Compute, input, synchronisation.
constexpr size_t kScpCoresMin = 3;

// A cpu_set_t for any number of cores. The type itself ends at 1,024 cores.
class CoreSet {
 public:
  explicit CoreSet(int core_count)
      : bytes_(CPU_ALLOC_SIZE(static_cast<size_t>(core_count))),
        set_(CPU_ALLOC(static_cast<size_t>(core_count))) {
    CPU_ZERO_S(bytes_, set_.get());
  }

  bool Has(int core) const { return CPU_ISSET_S(static_cast<size_t>(core), bytes_, set_.get()); }
  void Add(int core) { CPU_SET_S(static_cast<size_t>(core), bytes_, set_.get()); }
  bool ReadFromThisThread() { return ::sched_getaffinity(0, bytes_, set_.get()) == 0; }
  bool PinThisThread() const { return ::sched_setaffinity(0, bytes_, set_.get()) == 0; }

 private:
  struct FreeCores {
    void operator()(cpu_set_t* set) const { CPU_FREE(set); }
  };
  size_t bytes_;
  std::unique_ptr<cpu_set_t, FreeCores> set_;
};

// The kernel refuses a set that is smaller than its own. So this tries sets of growing size.
HostCores ReadProcessCores() {
  HostCores cores;
  for (int size = 1024; size <= kCoreMax + 1; size *= 4) {
    CoreSet set(size);
    if (!set.ReadFromThisThread()) {
      if (errno == EINVAL) continue;  // the set of the kernel is larger
      break;
    }
    for (int core = 0; core < size; ++core) {
      if (set.Has(core)) cores.allowed.push_back(core);
    }
    break;
  }
  // Core numbers may have gaps, so the count covers the largest number.
  cores.count = static_cast<int>(::sysconf(_SC_NPROCESSORS_CONF));
  if (!cores.allowed.empty()) cores.count = std::max(cores.count, cores.allowed.back() + 1);
  return cores;
}

// Removes and returns the text before the first `separator`. The separator is removed, too.
std::string_view TakeUntil(char separator, std::string_view& text) {
  const size_t end = std::min(text.find(separator), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

Result<int> ParseCore(std::string_view text) {
  int core = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), core);
  if (error != std::errc() || end != text.data() + text.size() || core < 0 || core > kCoreMax) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a core number", text));
  }
  return core;
}

Status CheckCores(std::span<const int> wanted, const HostCores& cores) {
  for (const int core : wanted) {
    if (std::ranges::binary_search(cores.allowed, core)) continue;
    // Two messages, because the remedies differ: another number, or another binding by the
    // launcher.
    if (core >= cores.count) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("core {} does not exist: this host has {}", core, cores.count));
    }
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("core {} may not be used by this process, which may use {}", core,
                            CoresText(cores.allowed)));
  }
  return {};
}

struct CorePart {
  std::string_view name;
  CoreList Placement::*cores;
};
constexpr std::array<CorePart, 3> kParts = {
    {{"compute", &Placement::compute}, {"input", &Placement::input}, {"sync", &Placement::sync}}};

// One part of "compute=0-2,4,input=6", as "compute=0-2,4".
Status TakePart(std::string_view text, const HostCores& cores, Placement& placement) {
  const size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  const auto part = std::ranges::find(kParts, name, &CorePart::name);
  if (equals == std::string_view::npos || part == kParts.end()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is invalid; expected scp, or compute=CORES, input=CORES and "
                            "sync=CORES, separated by commas",
                            text));
  }
  CoreList& to = placement.*part->cores;
  if (!to.empty()) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{} is given twice", name));
  }
  LMDBIO_TRY(to, ParseCores(text.substr(equals + 1)));
  return CheckCores(to, cores);
}

// Parses "compute=0-2,4,input=6". A comma ends a part only if an equals sign follows before the
// next comma. Otherwise the comma separates two cores of the same part.
Result<Placement> ParseGroup(std::string_view text, const HostCores& cores) {
  Placement placement;
  if (text.ends_with(',')) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("'{}' ends with a comma", text));
  }
  while (!text.empty()) {
    std::string_view rest = text;
    size_t length = TakeUntil(',', rest).size();
    while (!rest.empty() && rest.substr(0, rest.find(',')).find('=') == std::string_view::npos) {
      length += 1 + TakeUntil(',', rest).size();
    }
    LMDBIO_TRY_VOID(TakePart(text.substr(0, length), cores, placement));
    text = rest;
  }
  return placement;
}

// The group of this rank in "GROUP;GROUP". A single group is for all ranks.
Result<std::string_view> GroupOf(std::string_view text, const CoreShare& place) {
  const auto count = 1 + std::ranges::count(text, ';');
  if (count != 1 && count != place.ranks_on_host) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} groups for the {} ranks of this host; give one group, or one for "
                            "each rank",
                            count, place.ranks_on_host));
  }
  std::string_view group = TakeUntil(';', text);
  // Groups belong to the ranks of the host in their order.
  for (int i = 0; i < place.rank_on_host && count > 1; ++i) group = TakeUntil(';', text);
  return group;
}

// Adds a note for each pair of parts with a common core.
void NoteShared(Placement& placement) {
  for (size_t i = 0; i < kParts.size(); ++i) {
    for (size_t k = i + 1; k < kParts.size(); ++k) {
      CoreList both;
      std::ranges::set_intersection(placement.*kParts[i].cores, placement.*kParts[k].cores,
                                    std::back_inserter(both));
      // Shared cores are allowed: a host may have fewer cores than parts.
      if (both.empty()) continue;
      placement.notes.push_back(fmt::format("placement: {} and {} share cores {}", kParts[i].name,
                                            kParts[k].name, CoresText(both)));
    }
  }
}

// "scp": the ranks that share the allowed cores get contiguous ranges of nearly equal size. The
// last core of a range synchronises, the last but one reads, the others compute.
Placement PlaceAlone(const HostCores& cores, const CoreShare& place) {
  const uint64_t count = cores.allowed.size();
  const auto ranks = static_cast<uint64_t>(place.ranks_on_cores);
  const auto rank = static_cast<uint64_t>(place.rank_on_cores);
  const std::span<const int> all(cores.allowed);
  // Rounding down both bounds gives ranges without gap or overlap; their sizes differ by at most 1.
  const uint64_t first = rank * count / ranks;
  const std::span<const int> mine = all.subspan(first, (rank + 1) * count / ranks - first);
  Placement placement;
  // All ranks are pinned or none: an unpinned rank would disturb the pinned ones.
  if (count / ranks < kScpCoresMin) {
    placement.notes.push_back(fmt::format(
        "placement: scp needs {} cores for each rank, but {} rank{} may use {} cores; nothing is "
        "pinned",
        kScpCoresMin, ranks, ranks == 1 ? "" : "s", count));
    return placement;
  }
  placement.compute.assign(mine.begin(), mine.end() - 2);
  placement.input.assign(mine.end() - 2, mine.end() - 1);
  placement.sync.assign(mine.end() - 1, mine.end());
  return placement;
}

}  // namespace

std::string Placement::Describe() const {
  if (compute.empty() && input.empty() && sync.empty()) return "";
  std::string line;
  for (const CorePart& part : kParts) {
    const CoreList& cores = this->*part.cores;
    line += fmt::format("{}{} on {}", line.empty() ? "" : ", ", part.name,
                        cores.empty() ? "any core" : "cores " + CoresText(cores));
  }
  return line;
}

// Joins consecutive numbers to ranges: {0, 1, 2, 5} becomes "0-2,5".
std::string CoresText(std::span<const int> cores) {
  std::string text;
  for (size_t i = 0; i < cores.size();) {
    size_t end = i + 1;
    while (end < cores.size() && cores[end] == cores[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cores[i]);
    if (end > i + 1) text += fmt::format("-{}", cores[end - 1]);
    i = end;
  }
  return text;
}

Result<CoreList> ParseCores(std::string_view text) {
  CoreList cores;
  std::string_view rest = text;
  // At least one number is expected, so an empty text is an error.
  do {
    std::string_view range = TakeUntil(',', rest);
    const bool is_range = range.find('-') != std::string_view::npos;
    LMDBIO_TRY(const int first, ParseCore(TakeUntil('-', range)));
    int last = first;
    if (is_range) {
      LMDBIO_TRY(last, ParseCore(range));
    }
    if (last < first) {
      return Fail(ErrorCode::kInvalidArgument, fmt::format("{}-{} goes backwards", first, last));
    }
    for (int core = first; core <= last; ++core) cores.push_back(core);
  } while (!rest.empty());
  if (text.ends_with(',')) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("'{}' ends with a comma", text));
  }
  std::ranges::sort(cores);
  cores.erase(std::unique(cores.begin(), cores.end()), cores.end());
  return cores;
}

Result<HostCores> ProcessCores() {
  // Read once: a thread that was pinned since then would see its own cores only.
  static const HostCores kCores = ReadProcessCores();
  if (kCores.allowed.empty()) {
    return Fail(ErrorCode::kInternal,
                "the kernel does not report which cores this process may use");
  }
  return kCores;
}

// FNV-1a over the four bytes of each core number, so the order of the cores matters.
uint64_t CoresDigest(std::span<const int> cores) {
  uint64_t digest = 14695981039346656037U;
  for (const int core : cores) {
    for (int shift = 0; shift < 32; shift += 8) {
      digest = (digest ^ (static_cast<uint32_t>(core) >> shift & 0xFF)) * 1099511628211U;
    }
  }
  return digest;
}

// Ranks with equal digests may use the same cores and divide them in rank order.
CoreShare PlaceAmong(int rank_on_host, std::span<const uint64_t> digests) {
  CoreShare place;
  place.rank_on_host = rank_on_host;
  place.ranks_on_host = static_cast<int>(digests.size());
  const uint64_t mine = digests[static_cast<size_t>(rank_on_host)];
  place.ranks_on_cores = static_cast<int>(std::ranges::count(digests, mine));
  const auto before = digests.first(static_cast<size_t>(rank_on_host));
  place.rank_on_cores = static_cast<int>(std::ranges::count(before, mine));
  return place;
}

Result<Placement> PlaceThreads(std::string_view text, const HostCores& cores,
                               const CoreShare& place) {
  if (text.empty()) return Placement{};
  if (text == "scp") return PlaceAlone(cores, place);
  // Every error names the whole text, because it may come from a launcher's command line.
  const auto place_group = [&]() -> Result<Placement> {
    LMDBIO_TRY(const std::string_view group, GroupOf(text, place));
    return ParseGroup(group, cores);
  };
  Result<Placement> placement = place_group();
  if (!placement) {
    return Fail(std::move(placement).error().Within(fmt::format("placement \"{}\"", text)));
  }
  NoteShared(*placement);
  if (place.ranks_on_host > 1 && text.find(';') == std::string_view::npos) {
    placement->notes.push_back(fmt::format(
        "placement: all {} ranks of this host use the same cores", place.ranks_on_host));
  }
  return placement;
}

Status PinThisThread(std::span<const int> cores) {
  if (cores.empty()) return {};
  LMDBIO_TRY_VOID(ProcessCores());  // keeps the answer from before the first pinning
  int most = 0;                     // the largest core number, which determines the size of the set
  for (const int core : cores) {
    if (core < 0 || core > kCoreMax) {
      return Fail(ErrorCode::kInvalidArgument, fmt::format("{} is not a core number", core));
    }
    most = std::max(most, core);
  }
  CoreSet set(most + 1);
  for (const int core : cores) set.Add(core);
  if (set.PinThisThread()) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("cannot run on cores {}: {}", CoresText(cores),
                          std::error_code(errno, std::generic_category()).message()),
              errno);
}

}  // namespace lmdbio
