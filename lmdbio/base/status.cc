#include "lmdbio/base/status.h"

#include <algorithm>

#include <fmt/format.h>

namespace lmdbio {
namespace {

// Names of files, keys and fields may have line breaks.
std::string OneLine(std::string text) {
  constexpr unsigned char kFirstPrintable = 0x20, kDelete = 0x7F;
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < kFirstPrintable || c == kDelete; }, '?');
  return text;
}

}  // namespace

// Logs and JSON contain these names, so they never change.
std::string_view ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kNotFound:
      return "not found";
    case ErrorCode::kPermission:
      return "permission denied";
    case ErrorCode::kIo:
      return "input/output error";
    case ErrorCode::kCorruption:
      return "corruption";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kStale:
      return "stale";
    case ErrorCode::kResourceExhausted:
      return "resource exhausted";
    case ErrorCode::kInternal:
      return "internal error";
    case ErrorCode::kPeerFailed:
      return "peer failed";
  }
  return "unknown error";
}

// The detail lies behind one pointer, so that a Result stays small on the path without errors.
Error::Error(ErrorCode code, std::string message, int error_number)
    : detail_(std::make_unique<Detail>(Detail{code, OneLine(std::move(message)), error_number})) {}

// Each layer adds the name that it knows, from the page up to the file and the rank.
Error Error::Within(std::string_view where) && {
  detail_->message = OneLine(fmt::format("{}: {}", where, detail_->message));
  return std::move(*this);
}

Error Error::Copy() const { return Error(code(), message(), error_number()); }

}  // namespace lmdbio
