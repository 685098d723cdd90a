// lmdbio/api/c/c_struct.h - reads structs of C callers, of any version, and their fields.
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

// field  with the name of its struct, for example "options.order"
inline tl::unexpected<Error> BadField(std::string_view field, std::string_view why) {
  return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: {}", field, why));
}

// Sets `to` to choices[value].
// Errors: kInvalidArgument  there is no choice with this number
template <typename T, size_t kCount>
Status Choose(std::string_view field, int value, const T (&choices)[kCount], T& to) {
  if (value < 0 || static_cast<size_t>(value) >= kCount) {
    return BadField(field, fmt::format("{} is out of range; expected 0 to {}", value, kCount - 1));
  }
  to = choices[value];
  return {};
}

// Reads a field whose 0 stands for the default, which `to` has already.
template <typename T, typename U>
void Take(T value, U& to) {
  if (value != 0) to = static_cast<U>(value);
}

// Completes a struct of a caller of any version. Fields that the caller's struct lacks are 0.
// name           the name of the struct, for messages
// init           the macro that initialises the struct, for messages
// given          may be null: all 0
// earlier_bytes  the sizes of the struct in earlier versions
// Errors: kInvalidArgument  no version of the struct has this struct_size
//         kUnsupported      a byte is set that this version does not know
template <typename Struct>
Result<Struct> CompleteStruct(std::string_view name, std::string_view init, const Struct* given,
                              std::span<const size_t> earlier_bytes = {}) {
  Struct complete = {};
  if (given == nullptr) return complete;
  size_t struct_bytes = 0;
  std::memcpy(&struct_bytes, given, sizeof struct_bytes);
  // A larger size is more likely an uninitialised struct than one of a later version.
  constexpr size_t kStructBytesMax = 1 << 16;
  const bool is_earlier = std::ranges::find(earlier_bytes, struct_bytes) != earlier_bytes.end();
  if ((struct_bytes < sizeof complete && !is_earlier) || struct_bytes > kStructBytesMax) {
    return BadField(fmt::format("{}.struct_size", name),
                    fmt::format("{} bytes is the size of no version of the struct; initialise it "
                                "with {}",
                                struct_bytes, init));
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof complete; i < struct_bytes; ++i) {
    if (bytes[i] == 0) continue;
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}: byte {} of {} is set, but this version of lmdbio knows only {} "
                            "bytes; update lmdbio or leave later fields 0",
                            name, i, struct_bytes, sizeof complete));
  }
  std::memcpy(&complete, given, std::min(sizeof complete, struct_bytes));
  return complete;
}

}  // namespace lmdbio::api
#endif  // LMDBIO_API_C_C_STRUCT_H_
