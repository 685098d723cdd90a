#include "lmdbio/writer/record_provenance.h"

#include <memory>
#include <optional>
#include <vector>

#include "lmdbio/io/data_path.h"
#include "lmdbio/io/file_source.h"
#include "lmdbio/io/small_file.h"
#include "lmdbio/layout/database.h"
#include "lmdbio/layout/layout.h"
#include "lmdbio/layout/page_walk.h"
#include "lmdbio/provenance/exact_codec.h"
#include "lmdbio/provenance/explain.h"
#include "lmdbio/provenance/fingerprint.h"

namespace lmdbio::writer {
namespace {

using layout::Database;
using layout::Environment;
using layout::Layout;
using layout::RecordRun;

// Collects the results of a walk: the layout, and the sizes that ExplainLayout needs.
class Collector final : public layout::RecordRunSink {
 public:
  Status Add(const RecordRun& run) override {
    for (const Extent& value : run.values) {
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
  layout::LayoutBuilder builder_;
  std::vector<uint32_t> key_bytes_, value_bytes_;
};

Result<Database> Choose(const Environment& environment, const std::string& name) {
  if (name.empty()) return environment.Main();
  return environment.Named(name);
}

// The file that reproduces the layout in `walked`: the ordered load if one explains it, otherwise
// the exact layout.
Result<std::vector<std::byte>> Describe(const Database& database,
                                        const provenance::Fingerprint& fingerprint,
                                        Collector& walked, const provenance::LoadHint& hint,
                                        provenance::Kind& kind) {
  const Layout layout = walked.TakeLayout();
  const std::optional<provenance::ExplainedLoad> explained =
      provenance::ExplainLayout(database, layout, walked.key_bytes(), walked.value_bytes(), hint);
  if (explained) {
    kind = provenance::Kind::kOrderedLoad;
    return provenance::EncodeOrderedLoad(fingerprint, explained->load, explained->totals);
  }
  kind = provenance::Kind::kExactLayout;
  provenance::ExactEncoder encoder(database.pages().page_format());
  LMDBIO_TRY_VOID(layout.Expand(encoder));
  return provenance::EncodeExactLayout(fingerprint, layout.record_count(), encoder.Finish());
}

Result<RecordedProvenance> Record(const Environment& environment, const std::string& data_path,
                                  const RecordProvenanceOptions& options) {
  LMDBIO_TRY(const Database database, Choose(environment, options.database_name));
  Collector walked;
  LMDBIO_TRY(const std::vector<PageNo> leaves,
             layout::WalkDatabase(database, walked, options.progress));
  LMDBIO_TRY(const provenance::Fingerprint fingerprint,
             provenance::TakeFingerprint(database, leaves));
  RecordedProvenance recorded;
  recorded.path = io::ProvenancePath(data_path, options.database_name);
  recorded.record_count = walked.record_count();
  LMDBIO_TRY(const std::vector<std::byte> file,
             Describe(database, fingerprint, walked, options.hint, recorded.kind));
  recorded.size_bytes = file.size();
  LMDBIO_TRY_VOID(environment.CheckHolds());
  LMDBIO_TRY_VOID(io::WriteFileAtomically(recorded.path, file));
  return recorded;
}

}  // namespace

Result<RecordedProvenance> RecordProvenance(const RecordProvenanceOptions& options) {
  LMDBIO_TRY(const std::string data_path, io::FindDataFile(options.path));
  LMDBIO_TRY(const std::unique_ptr<io::FileSource> source, io::FileSource::Open(data_path));
  source->Advise(AccessPattern::kRandom);
  LMDBIO_TRY(const Environment environment, Environment::Open(*source));
  Result<RecordedProvenance> recorded = Record(environment, data_path, options);
  // If a program writes to the database, an error may look like damage; then kStale is returned.
  if (!recorded) LMDBIO_TRY_VOID(environment.CheckHolds());
  return recorded;
}

}  // namespace lmdbio::writer
