#include "lmdbio/loader/locator.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/io/data_path.h"
#include "lmdbio/io/small_file.h"
#include "lmdbio/layout/page_walk.h"
#include "lmdbio/provenance/provenance.h"

namespace lmdbio::loader {
namespace {

// More than any provenance of a file that a machine can hold; a bound against reading rubbish.
constexpr uint64_t kProvenanceBytesMax = uint64_t{64} << 30;

// Gives a whole layout to the host's other readers, if there are any. Returns it as it lies there.
layout::Layout ShareWithHost(layout::Layout layout, exchange::HostLayout* host) {
  if (host == nullptr) return layout;
  std::optional<layout::Layout> shared = host->Publish(0, layout);
  host->End({});
  return shared ? std::move(*shared) : std::move(layout);
}

class LayoutLocator final : public Locator {
 public:
  explicit LayoutLocator(layout::Layout layout) : layout_(std::move(layout)) {}

  Result<uint64_t> RecordCount() override { return layout_.record_count(); }

  Status Locate(RecordIndex first, uint64_t count, layout::RecordRunSink& sink) override {
    return layout_.ExpandRange(first, count, RecordIndex{0}, sink);
  }

 private:
  layout::Layout layout_;
};

class Counter final : public layout::RecordRunSink {
 public:
  Status Add(const layout::RecordRun& run) override {
    count_ += run.values.size();
    return {};
  }
  uint64_t count() const { return count_; }

 private:
  uint64_t count_ = 0;
};

// path  of the provenance file
Result<layout::Layout> LayoutOf(const provenance::Provenance& provenance, const std::string& path) {
  layout::LayoutBuilder builder;
  Status expanded = provenance.Expand(builder);
  if (!expanded) return Fail(std::move(expanded).error().Within(path));
  return builder.Finish();
}

class ProvenanceLocator final : public Locator {
 public:
  ProvenanceLocator(provenance::Provenance provenance, std::string path, exchange::HostLayout* host)
      : provenance_(std::move(provenance)), path_(std::move(path)), host_(host) {}

  Result<uint64_t> RecordCount() override { return provenance_.record_count(); }

  Status Locate(RecordIndex first, uint64_t count, layout::RecordRunSink& sink) override {
    if (!layout_) LMDBIO_TRY_VOID(Compute());
    return layout_->ExpandRange(first, count, RecordIndex{0}, sink);
  }

 private:
  Status Compute() {
    Result<layout::Layout> layout = LayoutOf(provenance_, path_);
    Status status = layout ? Status() : Fail(layout.error().Copy());
    if (layout) layout_ = ShareWithHost(std::move(*layout), host_);
    if (!layout && host_ != nullptr) host_->End(status);
    return status;
  }

  provenance::Provenance provenance_;
  std::string path_;
  exchange::HostLayout* host_;
  std::optional<layout::Layout> layout_;
};

}  // namespace

std::unique_ptr<Locator> MakeLayoutLocator(layout::Layout layout, exchange::HostLayout* host) {
  return std::make_unique<LayoutLocator>(ShareWithHost(std::move(layout), host));
}

std::unique_ptr<Locator> MakeProvenanceLocator(provenance::Provenance provenance, std::string path,
                                               exchange::HostLayout* host) {
  return std::make_unique<ProvenanceLocator>(std::move(provenance), std::move(path), host);
}

std::string ProvenancePathOf(const layout::Database& database) {
  return io::ProvenancePath(database.pages().source().name(), database.name());
}

Result<provenance::Provenance> ReadProvenance(const layout::Database& database) {
  const std::string path = ProvenancePathOf(database);
  LMDBIO_TRY(const std::vector<std::byte> file, io::ReadSmallFile(path, kProvenanceBytesMax));
  Result<provenance::Provenance> decoded = provenance::Provenance::Decode(file);
  if (!decoded) return Fail(std::move(decoded).error().Within(path));
  Status fits = provenance::CheckFingerprint(decoded->fingerprint(), database);
  if (!fits) return Fail(std::move(fits).error().Within(path));
  return decoded;
}

Result<layout::Layout> LayoutFromProvenance(const layout::Database& database) {
  LMDBIO_TRY(const provenance::Provenance provenance, ReadProvenance(database));
  return LayoutOf(provenance, ProvenancePathOf(database));
}

Result<uint64_t> CountRecords(const layout::Database& database) {
  if (database.counts_exactly() || database.record().empty()) return database.entry_count();
  Counter counter;
  LMDBIO_TRY_VOID(layout::WalkDatabase(database, counter));
  return counter.count();
}

}  // namespace lmdbio::loader
