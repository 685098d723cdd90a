// lmdbio/file/provenance/explain.h - finds the ordered load that produces a given layout, if there
// is one.
//
// Source: dissertation 5.2.2 (provenance "collected ... later as one-time postprocessing");
// docs/provenance.md "Commit interval".
#ifndef LMDBIO_FILE_PROVENANCE_EXPLAIN_H_
#define LMDBIO_FILE_PROVENANCE_EXPLAIN_H_

#include <optional>

#include "lmdbio/file/layout/database.h"
#include "lmdbio/file/layout/layout.h"
#include "lmdbio/file/provenance/provenance.h"

namespace lmdbio::file {

// Parameters of the load that the caller knows. Hints are tried first, and verified like any other.
struct LoadHint {
  std::optional<uint64_t> commit_interval_records;
  std::optional<PutMode> put_mode;
};

struct ExplainedLoad {
  OrderedLoad load;  // its columns borrow from the arguments of ExplainLayout
  ReplayTotals totals;
};

// Searches for a load with a replay that equals `layout`, record by record and page by page.
//
// layout       of `database`, from a page walk
// key_bytes    [record count] sizes, from the same walk; borrowed by the result
// value_bytes  the same
// Returns: nothing if no load was found; that is no error
// Cost: a few replays that stop at the first difference, and one that does not
std::optional<ExplainedLoad> ExplainLayout(const Database& database, const Layout& layout,
                                           std::span<const uint32_t> key_bytes,
                                           std::span<const uint32_t> value_bytes,
                                           const LoadHint& hint = {});

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_PROVENANCE_EXPLAIN_H_
