// tools/cli/flag_names.h - the names that mdb_dump gives to the flags of a database.
#ifndef LMDBIO_TOOLS_CLI_FLAG_NAMES_H_
#define LMDBIO_TOOLS_CLI_FLAG_NAMES_H_

#include <array>
#include <utility>

#include "lmdbio/file/format/meta_page.h"

namespace lmdbio::tools {

inline constexpr std::array<std::pair<file::DatabaseFlags, const char*>, 6> kFlagNames = {{
    {file::kReverseKey, "reversekey"},
    {file::kDupSort, "dupsort"},
    {file::kIntegerKey, "integerkey"},
    {file::kDupFixed, "dupfixed"},
    {file::kIntegerDup, "integerdup"},
    {file::kReverseDup, "reversedup"},
}};

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_CLI_FLAG_NAMES_H_
