// lmdbio-stat: prints the figures of mdb_stat -ef -a, and the locations of the records in the file.
// It does not use LMDB and does not open the lock file.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/file/io/data_path.h"
#include "lmdbio/file/layout/database.h"
#include "lmdbio/file/layout/page_walk.h"
#include "lmdbio/file/layout/record_scan.h"
#include "lmdbio/file/source/file_source.h"
#include "tools/cli/cli.h"
#include "tools/cli/flag_names.h"
#include "tools/cli/progress_bar.h"
#include "tools/cli/provenance_file.h"
#include "tools/inspect/layout_statistics.h"
#include "tools/inspect/lock_file.h"

namespace {

using lmdbio::Bytes;
using lmdbio::Result;
using lmdbio::Status;
using lmdbio::file::Database;
using lmdbio::file::DatabaseRecord;
using lmdbio::file::Environment;
using lmdbio::file::Snapshot;
using lmdbio::tools::Invocation;
using lmdbio::tools::LayoutStatistics;
using nlohmann::ordered_json;

ordered_json DescribeEnvironment(const Environment& environment) {
  const Snapshot& snapshot = environment.snapshot();
  const uint64_t page_bytes = snapshot.page_format.page_size_bytes();
  const uint64_t map_bytes = lmdbio::tools::MapSizeBytes(snapshot);
  ordered_json outcome;
  outcome["data_file"] = environment.pages().source().name();
  outcome["file_size_bytes"] = snapshot.file_size_bytes;
  outcome["data_version"] = static_cast<uint32_t>(snapshot.page_format.version());
  outcome["map_size_bytes"] = map_bytes;
  outcome["page_size_bytes"] = page_bytes;
  outcome["max_pages"] = map_bytes / page_bytes;
  // The count includes the two meta pages, as in mdb_stat.
  outcome["pages_used"] = snapshot.meta.last_page.value + 1;
  outcome["last_transaction_id"] = snapshot.meta.transaction_id;
  outcome["max_readers"] = lmdbio::tools::ReaderSlots(environment.pages().source().name());
  return outcome;
}

ordered_json DescribeTree(const DatabaseRecord& record) {
  return {{"tree_depth", record.depth},
          {"branch_pages", record.branch_pages},
          {"leaf_pages", record.leaf_pages},
          {"overflow_pages", record.overflow_pages},
          {"entries", record.entry_count}};
}

// Each value of the free list is a count, followed by that many page numbers. All are 64-bit words.
// The count is checked against the size of the value before it is used.
Result<ordered_json> DescribeFreeList(const Environment& environment) {
  LMDBIO_TRY(const Database free_list, environment.FreeList());
  ordered_json outcome = DescribeTree(free_list.record());
  lmdbio::file::RecordScan scan(free_list);
  uint64_t page_count = 0;
  for (;;) {
    LMDBIO_TRY(const bool found, scan.Next());
    if (!found) break;
    LMDBIO_TRY(const Bytes value, scan.cursor().Value());
    const uint64_t count =
        value.size() < sizeof(uint64_t) ? 0 : lmdbio::file::Load<uint64_t>(value, 0);
    if (value.size() < sizeof(uint64_t) || count > value.size() / sizeof(uint64_t) - 1) {
      return environment.pages().Corrupt(free_list.record().root,
                                         "the free list below it has a record that is too short");
    }
    page_count += count;
  }
  outcome["free_pages"] = page_count;
  return outcome;
}

std::string FlagNames(uint16_t flags) {
  std::string text;
  for (const auto& [flag, name] : lmdbio::tools::kFlagNames) {
    if ((flags & flag) != 0) text += text.empty() ? name : std::string(" ") + name;
  }
  return text.empty() ? "none" : text;
}

ordered_json DescribeSizes(const LayoutStatistics& statistics) {
  const uint64_t count = std::max<uint64_t>(statistics.record_count(), 1);
  ordered_json outcome = {
      {"key_bytes_min", statistics.key_bytes_min()},
      {"key_bytes_max", statistics.key_bytes_max()},
      {"value_bytes_min", statistics.value_bytes_min()},
      {"value_bytes_mean", statistics.value_bytes_total() / count},
      {"value_bytes_max", statistics.value_bytes_max()},
      {"in_overflow_pages", statistics.overflow_record_count()},
  };
  ordered_json histogram = ordered_json::object();
  for (size_t bucket = 0; bucket < LayoutStatistics::kBucketCount; ++bucket) {
    if (statistics.buckets()[bucket] == 0) continue;
    // Bucket b holds the sizes with b significant bits.
    const uint64_t low = bucket == 0 ? 0 : uint64_t{1} << (bucket - 1);
    const uint64_t high = bucket == 0 ? 0 : (low << 1) - 1;
    histogram[fmt::format("{} to {}", low, high)] = statistics.buckets()[bucket];
  }
  outcome["records_by_value_bytes"] = std::move(histogram);
  return outcome;
}

// The percentage of steps, from one record to the next in key order, for each distance.
ordered_json DescribeOrder(const LayoutStatistics& statistics) {
  // n records have n - 1 steps; one record has none, and all percentages are 0.
  const auto steps = static_cast<double>(std::max<uint64_t>(statistics.record_count(), 2) - 1);
  const auto percent = [&](uint64_t count) {
    return std::round(10000.0 * static_cast<double>(count) / steps) / 100.0;
  };
  return {{"adjacent", percent(statistics.adjacent_count())},
          {"forward_within_64_kib", percent(statistics.near_count())},
          {"forward_farther", percent(statistics.far_count())},
          {"backward", percent(statistics.backward_count())}};
}

// A missing or stale provenance file is no failure: the state is part of the report.
ordered_json DescribeProvenance(const Database& database) {
  const Result<lmdbio::tools::ProvenanceFile> file = lmdbio::tools::ReadProvenanceFile(database);
  if (!file && file.error().code() == lmdbio::ErrorCode::kNotFound) return {{"state", "none"}};
  if (!file) return {{"state", "unreadable"}, {"reason", file.error().message()}};
  const Status fits = lmdbio::file::CheckFingerprint(file->provenance.fingerprint(), database);
  if (!fits) return {{"state", "does not fit"}, {"reason", fits.error().message()}};
  return {{"state", "fits"}, {"file_size_bytes", file->size_bytes}};
}

Result<ordered_json> DescribeDatabase(const Database& database) {
  ordered_json outcome = DescribeTree(database.record());
  outcome["flags"] = FlagNames(database.record().flags);
  LayoutStatistics statistics(database.pages().page_format());
  lmdbio::tools::ProgressBar bar("walking " + (database.name().empty() ? "main" : database.name()));
  LMDBIO_TRY_VOID(
      lmdbio::file::WalkDatabase(database, statistics, [&](double done) { bar.Update(done); }));
  if (statistics.record_count() != database.entry_count()) {  // LMDB's own count is wrong
    outcome["records_found"] = statistics.record_count();
  }
  outcome["sizes"] = DescribeSizes(statistics);
  outcome["steps_in_key_order_percent"] = DescribeOrder(statistics);
  outcome["provenance"] = DescribeProvenance(database);
  return outcome;
}

Result<ordered_json> Describe(const Environment& environment) {
  ordered_json outcome;
  outcome["environment"] = DescribeEnvironment(environment);
  LMDBIO_TRY(outcome["free_list"], DescribeFreeList(environment));
  LMDBIO_TRY(outcome["main"], DescribeDatabase(environment.Main()));
  // Named databases are records of the main one, so the walk above has counted them as records,
  // too.
  LMDBIO_TRY(const std::vector<std::string> names, environment.Names());
  for (const std::string& name : names) {
    LMDBIO_TRY(const Database database, environment.Named(name));
    ordered_json described = {{"name", name}};
    LMDBIO_TRY(const ordered_json database_outcome, DescribeDatabase(database));
    described.update(database_outcome);
    outcome["named"].push_back(std::move(described));
  }
  return outcome;
}

Status Stat(const Invocation& invocation) {
  LMDBIO_TRY(const std::string path, lmdbio::file::FindDataFile(invocation.operand("PATH")));
  LMDBIO_TRY(const auto source, lmdbio::file::FileSource::Open(path));
  // Sizes and locations come from leaf pages. Overflow pages are not read, so read-ahead would only
  // cost time.
  source->Advise(lmdbio::AccessPattern::kRandom);
  LMDBIO_TRY(const Environment environment, Environment::Open(*source));
  Result<ordered_json> outcome = Describe(environment);
  // An active writer makes a file look damaged, and makes an intact outcome wrong. So this checks
  // for one in both cases.
  LMDBIO_TRY_VOID(environment.CheckHolds());
  if (!outcome) return lmdbio::Fail(std::move(outcome).error());
  return invocation.Report(*outcome);
}

}  // namespace

int main(int argc, char** argv) {
  const std::array commands = {lmdbio::tools::Command{
      "", "PATH", "Prints the databases, trees and record locations of an LMDB file.", nullptr,
      &Stat}};
  return lmdbio::tools::RunTool("lmdbio-stat", "Describes an LMDB file.", commands, argc, argv);
}
