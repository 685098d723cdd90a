#include "lmdbio/ranks/linked/meeting_place.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lmdbio::ranks {

std::string WordsForOthers(int rank, const Error& why) {
  if (why.code() == ErrorCode::kPeerFailed) return why.message();
  return fmt::format("rank {}: {}", rank, why.message());
}

tl::unexpected<Error> OtherSize(int size, int size_of_rank_0) {
  return Fail(
      ErrorCode::kInvalidArgument,
      fmt::format("this rank expects {} ranks, rank 0 expects {}: all ranks need one number", size,
                  size_of_rank_0));
}

std::string NamesOfRanks(std::span<const int> ranks) {
  constexpr size_t kNamedMax = 8;
  if (ranks.size() == 1) return fmt::format("rank {}", ranks[0]);
  const size_t shown = ranks.size() <= kNamedMax ? ranks.size() - 1 : kNamedMax;
  const std::string first = fmt::format("ranks {}", fmt::join(ranks.first(shown), ", "));
  if (ranks.size() <= kNamedMax) return fmt::format("{} and {}", first, ranks.back());
  return fmt::format("{} and {} more", first, ranks.size() - shown);
}

}  // namespace lmdbio::ranks
