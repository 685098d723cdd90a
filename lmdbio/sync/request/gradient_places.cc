#include "lmdbio/sync/request/gradient_places.h"

#include <algorithm>

#include <fmt/format.h>

#include "lmdbio/base/align.h"

namespace lmdbio::sync {
namespace {

constexpr uint64_t kLineBytes = 64;  // as in a fusion buffer

}  // namespace

Result<uint64_t> GradientPlaces::Take(uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  const uint64_t left = size_bytes_ - taken_bytes_;
  if (size_bytes > left) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("no room for {} bytes of gradients: {} are left of {} {}; increase "
                            "this option",
                            size_bytes, left, option_, size_bytes_));
  }
  const uint64_t address = begin_ + taken_bytes_;
  taken_bytes_ = std::min(AlignUp(taken_bytes_ + size_bytes, kLineBytes), size_bytes_);
  ends_.insert(address + size_bytes);
  return address;
}

bool GradientPlaces::Hold(std::span<const Request> requests, std::span<const uint64_t> addresses,
                          std::span<const uint64_t> offsets) const {
  const uint64_t first = addresses[0];
  if (first < begin_ || first - begin_ >= size_bytes_ || (first - begin_) % kLineBytes != 0) {
    return false;
  }
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < requests.size(); ++i) {
    if (addresses[i] != first + offsets[i]) return false;
    const uint64_t end = offsets[i] + requests[i].byte_count();
    const bool has_gap = i + 1 < requests.size() && end != offsets[i + 1];
    if (has_gap && !ends_.contains(first + end)) return false;
    if (end > size_bytes_ - (first - begin_)) return false;
  }
  return true;
}

}  // namespace lmdbio::sync
