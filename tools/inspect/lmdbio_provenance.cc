// lmdbio-provenance: creates, shows and verifies the provenance file of an LMDB database.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/file/io/data_path.h"
#include "lmdbio/file/layout/layout.h"
#include "lmdbio/file/layout/page_walk.h"
#include "lmdbio/file/provenance/fingerprint.h"
#include "lmdbio/file/source/file_source.h"
#include "lmdbio/file/writer/record_provenance.h"
#include "tools/cli/cli.h"
#include "tools/cli/progress_bar.h"
#include "tools/cli/provenance_file.h"

namespace {

using lmdbio::Fail;
using lmdbio::Result;
using lmdbio::Status;
using lmdbio::file::Database;
using lmdbio::file::Environment;
using lmdbio::file::Layout;
using lmdbio::file::ProvenanceKind;
using lmdbio::file::RecordRun;
using lmdbio::tools::Invocation;
using lmdbio::tools::ProgressBar;
using lmdbio::tools::ProvenanceFile;
using nlohmann::ordered_json;
namespace po = boost::program_options;

std::string DatabaseName(const Invocation& invocation) {
  return invocation.has("name") ? invocation.option<std::string>("name") : "";
}

std::string_view KindName(ProvenanceKind kind) {
  return kind == ProvenanceKind::kOrderedLoad ? "ordered load" : "exact layout";
}

Result<Database> Choose(const Environment& environment, const std::string& name) {
  if (name.empty()) return environment.Main();
  return environment.Named(name);
}

// Opens the database of the command line and reports the result of `describe`.
Status Inspect(const Invocation& invocation, Result<ordered_json> (*describe)(const Database&)) {
  LMDBIO_TRY(const std::string path, lmdbio::file::FindDataFile(invocation.operand("PATH")));
  LMDBIO_TRY(const auto source, lmdbio::file::FileSource::Open(path));
  // The tree walk reads branch and leaf pages and skips overflow pages. Read-ahead of the kernel
  // would fetch those, too.
  source->Advise(lmdbio::AccessPattern::kRandom);
  LMDBIO_TRY(const Environment environment, Environment::Open(*source));
  Result<ordered_json> outcome = Choose(environment, DatabaseName(invocation)).and_then(describe);
  // An active writer makes a file look damaged, so check for one before reporting damage.
  if (!outcome) LMDBIO_TRY_VOID(environment.CheckHolds());
  if (!outcome) return Fail(std::move(outcome).error());
  return invocation.Report(*outcome);
}

ordered_json Describe(const ProvenanceFile& file) {
  const lmdbio::file::Provenance& provenance = file.provenance;
  const lmdbio::file::Fingerprint& of = provenance.fingerprint();
  ordered_json outcome;
  outcome["provenance"] = file.path;
  outcome["kind"] = KindName(provenance.kind());
  outcome["provenance_bytes"] = file.size_bytes;
  outcome["records"] = provenance.record_count();
  if (provenance.kind() == ProvenanceKind::kOrderedLoad) {
    const auto sizes = [](const lmdbio::file::SizeDescription& size) {
      return size.is_constant ? ordered_json(size.constant_bytes)
                              : ordered_json(fmt::format("one for each record, {} bytes packed",
                                                         size.packed.size()));
    };
    const lmdbio::file::LoadDescription& load = provenance.load();
    outcome["load"] = {
        {"commit_interval_records", load.commit_interval_records},
        {"leaf_records_max", load.leaf_records_max},
        {"branch_children_max", load.branch_children_max},
        {"key_bytes", sizes(provenance.key_sizes())},
        {"value_bytes", sizes(provenance.value_sizes())},
        {"order",
         load.put_mode == lmdbio::file::PutMode::kAppend ? "ascending, appended" : "ascending"},
        {"meta_page_count", load.meta_page_count},
    };
  }
  outcome["made_for"] = {
      {"database", of.database_name.empty() ? "main" : of.database_name},
      {"data_version", static_cast<uint32_t>(of.page_format.version())},
      {"page_size_bytes", of.page_format.page_size_bytes()},
      {"file_size_bytes", of.file_size_bytes},
      {"transaction_id", of.transaction_id},
      {"root_page", of.record.root.value},
      {"last_page", of.last_page.value},
      {"hashed_leaf_pages", of.samples.size()},
  };
  return outcome;
}

// Compares a layout with the runs of another producer. A layout is right if each record has its key
// in the same node and its value in the same bytes of the file.
class ComparingSink final : public lmdbio::file::RecordRunSink {
 public:
  ComparingSink(const Layout& expected, const std::string& path)
      : expected_(expected), path_(path) {}

  Status Add(const RecordRun& run) override {
    for (uint64_t i = 0; i < run.values.size(); ++i) {
      const lmdbio::RecordIndex record{run.first_record.value + i};
      // The records of one node with duplicates share the location of their key.
      const uint32_t node =
          run.first_node +
          (run.kind == lmdbio::file::RunKind::kNodes ? static_cast<uint32_t>(i) : 0);
      if (record.value >= expected_.record_count() || expected_.Value(record) != run.values[i] ||
          expected_.Key(record) != lmdbio::file::KeyLocation{run.leaf, node}) {
        return Fail(lmdbio::ErrorCode::kStale,
                    fmt::format("{}: record {} has another location in the database; create the "
                                "provenance again",
                                path_, record.value));
      }
    }
    return {};
  }

 private:
  const Layout& expected_;
  const std::string& path_;
};

// The bar is gone before the report is printed, so the two never share a line.
Result<lmdbio::file::RecordedProvenance> RecordWithBar(
    lmdbio::file::RecordProvenanceOptions& options) {
  ProgressBar bar("walking");
  options.progress = [&](double done) { bar.Update(done); };
  return lmdbio::file::RecordProvenance(options);
}

Status CompareWithTree(const Database& database, const Layout& layout, const std::string& path) {
  ProgressBar bar("walking");
  ComparingSink comparison(layout, path);
  LMDBIO_TRY_VOID(
      lmdbio::file::WalkDatabase(database, comparison, [&](double done) { bar.Update(done); }));
  return {};
}

Status Create(const Invocation& invocation) {
  lmdbio::file::RecordProvenanceOptions options;
  options.path = invocation.operand("PATH");
  options.database_name = DatabaseName(invocation);
  if (invocation.has("commit-interval")) {
    options.hint.commit_interval_records = invocation.whole("commit-interval");
  }
  LMDBIO_TRY(const auto recorded, RecordWithBar(options));
  const double records = static_cast<double>(std::max<uint64_t>(recorded.record_count, 1));
  ordered_json outcome;
  outcome["provenance"] = recorded.path;
  outcome["kind"] = KindName(recorded.kind);
  outcome["provenance_bytes"] = recorded.size_bytes;
  outcome["records"] = recorded.record_count;
  outcome["bytes_per_record"] =
      std::round(100.0 * static_cast<double>(recorded.size_bytes) / records) / 100.0;
  return invocation.Report(outcome);
}

// The figures are printed although the file does not fit; "reason" names the difference.
Result<ordered_json> DescribeFit(const Database& database) {
  LMDBIO_TRY(const ProvenanceFile file, lmdbio::tools::ReadProvenanceFile(database));
  ordered_json outcome = Describe(file);
  const Status fits = lmdbio::file::CheckFingerprint(file.provenance.fingerprint(), database);
  outcome["fits"] = fits.has_value();
  if (!fits) outcome["reason"] = fits.error().message();
  return outcome;
}

Status Show(const Invocation& invocation) { return Inspect(invocation, &DescribeFit); }

Result<ordered_json> CompareAndDescribe(const Database& database) {
  LMDBIO_TRY(const ProvenanceFile file, lmdbio::tools::ReadProvenanceFile(database));
  LMDBIO_TRY_VOID(lmdbio::file::CheckFingerprint(file.provenance.fingerprint(), database));
  // The time covers the layout alone. Comparing walks the tree, which takes much longer.
  const auto begin = std::chrono::steady_clock::now();
  lmdbio::file::LayoutBuilder builder;
  LMDBIO_TRY_VOID(file.provenance.Expand(builder).map_error(
      [&](lmdbio::Error&& error) { return std::move(error).Within(file.path); }));
  const Layout layout = builder.Finish();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  LMDBIO_TRY_VOID(CompareWithTree(database, layout, file.path));
  const lmdbio::file::PageReader& pages = database.pages();
  // A writer may have reused pages during the walk. Without this check, equal locations would prove
  // nothing.
  LMDBIO_TRY_VOID(lmdbio::file::CheckSnapshotHolds(pages.source(), pages.snapshot()));
  ordered_json outcome = Describe(file);
  outcome["layout_seconds"] = took.count();
  outcome["verified_records"] = layout.record_count();
  return outcome;
}

Status Verify(const Invocation& invocation) { return Inspect(invocation, &CompareAndDescribe); }

void DescribeName(po::options_description_easy_init options) {
  options("name,s", po::value<std::string>()->value_name("NAME"),
          "use this named database instead of the main one");
}

void DescribeCreate(po::options_description_easy_init options) {
  DescribeName(options);
  options("commit-interval", po::value<lmdbio::tools::Whole>()->value_name("N"),
          "number of records in one transaction of the load (default: found by trial)");
}

}  // namespace

int main(int argc, char** argv) {
  const std::array commands = {
      lmdbio::tools::Command{"create", "PATH", "Walks the database and writes its provenance file.",
                             &DescribeCreate, &Create},
      lmdbio::tools::Command{"show", "PATH", "Prints the provenance file and whether it fits.",
                             &DescribeName, &Show},
      lmdbio::tools::Command{"verify", "PATH",
                             "Compares the layout of the provenance file with the tree, record by "
                             "record.",
                             &DescribeName, &Verify},
  };
  return lmdbio::tools::RunTool("lmdbio-provenance",
                                "Manages the file with the record locations of an LMDB database.",
                                commands, argc, argv);
}
