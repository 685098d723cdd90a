#include "lmdbio/ranks/group/rank_names.h"

#include <array>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace lmdbio::ranks {
namespace {

constexpr size_t kNameBytes = 256;

}  // namespace

std::string RankName(const Group& group, int rank) {
  return fmt::format("rank {}{}{}", rank, group.host_name().empty() ? "" : " on ",
                     group.host_name());
}

Result<std::vector<std::string>> GatherRankNames(Group& group, int known_as) {
  const std::string name = RankName(group, known_as < 0 ? group.rank() : known_as);
  std::array<char, kNameBytes> mine{};
  name.copy(mine.data(), mine.size() - 1);
  LMDBIO_TRY(const auto all, group.AllGather(std::as_bytes(std::span(mine))));
  std::vector<std::string> names;
  for (size_t at = 0; at < all.size(); at += kNameBytes) {
    // A rank of another version may have sent no zero.
    const std::string_view text(reinterpret_cast<const char*>(&all[at]), kNameBytes);
    names.emplace_back(text.substr(0, text.find('\0')));
  }
  return names;
}

}  // namespace lmdbio::ranks
