#include "lmdbio/sync/over_wire/wire_choice.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

namespace lmdbio::sync {
namespace {

constexpr std::array<std::pair<WireAlgorithm, std::string_view>, 4> kNames{{
    {WireAlgorithm::kDoubling, "doubling"},
    {WireAlgorithm::kRing, "ring"},
    {WireAlgorithm::kHalving, "halving"},
    {WireAlgorithm::kDirect, "direct"},
}};

constexpr uint64_t kUsualDoublingBytesMax = 16 << 10;

}  // namespace

std::string_view NameOf(WireAlgorithm algorithm) {
  for (const auto& [known, name] : kNames) {
    if (known == algorithm) return name;
  }
  return "unknown";
}

Result<WireAlgorithm> ParseWireAlgorithm(std::string_view name) {
  std::string choices;
  for (const auto& [algorithm, known] : kNames) {
    if (known == name) return algorithm;
    choices += fmt::format("{}{}", choices.empty() ? "" : ", ", known);
  }
  return Fail(
      ErrorCode::kInvalidArgument,
      fmt::format("unknown algorithm '{}' for AllReduce; expected one of {}", name, choices));
}

// The table may come from rank 0, so every field is checked.
Status CheckWireTable(const WireTable& table) {
  const auto refuse = [](std::string what) {
    return Fail(ErrorCode::kInvalidArgument, "table of algorithms: " + std::move(what));
  };
  if (table.empty() || table.back().bytes_max != kAnyBytes) {
    return refuse("the last row must apply to any size");
  }
  for (size_t i = 0; i < table.size(); ++i) {
    const WireChoice& row = table[i];
    if (i > 0 && row.bytes_max <= table[i - 1].bytes_max)
      return refuse("bytes_max must rise from row to row");
    if (row.chunk_bytes == 0 || row.chunk_depth == 0)
      return refuse("chunk_bytes and chunk_depth must be greater than 0");
    if (NameOf(row.algorithm) == "unknown") return refuse("unknown algorithm");
    if (row.algorithm == WireAlgorithm::kDoubling && row.bytes_max > kDoublingBytesMax) {
      return refuse(fmt::format("doubling is for at most {} bytes", kDoublingBytesMax));
    }
  }
  return {};
}

const WireChoice& ChoiceFor(const WireTable& table, uint64_t bytes) {
  // The last row takes any size, so a row is always found.
  return *std::find_if(table.begin(), table.end(),
                       [bytes](const WireChoice& row) { return bytes <= row.bytes_max; });
}

// Few bytes: the number of steps decides, and doubling has the fewest. Then halving: 2 log2 P steps
// with 2 N bytes in all. Many bytes: the ring sends as few bytes as halving, in chunks that flow
// between neighbours alone.
WireTable UsualWireTable() {
  return {{.bytes_max = kUsualDoublingBytesMax, .algorithm = WireAlgorithm::kDoubling},
          {.bytes_max = 1 << 20, .algorithm = WireAlgorithm::kHalving},
          {.bytes_max = kAnyBytes, .algorithm = WireAlgorithm::kRing}};
}

WireTable OneWireAlgorithm(WireAlgorithm algorithm, uint64_t chunk_bytes, uint32_t chunk_depth) {
  WireChoice choice{.bytes_max = kAnyBytes,
                    .algorithm = algorithm,
                    .chunk_bytes = chunk_bytes == 0 ? kUsualChunkBytes : chunk_bytes,
                    .chunk_depth = chunk_depth == 0 ? kUsualChunkDepth : chunk_depth};
  if (algorithm != WireAlgorithm::kDoubling) return {choice};
  // An agreement carries a limited number of values. Halving takes the larger calls.
  WireChoice large = choice;
  choice.bytes_max = kDoublingBytesMax;
  large.algorithm = WireAlgorithm::kHalving;
  return {choice, large};
}

// The ring begins the sum of a part at the rank behind its owner.
bool IsReproducible(const WireTable& table) {
  const WireAlgorithm algorithm = table.front().algorithm;
  return algorithm != WireAlgorithm::kRing &&
         std::ranges::all_of(table,
                             [&](const WireChoice& row) { return row.algorithm == algorithm; });
}

WireAlgorithm ReproducibleAlgorithm(int rank_count) {
  return rank_count > kDirectRanksMax ? WireAlgorithm::kHalving : WireAlgorithm::kDirect;
}

std::string TextOf(const WireTable& table) {
  std::string text;
  for (const WireChoice& row : table) {
    if (!text.empty()) text += '\n';
    text +=
        row.bytes_max == kAnyBytes ? "all others: " : fmt::format("to {} bytes: ", row.bytes_max);
    text += NameOf(row.algorithm);
    if (row.algorithm != WireAlgorithm::kDoubling) {
      text += fmt::format(", chunks of {} bytes, {} at once", row.chunk_bytes, row.chunk_depth);
    }
  }
  return text;
}

}  // namespace lmdbio::sync
