// lmdbio/api/c/c_struct.h - structs of C callers, of any version, and the fields in them.
#ifndef LMDBIO_API_C_C_STRUCT_H_
#define LMDBIO_API_C_C_STRUCT_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "lmdbio/base/status.h"

namespace lmdbio::api {

// field  with the name of its struct, as "options.order"
inline tl::unexpected<Error> BadField(std::string_view field, std::string_view why) {
  return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: {}", field, why));
}

// Sets `to` to the choice that `value` is the number of.
// Errors: kInvalidArgument  there is none of this number
template <typename T, size_t kCount>
Status Choose(std::string_view field, int value, const T (&choices)[kCount], T& to) {
  if (value < 0 || static_cast<size_t>(value) >= kCount) {
    return BadField(field, fmt::format("there is no {}", value));
  }
  to = choices[value];
  return {};
}

// What a field means that stands for a default with 0.
template <typename T, typename U>
void Take(T value, U& to) {
  if (value != 0) to = static_cast<U>(value);
}

// What the caller means, whatever version of the struct it knows: fields that it lacks are 0.
// name           of the struct, for messages
// init           what the caller should have begun with
// given          may be null: all 0
// earlier_bytes  what earlier versions of the struct ended with
// Errors: kInvalidArgument  struct_size is none that ever was
//         kUnsupported      something is set that this version does not know
template <typename Struct>
Result<Struct> CompleteStruct(std::string_view name, std::string_view init, const Struct* given,
                              std::span<const size_t> earlier_bytes = {}) {
  Struct complete = {};
  if (given == nullptr) return complete;
  size_t struct_bytes = 0;
  std::memcpy(&struct_bytes, given, sizeof struct_bytes);
  // Something that was never set is more likely than a struct of a later version.
  constexpr size_t kStructBytesMax = 1 << 16;
  const bool is_earlier = std::ranges::find(earlier_bytes, struct_bytes) != earlier_bytes.end();
  if ((struct_bytes < sizeof complete && !is_earlier) || struct_bytes > kStructBytesMax) {
    return BadField(fmt::format("{}.struct_size", name),
                    fmt::format("{} is none: begin with {}", struct_bytes, init));
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof complete; i < struct_bytes; ++i) {
    if (bytes[i] == 0) continue;
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}: byte {} of {} asks for what this version of lmdbio, which knows "
                            "{} bytes, has not",
                            name, i, struct_bytes, sizeof complete));
  }
  std::memcpy(&complete, given, std::min(sizeof complete, struct_bytes));
  return complete;
}

}  // namespace lmdbio::api
#endif  // LMDBIO_API_C_C_STRUCT_H_
