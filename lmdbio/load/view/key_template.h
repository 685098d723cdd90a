// lmdbio/load/view/key_template.h - keys that hold the number of a sample: "image-{:09d}".
//
// Source: docs/views.md.
#ifndef LMDBIO_LOAD_VIEW_KEY_TEMPLATE_H_
#define LMDBIO_LOAD_VIEW_KEY_TEMPLATE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"

namespace lmdbio::load {

// The number that `text` is: decimal digits, and nothing else. Nothing if it is none, or 2^64 or
// more. Leading zeros are allowed.
std::optional<uint64_t> DecimalOf(std::string_view text);

// A key as words of a message: in quotes, or as hexadecimal digits if it is not printable. Long
// keys are cut off.
std::string KeyWords(Bytes key);
std::string KeyWords(std::string_view key);

// The bytes of a key as text.
inline std::string_view TextOf(Bytes key) {
  return {reinterpret_cast<const char*>(key.data()), key.size()};
}

class KeyTemplate {
 public:
  // text  with one place for the number: {} or {:d}; or {:0Wd}, which has at least W digits, with
  //       zeros in front, W from 1 to 20. {{ and }} stand for braces
  // Errors: kInvalidArgument  no place, several places, or an unknown one; says what to write
  static Result<KeyTemplate> Parse(std::string_view text);

  // The number in `key`; nothing if the key is not of this template.
  std::optional<uint64_t> NumberOf(std::string_view key) const;
  std::string KeyOf(uint64_t number) const;

 private:
  KeyTemplate(std::string before, std::string behind, size_t width)
      : before_(std::move(before)), behind_(std::move(behind)), width_(width) {}

  std::string before_, behind_;
  size_t width_ = 1;  // the least number of digits
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_VIEW_KEY_TEMPLATE_H_
