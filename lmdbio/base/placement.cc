#include "lmdbio/base/placement.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace lmdbio {
namespace {

constexpr int kCoreMax = (1 << 20) - 1;  // above the limit of every kernel

// Compute, input, synchronisation.
constexpr size_t kScpCoresMin = 3;

// The words for a core and a node in a list of cores.
struct CoreUnit {
  std::string_view name;
  int HardwareThread::*number;
};
constexpr CoreUnit kCoreUnit = {"core", &HardwareThread::core};
constexpr CoreUnit kNodeUnit = {"numa", &HardwareThread::node};

// The cores of another rank of the host may be forbidden to this process.
enum class GroupOwner { kThisRank, kAnyRank };

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
  std::string Placement::*at;
};
constexpr std::array<CorePart, 3> kParts = {
    {{"compute", &Placement::compute, &Placement::compute_at},
     {"input", &Placement::input, &Placement::input_at},
     {"sync", &Placement::sync, &Placement::sync_at}}};
constexpr size_t kCompute = 0;

// A group of the text. Parts that are near get their cores after all others.
struct ParsedGroup {
  Placement placement;
  std::array<bool, kParts.size()> is_near{};
};

bool Holds(std::span<const int> cores, int number) {
  return std::ranges::binary_search(cores, number);
}

void SortOut(CoreList& list) {
  std::ranges::sort(list);
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

// "core:0-5" for all cores that have a hardware thread among `cores`.
CoreList UnitsOf(const CoreUnit& unit, std::span<const int> cores,
                 std::span<const HardwareThread> topology) {
  CoreList units;
  for (const HardwareThread& thread : topology) {
    const bool is_known = thread.*unit.number >= 0;
    if (is_known && Holds(cores, thread.number)) units.push_back(thread.*unit.number);
  }
  SortOut(units);
  return units;
}

std::string UnitText(const CoreUnit& unit, std::span<const int> numbers) {
  return fmt::format("{}:{}", unit.name, CoresText(numbers));
}

// The hardware threads of "core:2" that this process may use.
Result<CoreList> ThreadsOf(const CoreUnit& unit, int number, const HostCores& cores,
                           GroupOwner owner) {
  CoreList all;
  CoreList threads;
  for (const HardwareThread& thread : cores.topology) {
    all.push_back(thread.number);
    const bool is_it = thread.*unit.number == number;
    if (is_it && Holds(cores.allowed, thread.number)) threads.push_back(thread.number);
  }
  if (!threads.empty() || owner == GroupOwner::kAnyRank) return threads;
  std::ranges::sort(all);
  const CoreList existing = UnitsOf(unit, all, cores.topology);
  if (!Holds(existing, number)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}:{} does not exist: this host has {}", unit.name, number,
                            existing.empty() ? "none" : UnitText(unit, existing)));
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{}:{} may not be used by this process, which may use {}", unit.name,
                          number, UnitText(unit, UnitsOf(unit, cores.allowed, cores.topology))));
}

Status NeedTopology(std::string_view text, const HostCores& cores) {
  if (!cores.topology.empty()) return {};
  return Fail(ErrorCode::kUnsupported,
              fmt::format("'{}' needs the topology of this host, which is unknown: {}; or give "
                          "numbers of cores, as 0-5",
                          text, cores.why_no_topology));
}

// "0-5,8", "core:0-2" or "numa:0"
Result<CoreList> ParseUnits(std::string_view text, const HostCores& cores, GroupOwner owner) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) {
    LMDBIO_TRY(CoreList list, ParseCores(text));
    if (owner == GroupOwner::kThisRank) LMDBIO_TRY_VOID(CheckCores(list, cores));
    return list;
  }
  const std::string_view name = text.substr(0, colon);
  if (name != kCoreUnit.name && name != kNodeUnit.name) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("'{}' is invalid; expected numbers, core:NUMBERS, numa:NUMBERS or near", text));
  }
  const CoreUnit& unit = name == kCoreUnit.name ? kCoreUnit : kNodeUnit;
  LMDBIO_TRY(const CoreList numbers, ParseCores(text.substr(colon + 1)));
  LMDBIO_TRY_VOID(NeedTopology(text, cores));
  CoreList list;
  for (const int number : numbers) {
    LMDBIO_TRY(const CoreList threads, ThreadsOf(unit, number, cores, owner));
    list.insert(list.end(), threads.begin(), threads.end());
  }
  SortOut(list);
  return list;
}

// One part of "compute=0-2,4,input=6", as "compute=0-2,4".
Status TakePart(std::string_view text, const HostCores& cores, GroupOwner owner,
                ParsedGroup& group) {
  const size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  const auto part = std::ranges::find(kParts, name, &CorePart::name);
  if (equals == std::string_view::npos || part == kParts.end()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is invalid; expected scp, or compute=CORES, input=CORES and "
                            "sync=CORES, separated by commas",
                            text));
  }
  CoreList& to = group.placement.*part->cores;
  const auto index = static_cast<size_t>(part - kParts.begin());
  if (!to.empty() || group.is_near[index]) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{} is given twice", name));
  }
  const std::string_view list = text.substr(equals + 1);
  if (list == "near" && index != kCompute) {
    group.is_near[index] = true;
    return NeedTopology(text, cores);
  }
  LMDBIO_TRY(to, ParseUnits(list, cores, owner));
  return {};
}

// Parses "compute=0-2,4,input=6". A comma ends a part only if an equals sign follows before the
// next comma. Otherwise the comma separates two cores of the same part.
Result<ParsedGroup> ParseGroup(std::string_view text, const HostCores& cores, GroupOwner owner) {
  ParsedGroup group;
  if (text.ends_with(',')) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("'{}' ends with a comma", text));
  }
  while (!text.empty()) {
    std::string_view rest = text;
    size_t length = TakeUntil(',', rest).size();
    while (!rest.empty() && rest.substr(0, rest.find(',')).find('=') == std::string_view::npos) {
      length += 1 + TakeUntil(',', rest).size();
    }
    LMDBIO_TRY_VOID(TakePart(text.substr(0, length), cores, owner, group));
    text = rest;
  }
  for (size_t i = 0; i < kParts.size(); ++i) {
    if (!group.is_near[i] || !group.placement.compute.empty()) continue;
    if (owner == GroupOwner::kAnyRank) continue;
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{0}=near is a core near those of compute: add compute=CORES", kParts[i].name));
  }
  return group;
}

// The last core on the nodes of `compute` without a hardware thread in `taken`; empty if all have
// one.
CoreList FreeCoreNear(const CoreList& compute, const CoreList& taken, const HostCores& cores) {
  const CoreList nodes = UnitsOf(kNodeUnit, compute, cores.topology);
  const CoreList busy = UnitsOf(kCoreUnit, taken, cores.topology);
  int core = -1;
  CoreList found;
  for (const HardwareThread& thread : cores.topology) {
    const bool is_free = Holds(nodes, thread.node) && !Holds(busy, thread.core);
    if (!is_free || !Holds(cores.allowed, thread.number)) continue;
    if (thread.core != core) found.clear();
    core = thread.core;
    found.push_back(thread.number);
  }
  std::ranges::sort(found);
  return found;
}

// Gives cores to the parts that are near, in the order of groups and parts. So all ranks of the
// host that may use the same cores choose the same.
// own  the group of this rank
Status FillNear(std::span<ParsedGroup> groups, size_t own, const HostCores& cores) {
  CoreList taken;
  const auto take = [&](const CoreList& list) {
    taken.insert(taken.end(), list.begin(), list.end());
    SortOut(taken);
  };
  for (const ParsedGroup& group : groups) {
    for (const CorePart& part : kParts) take(group.placement.*part.cores);
  }
  for (size_t at = 0; at < groups.size(); ++at) {
    Placement& placement = groups[at].placement;
    for (size_t i = 0; i < kParts.size(); ++i) {
      if (!groups[at].is_near[i]) continue;
      CoreList& list = placement.*kParts[i].cores;
      list = FreeCoreNear(placement.compute, taken, cores);
      take(list);
      if (!list.empty() || at != own) continue;
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("{}=near: no core of {} is free that this process may use", kParts[i].name,
                      UnitText(kNodeUnit, UnitsOf(kNodeUnit, placement.compute, cores.topology))));
    }
  }
  return {};
}

// The groups of "GROUP;GROUP", and the index of this rank's. A single group is for all ranks.
Result<size_t> SplitGroups(std::string_view text, const CoreShare& place,
                           std::vector<std::string_view>& groups) {
  const auto count = 1 + std::ranges::count(text, ';');
  if (count != 1 && count != place.ranks_on_host) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} groups for the {} ranks of this host; give one group, or one for "
                            "each rank",
                            count, place.ranks_on_host));
  }
  for (auto i = count; i > 0; --i) groups.push_back(TakeUntil(';', text));
  return count == 1 ? size_t{0} : static_cast<size_t>(place.rank_on_host);
}

// The placement of this rank by the groups of `text`.
Result<Placement> PlaceByGroups(std::string_view text, const HostCores& cores,
                                const CoreShare& place) {
  std::vector<std::string_view> texts;
  LMDBIO_TRY(const size_t own, SplitGroups(text, place, texts));
  LMDBIO_TRY(ParsedGroup mine, ParseGroup(texts[own], cores, GroupOwner::kThisRank));
  if (std::ranges::find(mine.is_near, true) == mine.is_near.end()) return mine.placement;
  std::vector<ParsedGroup> groups;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i == own) {
      groups.push_back(mine);
      continue;
    }
    LMDBIO_TRY(groups.emplace_back(), ParseGroup(texts[i], cores, GroupOwner::kAnyRank));
  }
  LMDBIO_TRY_VOID(FillNear(groups, own, cores));
  return groups[own].placement;
}

// Notes for a pair of parts: a common core, or different hardware threads of one core.
void NoteShared(const CorePart& one, const CorePart& other, const HostCores& cores,
                Placement& placement) {
  const auto common = [](const CoreList& some, const CoreList& others) {
    CoreList both;
    std::ranges::set_intersection(some, others, std::back_inserter(both));
    return both;
  };
  const CoreList& some = placement.*one.cores;
  const CoreList& others = placement.*other.cores;
  // Shared cores are allowed: a host may have fewer cores than parts.
  if (const CoreList both = common(some, others); !both.empty()) {
    placement.notes.push_back(
        fmt::format("placement: {} and {} share cores {}", one.name, other.name, CoresText(both)));
    return;
  }
  const CoreList both =
      common(UnitsOf(kCoreUnit, some, cores.topology), UnitsOf(kCoreUnit, others, cores.topology));
  if (both.empty()) return;
  placement.notes.push_back(fmt::format("placement: {} and {} have different hyperthreads of {}",
                                        one.name, other.name, UnitText(kCoreUnit, both)));
}

// A note for a part whose threads run on other NUMA nodes than the threads that compute.
void NoteFar(const CorePart& part, const HostCores& cores, Placement& placement) {
  const CoreList here = UnitsOf(kNodeUnit, placement.*part.cores, cores.topology);
  const CoreList there = UnitsOf(kNodeUnit, placement.compute, cores.topology);
  if (here.empty() || there.empty()) return;
  if (std::ranges::find_first_of(here, there) != here.end()) return;
  placement.notes.push_back(fmt::format("placement: {} is on {}, but compute is on {}", part.name,
                                        UnitText(kNodeUnit, here), UnitText(kNodeUnit, there)));
}

void NoteCompromises(const HostCores& cores, Placement& placement) {
  for (size_t i = 0; i < kParts.size(); ++i) {
    for (size_t k = i + 1; k < kParts.size(); ++k) {
      NoteShared(kParts[i], kParts[k], cores, placement);
    }
    if (i != kCompute) NoteFar(kParts[i], cores, placement);
  }
}

// "core:6, numa:0"
std::string PlaceText(std::span<const int> list, const HostCores& cores) {
  const CoreList units = UnitsOf(kCoreUnit, list, cores.topology);
  const CoreList nodes = UnitsOf(kNodeUnit, list, cores.topology);
  if (units.empty()) return "";
  return UnitText(kCoreUnit, units) + (nodes.empty() ? "" : ", " + UnitText(kNodeUnit, nodes));
}

// The cores that scp divides: the hardware threads that this process may use, by core, in the order
// of the topology. One by one in numeric order if it is unknown.
std::vector<CoreList> AllowedByCore(const HostCores& cores) {
  std::vector<CoreList> by_core;
  size_t count = 0;
  int core = -1;
  for (const HardwareThread& thread : cores.topology) {
    if (!Holds(cores.allowed, thread.number)) continue;
    if (thread.core != core) by_core.emplace_back();
    core = thread.core;
    by_core.back().push_back(thread.number);
    ++count;
  }
  if (count == cores.allowed.size()) return by_core;
  by_core.clear();
  for (const int number : cores.allowed) by_core.push_back({number});
  return by_core;
}

// One list for each hardware thread.
std::vector<CoreList> Separate(std::span<const CoreList> by_core) {
  std::vector<CoreList> single;
  for (const CoreList& core : by_core) {
    for (const int number : core) single.push_back({number});
  }
  return single;
}

CoreList Join(std::span<const CoreList> by_core) {
  CoreList all;
  for (const CoreList& core : by_core) all.insert(all.end(), core.begin(), core.end());
  std::ranges::sort(all);
  return all;
}

// "scp": the ranks that share the allowed cores get contiguous ranges of nearly equal size. The
// last core of a range synchronises, the last but one reads, the others compute.
Placement PlaceAlone(const HostCores& cores, const CoreShare& place) {
  const auto ranks = static_cast<uint64_t>(place.ranks_on_cores);
  const auto rank = static_cast<uint64_t>(place.rank_on_cores);
  Placement placement;
  std::vector<CoreList> all = AllowedByCore(cores);
  // All ranks are pinned or none: an unpinned rank would disturb the pinned ones.
  if (cores.allowed.size() / ranks < kScpCoresMin) {
    placement.notes.push_back(fmt::format(
        "placement: scp needs {} cores for each rank, but {} rank{} may use {} cores; nothing is "
        "pinned",
        kScpCoresMin, ranks, ranks == 1 ? "" : "s", cores.allowed.size()));
    return placement;
  }
  if (all.size() / ranks < kScpCoresMin) {
    placement.notes.push_back(
        fmt::format("placement: {} cores are fewer than {} for each rank, so scp takes each "
                    "hyperthread for a core",
                    all.size(), kScpCoresMin));
    all = Separate(all);
  }
  // Rounding down both bounds gives ranges without gap or overlap; their sizes differ by at most 1.
  const uint64_t first = rank * all.size() / ranks;
  const uint64_t end = (rank + 1) * all.size() / ranks;
  const auto mine = std::span<const CoreList>(all).subspan(first, end - first);
  placement.compute = Join(mine.first(mine.size() - 2));
  placement.input = Join(mine.last(2).first(1));
  placement.sync = Join(mine.last(1));
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
    if (const std::string& at = this->*part.at; !at.empty()) line += " (" + at + ")";
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

// Ranges are joined before their numbers are listed. So a text costs memory for each core once,
// however often it repeats a range.
Result<CoreList> ParseCores(std::string_view text) {
  std::vector<std::pair<int, int>> ranges;  // first, last
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
    ranges.emplace_back(first, last);
  } while (!rest.empty());
  if (text.ends_with(',')) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("'{}' ends with a comma", text));
  }
  std::ranges::sort(ranges);
  CoreList cores;
  for (const auto& [first, last] : ranges) {
    const int behind = cores.empty() ? 0 : cores.back() + 1;
    for (int core = std::max(first, behind); core <= last; ++core) cores.push_back(core);
  }
  return cores;
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
  const bool is_scp = text == "scp";
  Result<Placement> placement =
      is_scp ? PlaceAlone(cores, place) : PlaceByGroups(text, cores, place);
  // Every error names the whole text, because it may come from a launcher's command line.
  if (!placement) {
    return Fail(std::move(placement).error().Within(fmt::format("placement \"{}\"", text)));
  }
  for (const CorePart& part : kParts) {
    (*placement).*part.at = PlaceText((*placement).*part.cores, cores);
  }
  if (is_scp) return placement;
  NoteCompromises(cores, *placement);
  if (place.ranks_on_host > 1 && text.find(';') == std::string_view::npos) {
    placement->notes.push_back(fmt::format(
        "placement: all {} ranks of this host use the same cores", place.ranks_on_host));
  }
  return placement;
}

}  // namespace lmdbio
