#include "lmdbio/load/view/key_template.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace lmdbio::load {
namespace {

constexpr size_t kWidthMax = 20;    // digits of 2^64 - 1
constexpr size_t kShownBytes = 64;  // of a key

bool IsDigit(char one) { return one >= '0' && one <= '9'; }

tl::unexpected<Error> BadTemplate(std::string_view text, std::string_view why) {
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("the key template \"{}\" {}: write for example \"image-{{:09d}}\" or "
                          "\"image-{{}}\"",
                          text, why));
}

// The least number of digits of a place, from the text between its braces.
std::optional<size_t> WidthOf(std::string_view format) {
  if (format.empty() || format == ":d") return 1;
  if (!format.starts_with(":0") || !format.ends_with('d')) return std::nullopt;
  const std::optional<uint64_t> width = DecimalOf(format.substr(2, format.size() - 3));
  if (!width || *width < 1 || *width > kWidthMax) return std::nullopt;
  return static_cast<size_t>(*width);
}

}  // namespace

std::optional<uint64_t> DecimalOf(std::string_view text) {
  // from_chars would take a minus sign.
  if (text.empty() || !std::ranges::all_of(text, IsDigit)) return std::nullopt;
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

std::string KeyWords(std::string_view key) {
  const std::string_view shown = key.substr(0, kShownBytes);
  const std::string_view more = shown.size() < key.size() ? "..." : "";
  const bool is_text =
      std::ranges::all_of(shown, [](char one) { return one >= ' ' && one <= '~' && one != '"'; });
  if (is_text) return fmt::format("\"{}{}\"", shown, more);
  std::string digits;
  for (const char one : shown) digits += fmt::format("{:02x}", static_cast<unsigned char>(one));
  return fmt::format("0x{}{}", digits, more);
}

std::string KeyWords(Bytes key) { return KeyWords(TextOf(key)); }

Result<KeyTemplate> KeyTemplate::Parse(std::string_view text) {
  std::string parts[2];
  size_t width = 0;  // 0: no place so far
  for (size_t i = 0; i < text.size(); ++i) {
    const char one = text[i];
    if (one != '{' && one != '}') {
      parts[width > 0 ? 1 : 0] += one;
      continue;
    }
    if (i + 1 < text.size() && text[i + 1] == one) {
      parts[width > 0 ? 1 : 0] += one;
      ++i;
      continue;
    }
    const size_t end = one == '{' ? text.find('}', i) : std::string_view::npos;
    if (end == std::string_view::npos) return BadTemplate(text, "has a brace without its partner");
    const std::optional<size_t> found = WidthOf(text.substr(i + 1, end - i - 1));
    if (!found) return BadTemplate(text, "has an unknown place for the number");
    if (width > 0) return BadTemplate(text, "has several places for the number");
    width = *found;
    i = end;
  }
  if (width == 0) return BadTemplate(text, "has no place for the number");
  return KeyTemplate(std::move(parts[0]), std::move(parts[1]), width);
}

std::optional<uint64_t> KeyTemplate::NumberOf(std::string_view key) const {
  if (key.size() < before_.size() + behind_.size() + width_) return std::nullopt;
  if (!key.starts_with(before_) || !key.ends_with(behind_)) return std::nullopt;
  key.remove_prefix(before_.size());
  key.remove_suffix(behind_.size());
  // A writer pads to the width, and no further.
  if (key.size() > width_ && key.front() == '0') return std::nullopt;
  return DecimalOf(key);
}

std::string KeyTemplate::KeyOf(uint64_t number) const {
  return fmt::format("{}{:0{}}{}", before_, number, width_, behind_);
}

}  // namespace lmdbio::load
