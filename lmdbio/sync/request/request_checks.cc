#include "lmdbio/sync/request/request_checks.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lmdbio::sync {
namespace {

// Limit of elements, so that the sizes in bytes of all ranks together fit 64 bits.
constexpr int64_t kElementsMax = int64_t{1} << 48;
constexpr size_t kRanksNamed = 8;

std::string Listed(std::span<const int64_t> numbers) {
  return fmt::format("[{}]", fmt::join(numbers, ", "));
}

// A dimension of 0 makes the count 0. It is taken as 1 here, so that the product of the other
// dimensions, the size of a row, is bounded as well.
bool IsPossible(std::span<const int64_t> shape) {
  int64_t count = 1;
  for (const int64_t dimension : shape) {
    if (dimension < 0) return false;
    if (dimension > 0 && count > kElementsMax / dimension) return false;
    count *= std::max<int64_t>(dimension, 1);
  }
  return true;
}

std::string WhatIsWrongWithSplits(const Request& request, int rank_count) {
  if (request.splits.size() != static_cast<size_t>(rank_count)) {
    return fmt::format("splits {}: expected one number for each of {} ranks",
                       Listed(request.splits), rank_count);
  }
  const int64_t rows = FirstDimension(request);
  // Subtracts from the rows instead of adding the splits, so that no sum overflows.
  int64_t left = rows;
  for (const int64_t split : request.splits) {
    if (split < 0 || split > left) left = -1;
    if (left < 0) break;
    left -= split;
  }
  if (left == 0) return "";
  return fmt::format("splits {}: the sum must be the {} rows of the tensor", Listed(request.splits),
                     rows);
}

// The product of an integer and a scale is exact, so the scale must be finite. Floating types take
// any scale, because infinity and NaN are values of these types.
std::string WhatIsWrongWithScales(const Request& request) {
  if (IsFloating(request.type)) return "";
  const auto problem = [&](std::string_view name, double scale) {
    if (std::isfinite(scale)) return std::string();
    return fmt::format("{} {} is invalid for {}; expected a finite number", name, scale,
                       NameOf(request.type));
  };
  std::string wrong = problem("prescale", request.prescale);
  return wrong.empty() ? problem("postscale", request.postscale) : wrong;
}

// A field on which ranks must agree, as text. Equal texts mean equal values.
struct Field {
  std::string_view name;
  std::string (*text)(const RequestEntry& ask);
};

// Only the first dimension of a gather or an all-to-all may differ between ranks. It is not part of
// the text.
std::string ShapeText(const RequestEntry& ask) {
  const Request& request = ask.request;
  const bool may_differ =
      request.operation == Operation::kAllGather || request.operation == Operation::kAllToAll;
  if (!may_differ || request.shape.empty()) return Listed(request.shape);
  const auto rest = std::span(request.shape).subspan(1);
  return fmt::format("[any{}{}]", rest.empty() ? "" : ", ", fmt::join(rest, ", "));
}

// In the order in which differences are reported. `splits` may differ, and `extra` is merged.
constexpr Field kFields[] = {
    {"operation",
     [](const RequestEntry& ask) { return std::string(NameOf(ask.request.operation)); }},
    {"type", [](const RequestEntry& ask) { return std::string(NameOf(ask.request.type)); }},
    {"reduction",
     [](const RequestEntry& ask) { return std::string(NameOf(ask.request.reduce_op)); }},
    {"memory kind",
     [](const RequestEntry& ask) { return std::string(NameOf(ask.request.memory)); }},
    {"shape", ShapeText},
    {"prescale", [](const RequestEntry& ask) { return fmt::format("{}", ask.request.prescale); }},
    {"postscale", [](const RequestEntry& ask) { return fmt::format("{}", ask.request.postscale); }},
    {"root", [](const RequestEntry& ask) { return fmt::format("{}", ask.request.root); }},
    {"group", [](const RequestEntry& ask) { return fmt::format("'{}'", ask.request.group); }},
    {"group size",
     [](const RequestEntry& ask) { return fmt::format("{}", ask.request.group_size); }},
    {"a group of the tensors with digest",
     [](const RequestEntry& ask) { return fmt::format("{:x}", ask.group_digest); }},
};

// The values of one field and the ranks that have them, in the order of the ranks.
using Holders = std::vector<std::pair<std::string, std::vector<int32_t>>>;

// Linear search, because ranks disagree about few values.
Holders HoldersOf(const Field& field, std::span<const RequestEntry> asks) {
  Holders holders;
  for (const RequestEntry& ask : asks) {
    const std::string text = field.text(ask);
    auto found = std::ranges::find(holders, text, &Holders::value_type::first);
    if (found == holders.end()) found = holders.insert(found, {text, {}});
    found->second.insert(found->second.end(), ask.ranks.begin(), ask.ranks.end());
  }
  // The message names the lowest ranks first, and so does not depend on the order of arrival.
  for (auto& [text, ranks] : holders) std::ranges::sort(ranks);
  std::ranges::sort(holders, {}, [](const auto& holder) { return holder.second.front(); });
  return holders;
}

}  // namespace

// These checks need no other rank. So Submit makes them before anything is sent, rank 0 repeats
// them for the requests of all ranks, and the decoder for the answer of rank 0.
std::string WhatIsWrong(const Request& request, int rank_count) {
  if (!IsPossible(request.shape)) {
    return fmt::format("shape {} is invalid: a negative dimension, or too many elements",
                       Listed(request.shape));
  }
  if (request.operation == Operation::kBroadcast &&
      (request.root < 0 || request.root >= rank_count)) {
    return fmt::format("root {} is out of range; expected 0 to {}", request.root, rank_count - 1);
  }
  if (request.operation == Operation::kAllToAll) return WhatIsWrongWithSplits(request, rank_count);
  const bool is_scaled =
      request.operation == Operation::kAllReduce || request.operation == Operation::kReduceScatter;
  return is_scaled ? WhatIsWrongWithScales(request) : "";
}

std::string WhatDiffers(std::span<const RequestEntry> asks) {
  // The usual case: all ranks made the same request, so no text is built.
  if (asks.size() < 2) return "";
  for (const Field& field : kFields) {
    const Holders holders = HoldersOf(field, asks);
    if (holders.size() < 2) continue;
    std::string text;
    for (const auto& [value, ranks] : holders) {
      const char* verb = ranks.size() == 1 ? "has" : "have";
      text += text.empty() ? fmt::format("{} {} {} {}", NamesOf(ranks), verb, field.name, value)
                           : fmt::format(", {} {}", NamesOf(ranks), value);
    }
    return text;
  }
  return "";
}

std::string NamesOf(std::span<const int32_t> ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks.front());
  if (ranks.size() <= kRanksNamed) return fmt::format("ranks {}", fmt::join(ranks, ", "));
  return fmt::format("ranks {}, ... ({})", fmt::join(ranks.first(kRanksNamed), ", "), ranks.size());
}

int64_t FirstDimension(const Request& request) {
  return request.shape.empty() ? 1 : request.shape.front();
}

// Zeros are neutral in a sum only. A rank without rows changes nothing for a gather or an
// all-to-all, and a barrier moves no data.
std::string WhyNotWithout(const Request& request, int joined_rank) {
  switch (request.operation) {
    case Operation::kAllReduce:
    case Operation::kReduceScatter:
      if (request.reduce_op == ReduceOp::kSum) return "";
      return fmt::format(
          "rank {} has joined and contributes zeros, which is correct for a sum only", joined_rank);
    case Operation::kBroadcast:
      if (request.root != joined_rank) return "";
      return fmt::format("its root, rank {}, has joined", joined_rank);
    case Operation::kAdoptPlan:
      return fmt::format("rank {} has joined and follows no plan", joined_rank);
    case Operation::kAllGather:
    case Operation::kAllToAll:
    case Operation::kBarrier:
    case Operation::kJoin:
      return "";
  }
  return "";
}

}  // namespace lmdbio::sync
