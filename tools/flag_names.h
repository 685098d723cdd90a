// tools/flag_names.h - the flags of a database in the words of mdb_dump.
#ifndef LMDBIO_TOOLS_FLAG_NAMES_H_
#define LMDBIO_TOOLS_FLAG_NAMES_H_

#include <array>
#include <utility>

#include "lmdbio/format/meta_page.h"

namespace lmdbio::tools {

inline constexpr std::array<std::pair<format::DatabaseFlags, const char*>, 6> kFlagNames = {{
    {format::kReverseKey, "reversekey"},
    {format::kDupSort, "dupsort"},
    {format::kIntegerKey, "integerkey"},
    {format::kDupFixed, "dupfixed"},
    {format::kIntegerDup, "integerdup"},
    {format::kReverseDup, "reversedup"},
}};

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_FLAG_NAMES_H_
