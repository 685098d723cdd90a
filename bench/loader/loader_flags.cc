#include "bench/loader/loader_flags.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include <fmt/format.h>

#include "lmdbio/load/plan/option_list.h"
#include "tools/cli/sizes.h"

namespace lmdbio::tools {
namespace {

using load::OptionInfo;
using load::OptionUnit;

// Words for the values 0 and -1 of an option of type int64_t. KeptBytes reads them.
constexpr const char* kAuto = "auto";
constexpr const char* kNever = "never";

// "global-batch-size" of "global-batch-size,b".
std::string LongName(const OptionInfo& info) {
  const std::string_view flag = info.flag;
  return std::string(flag.substr(0, flag.find(',')));
}

template <typename T>
// The choices of an enum come from the table of options, so a new choice needs no change here.
std::string NameOf(const T& value) {
  for (const auto& choice : load::ChoicesOf(value)) {
    if (choice.value == value) return std::string(choice.name);
  }
  return "";
}

template <typename T>
T ValueNamed(const OptionInfo& info, std::string_view word) {
  std::string known;
  for (const auto& choice : load::ChoicesOf(T{})) {
    if (choice.name == word) return choice.value;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", choice.name);
  }
  throw Misuse(fmt::format("--{} takes {}, not '{}'", LongName(info), known, word));
}

// A size that needs no more digits than a reader wants to see.
std::string SizeText(uint64_t bytes) {
  constexpr std::pair<uint64_t, const char*> kUnits[] = {
      {uint64_t{1} << 30, "G"}, {uint64_t{1} << 20, "M"}, {uint64_t{1} << 10, "K"}};
  for (const auto& [unit, letter] : kUnits) {
    if (bytes > 0 && bytes % unit == 0) return fmt::format("{}{}", bytes / unit, letter);
  }
  return fmt::format("{}", bytes);
}

// --- The default of a flag; an option that is left to the strategy has none ---

template <typename T>
std::optional<std::string> DefaultOf(const OptionInfo& info, const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return NameOf(value);
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? "on" : "off";
  } else if constexpr (std::is_same_v<T, std::string>) {
    return value;
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return value == 0 ? kAuto : SizeText(static_cast<uint64_t>(value));
  } else {
    return info.unit == OptionUnit::kBytes ? SizeText(static_cast<uint64_t>(value))
                                           : fmt::format("{}", value);
  }
}

template <typename T>
std::optional<std::string> DefaultOf(const OptionInfo& /*info*/, const std::optional<T>& value) {
  return value ? std::optional(NameOf(*value)) : std::nullopt;
}

// --- The value of a flag ---

template <typename T>
T NumberOf(const OptionInfo& info, const std::string& text) {
  const std::string name = LongName(info);
  if (info.unit == OptionUnit::kBytes) return static_cast<T>(ParseSize(text, name));
  const uint64_t whole = ParseWhole(text, fmt::format("--{}", name));
  const auto most = info.most > 0 ? static_cast<uint64_t>(info.most)
                                  : static_cast<uint64_t>(std::numeric_limits<T>::max());
  // The table gives 0 for "no limit", and the limit is then that of the type.
  if (whole < static_cast<uint64_t>(info.least) || whole > most) {
    throw Misuse(fmt::format("--{} must lie between {} and {}", name, info.least, most));
  }
  return static_cast<T>(whole);
}

int64_t KeptBytes(const OptionInfo& info, const std::string& text) {
  if (text == kAuto) return 0;
  if (text == kNever) return -1;
  const uint64_t bytes = ParseSize(text, LongName(info));
  return static_cast<int64_t>(std::min<uint64_t>(bytes, std::numeric_limits<int64_t>::max()));
}

bool SwitchOf(const OptionInfo& info, const std::string& text) {
  if (text != "on" && text != "off") {
    throw Misuse(fmt::format("--{} takes on, off, not '{}'", LongName(info), text));
  }
  return text == "on";
}

template <typename T>
void SetValue(const OptionInfo& info, const std::string& text, T& value) {
  if constexpr (std::is_enum_v<T>) {
    value = ValueNamed<T>(info, text);
  } else if constexpr (std::is_same_v<T, bool>) {
    value = SwitchOf(info, text);
  } else if constexpr (std::is_same_v<T, std::string>) {
    value = text;
  } else if constexpr (std::is_same_v<T, int64_t>) {
    value = KeptBytes(info, text);
  } else {
    value = NumberOf<T>(info, text);
  }
}

template <typename T>
void SetValue(const OptionInfo& info, const std::string& text, std::optional<T>& value) {
  value = ValueNamed<T>(info, text);
}

bool HasFlag(const OptionInfo& info, load::OptionUse use) {
  return info.use == use && *info.flag != '\0';
}

}  // namespace

void DescribeLoaderFlags(load::OptionUse use, po::options_description_easy_init options) {
  const load::LoaderOptions defaults;
  load::VisitOptions(defaults, [&](const OptionInfo& info, const auto& value) {
    if (!HasFlag(info, use)) return;
    // Every flag is text, because words such as auto, sizes such as 1M and plain numbers may occur
    // in the same flag. SetValue parses it by the type of the option.
    auto* text = po::value<std::string>()->value_name(info.value_name);
    if (const auto given = DefaultOf(info, value)) text->default_value(*given);
    options(info.flag, text, info.help);
  });
}

void SetLoaderOptions(load::OptionUse use, const Invocation& invocation,
                      load::LoaderOptions& options) {
  load::VisitOptions(options, [&](const OptionInfo& info, auto& value) {
    if (!HasFlag(info, use)) return;
    const std::string name = LongName(info);
    // Only flags without a default can be missing. Their options keep the value "the strategy
    // chooses".
    if (!invocation.has(name.c_str())) return;
    SetValue(info, invocation.option<std::string>(name.c_str()), value);
  });
}

}  // namespace lmdbio::tools
