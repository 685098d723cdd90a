#include "lmdbio/file/writer/record_provenance.h"

#include <memory>
#include <optional>
#include <vector>

#include "lmdbio/file/io/data_path.h"
#include "lmdbio/file/layout/database.h"
#include "lmdbio/file/layout/layout.h"
#include "lmdbio/file/layout/page_walk.h"
#include "lmdbio/file/provenance/exact_codec.h"
#include "lmdbio/file/provenance/explain.h"
#include "lmdbio/file/provenance/fingerprint.h"
#include "lmdbio/file/source/file_source.h"
#include "lmdbio/file/source/small_file.h"

namespace lmdbio::file {
namespace {

// Collects the results of a walk: the layout, and the sizes that ExplainLayout needs.
class Collector final : public RecordRunSink {
 public:
  Status Add(const RecordRun& run) override {
    for (const Extent& value : run.values) {
      // LMDB stores the size of a value in 32 bits.
      value_bytes_.push_back(static_cast<uint32_t>(value.length_bytes));
    }
    key_bytes_.insert(key_bytes_.end(), run.key_bytes.begin(), run.key_bytes.end());
    return builder_.Add(run);
  }

  uint64_t record_count() const { return builder_.record_count(); }
  Layout TakeLayout() { return builder_.Finish(); }
  const std::vector<uint32_t>& key_bytes() const { return key_bytes_; }
  const std::vector<uint32_t>& value_bytes() const { return value_bytes_; }

 private:
  LayoutBuilder builder_;
  std::vector<uint32_t> key_bytes_, value_bytes_;
};

Result<Database> Choose(const Environment& environment, const std::string& name) {
  if (name.empty()) return environment.Main();
  return environment.Named(name);
}

// The file that reproduces the layout in `walked`: the ordered load if one explains it, otherwise
// the exact layout.
Result<std::vector<std::byte>> Describe(const Database& database, const Fingerprint& fingerprint,
                                        Collector& walked, const LoadHint& hint,
                                        ProvenanceKind& kind) {
  const Layout layout = walked.TakeLayout();
  const std::optional<ExplainedLoad> explained =
      ExplainLayout(database, layout, walked.key_bytes(), walked.value_bytes(), hint);
  if (explained) {
    kind = ProvenanceKind::kOrderedLoad;
    return EncodeOrderedLoad(fingerprint, explained->load, explained->totals);
  }
  kind = ProvenanceKind::kExactLayout;
  ExactEncoder encoder(database.pages().page_format());
  LMDBIO_TRY_VOID(layout.Expand(encoder));
  return EncodeExactLayout(fingerprint, layout.record_count(), encoder.Finish());
}

Result<RecordedProvenance> Record(const Environment& environment, const std::string& data_path,
                                  const RecordProvenanceOptions& options) {
  LMDBIO_TRY(const Database database, Choose(environment, options.database_name));
  Collector walked;
  LMDBIO_TRY(const std::vector<PageNo> leaves, WalkDatabase(database, walked, options.progress));
  LMDBIO_TRY(const Fingerprint fingerprint, TakeFingerprint(database, leaves));
  RecordedProvenance recorded;
  recorded.path = ProvenancePath(data_path, options.database_name);
  recorded.record_count = walked.record_count();
  LMDBIO_TRY(const std::vector<std::byte> file,
             Describe(database, fingerprint, walked, options.hint, recorded.kind));
  recorded.size_bytes = file.size();
  // A file that was written meanwhile may yield a layout of two states, so the snapshot is checked
  // before anything is written.
  LMDBIO_TRY_VOID(environment.CheckHolds());
  LMDBIO_TRY_VOID(WriteFileAtomically(recorded.path, file));
  return recorded;
}

}  // namespace

Result<RecordedProvenance> RecordProvenance(const RecordProvenanceOptions& options) {
  LMDBIO_TRY(const std::string data_path, FindDataFile(options.path));
  LMDBIO_TRY(const std::unique_ptr<FileSource> source, FileSource::Open(data_path));
  // The walk reads branch and leaf pages only. Read-ahead of the kernel would fetch the values
  // between them.
  source->Advise(AccessPattern::kRandom);
  LMDBIO_TRY(const Environment environment, Environment::Open(*source));
  Result<RecordedProvenance> recorded = Record(environment, data_path, options);
  // If a program writes to the database, an error may look like damage; then kStale is returned.
  if (!recorded) LMDBIO_TRY_VOID(environment.CheckHolds());
  return recorded;
}

}  // namespace lmdbio::file
