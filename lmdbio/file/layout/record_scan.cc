#include "lmdbio/file/layout/record_scan.h"

#include <fmt/format.h>

namespace lmdbio::file {

Result<bool> RecordScan::Next() {
  LMDBIO_TRY(const bool found, record_count_ == 0 ? cursor_.First() : cursor_.Next());
  // If the count is exact, the scan fails at the first record beyond it. So a damaged tree never
  // makes the pass longer than its description.
  const bool may_be_more = record_count_ < database_.entry_count() || !database_.counts_exactly();
  if (found && may_be_more) [[likely]] {
    ++record_count_;
    return true;
  }
  if (!found && database_.AcceptsRecordCount(record_count_)) return false;
  return Fail(ErrorCode::kCorruption,
              fmt::format("{}: page {}: the tree below it holds {} {} records, its description "
                          "says {}",
                          database_.pages().source().name(), database_.record().root.value,
                          found ? "more than" : "only", record_count_, database_.entry_count()));
}

}  // namespace lmdbio::file
