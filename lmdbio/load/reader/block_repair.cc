#include "lmdbio/load/reader/block_repair.h"

#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/align.h"

namespace lmdbio::load {
namespace {

// The smallest part that is read on its own. Records on a smaller bad part are all left out.
constexpr uint64_t kPartBytesMin = 4096;

}  // namespace

Status BlockRepair::Tolerate(const Error& why) const {
  Error error = guard_.Explain(why.Copy());
  if (on_error_ == OnError::kRaise || error.code() == ErrorCode::kStale) {
    return Fail(std::move(error));
  }
  return {};
}

// A bisection: a part that can be read is complete; a part that cannot be read is halved. A single
// bad page in a block of 1 MiB costs 16 more reads.
Status BlockRepair::Reread(uint64_t slot, MutableBytes memory, const PlannedExtent& extent,
                           uint64_t bad_at) const {
  const auto [offset, length_bytes] = extent.file;
  const Result<Bytes> read = source_.Read(extent.file, memory.subspan(extent.at, length_bytes));
  if (read) return {};
  if (length_bytes <= kPartBytesMin) {
    if (window_.AddBadRange(slot, {bad_at + extent.at, length_bytes})) return {};
    return Fail(read.error().Copy().Within(fmt::format(
        "{}: too many unreadable parts to skip their records one by one", source_.name())));
  }
  const uint64_t half = AlignUp(length_bytes / 2, kPartBytesMin);
  LMDBIO_TRY_VOID(Reread(slot, memory, {{offset, half}, extent.at}, bad_at));
  return Reread(slot, memory, {{offset + half, length_bytes - half}, extent.at + half}, bad_at);
}

}  // namespace lmdbio::load
