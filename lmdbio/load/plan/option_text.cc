#include "lmdbio/load/plan/option_text.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <type_traits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lmdbio/base/digest.h"
#include "lmdbio/load/plan/option_list.h"

namespace lmdbio::load {
namespace {

using nlohmann::ordered_json;

template <typename T>
ordered_json JsonOf(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    const auto& choices = ChoicesOf(value);
    const auto found =
        std::ranges::find_if(choices, [&](const auto& choice) { return choice.value == value; });
    // A value outside the enumeration can only come from a cast.
    if (found == choices.end()) return static_cast<int>(value);
    return std::string(found->name);
  } else {
    return value;
  }
}

template <typename T>
ordered_json JsonOf(const std::optional<T>& value) {
  return value ? JsonOf(*value) : ordered_json();
}

// The digest decides; the text only serves the message. A text that is too long is left empty.
OptionValue ValueOf(const ordered_json& json) {
  const std::string text = json.is_string() ? json.get<std::string>() : json.dump();
  OptionValue value;
  value.digest = TextDigest(text);
  if (text.size() < value.shown.size()) std::ranges::copy(text, value.shown.begin());
  return value;
}

// Whether the text did not fit.
bool IsLong(const OptionValue& value) {
  return value.shown[0] == '\0' && value.digest != TextDigest("");
}

}  // namespace

std::string OptionsJson(const LoaderOptions& options) {
  ordered_json out = ordered_json::object();
  VisitOptions(options,
               [&](const OptionInfo& info, const auto& value) { out[info.name] = JsonOf(value); });
  // A name may hold any bytes; those that are not UTF-8 are replaced.
  return out.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::vector<OptionValue> CommonOptionValues(const LoaderOptions& options) {
  std::vector<OptionValue> values;
  VisitOptions(options, [&](const OptionInfo& info, const auto& value) {
    if (info.ranks == OptionRanks::kSame) values.push_back(ValueOf(JsonOf(value)));
  });
  return values;
}

std::string OptionDifference(std::span<const OptionValue> first, std::span<const OptionValue> other,
                             int rank) {
  size_t i = 0;
  for (const OptionInfo& info : kOptionInfos) {
    if (info.ranks != OptionRanks::kSame) continue;
    const OptionValue& one = first[i];
    const OptionValue& two = other[i];
    ++i;
    if (one.digest == two.digest) continue;
    if (IsLong(one) || IsLong(two)) {
      return fmt::format("{} of rank {} differs from that of rank 0", info.name, rank);
    }
    return fmt::format("{} is '{}' on rank {} and '{}' on rank 0", info.name, two.shown.data(),
                       rank, one.shown.data());
  }
  return "";
}

}  // namespace lmdbio::load
