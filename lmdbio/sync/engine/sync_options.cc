#include "lmdbio/sync/engine/sync_options.h"

#include <algorithm>
#include <string_view>
#include <type_traits>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lmdbio/sync/engine/sync_option_list.h"

namespace lmdbio::sync {
namespace {

// More memory than any host has. Sums of several such sizes still fit into 64 bits.
constexpr uint64_t kBytesMax = uint64_t{1} << 44;

template <typename... Parts>
Status BadOption(const SyncOptionInfo& info, fmt::format_string<Parts...> text, Parts&&... parts) {
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: {}", info.name, fmt::format(text, std::forward<Parts>(parts)...)));
}

Status CheckField(const SyncOptionInfo& info, const std::string& value) {
  if (info.choices.empty() || std::ranges::find(info.choices, value) != info.choices.end()) {
    return {};
  }
  return BadOption(info, "'{}' is unknown; expected one of {}", value,
                   fmt::join(info.choices, ", "));
}

template <typename Rep, typename Period>
Status CheckField(const SyncOptionInfo& info, std::chrono::duration<Rep, Period> value) {
  // A year is longer than any run, and short enough that no sum with a point in time overflows.
  using Unit = std::chrono::duration<Rep, Period>;
  if (value >= Unit(info.least) && value <= std::chrono::hours(24 * 365)) return {};
  return BadOption(info, "{} is out of range; expected {} to one year", value.count(), info.least);
}

Status CheckField(const SyncOptionInfo& /*info*/, bool /*value*/) { return {}; }

template <std::unsigned_integral Number>
Status CheckField(const SyncOptionInfo& info, Number value) {
  if (value < static_cast<uint64_t>(info.least)) {
    return BadOption(info, "{} is out of range; expected {} or more", value, info.least);
  }
  if (info.unit == SyncOptionUnit::kBytes && value > kBytesMax) {
    return BadOption(info, "{} bytes are out of range; expected at most {}", value, kBytesMax);
  }
  return {};
}

template <typename Rep, typename Period>
Rep ShownValue(std::chrono::duration<Rep, Period> value) {
  return value.count();
}
template <typename T>
const T& ShownValue(const T& value) {
  return value;
}

// The first option whose sums may differ from run to run, or with the place of a value.
Status CheckReproducible(const SyncOptions& options) {
  const auto refuse = [](const std::string& option, const char* why) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("reproducible: not with {}: {}", option, why));
  };
  if (options.collective == "ring") {
    return refuse("collective 'ring'", "the bits of a sum depend on its place in a call");
  }
  if (options.collective == "mpi") {
    return refuse("collective 'mpi'", "a trial decides which algorithms reduce, or MPI does");
  }
  if (options.coordinator == "caramel" && options.order == "split") {
    return refuse("order 'split'", "it adds in another order than the rounds before a plan");
  }
  if (options.host_roots > 1) {
    return refuse("several host_roots", "they may reduce in different orders");
  }
  if (options.device_collective == "nccl" || options.device_collective == "mpi") {
    return refuse(fmt::format("device_collective '{}'", options.device_collective),
                  "the library decides which algorithms reduce");
  }
  return {};
}

}  // namespace

Status SyncOptions::Check() const {
  Status first;
  VisitSyncOptions(*this, [&](const SyncOptionInfo& info, const auto& value) {
    if (first) first = CheckField(info, value);
  });
  LMDBIO_TRY_VOID(std::move(first));
  if (reproducible) LMDBIO_TRY_VOID(CheckReproducible(*this));
  if (slice_bytes > 0 && !follows_plans()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("slice_bytes: {}: only plans have slices, and coordinator '{}' follows "
                            "none; use 'topo' or 'caramel'",
                            slice_bytes, coordinator));
  }
  if ((order == "bins" || order == "split") && coordinator != "caramel") {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("order: '{}': only coordinator 'caramel' orders a plan, and the "
                            "coordinator is '{}'",
                            order, coordinator));
  }
  if (num_groups > 0 && coordinator == "caramel" && order != "arrival") {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("num_groups: {}: a plan by time has no tensor groups; use order "
                            "'arrival', or another coordinator",
                            num_groups));
  }
  return {};
}

// The ranks compare this text at Create. Text and not a digest, so that the error can show the
// options of both ranks.
std::string SyncOptions::CommonWords() const {
  std::vector<std::string> words;
  VisitSyncOptions(*this, [&](const SyncOptionInfo& info, const auto& value) {
    if (info.ranks == SyncOptionRanks::kMayDiffer) return;
    words.push_back(fmt::format("{} {}", info.name, ShownValue(value)));
  });
  return fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace lmdbio::sync
