#include "lmdbio/load/locate/locator.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/file/io/data_path.h"
#include "lmdbio/file/layout/page_walk.h"
#include "lmdbio/file/provenance/provenance.h"
#include "lmdbio/file/source/small_file.h"

namespace lmdbio::load {
namespace {

// The largest provenance file that is read. No real one is larger.
constexpr uint64_t kProvenanceBytesMax = uint64_t{64} << 30;

// Publishes a whole layout for the other readers of the host, if there are any. Returns the layout
// in shared memory, or the given one if there is no room for it. Without room, Publish marks the
// shared memory as full, so the other readers find the layout by themselves.
file::Layout ShareWithHost(file::Layout layout, SharedLayout* host) {
  if (host == nullptr) return layout;
  std::optional<file::Layout> shared = host->Publish(0, layout);
  host->End({});
  return shared ? std::move(*shared) : std::move(layout);
}

class LayoutLocator final : public Locator {
 public:
  explicit LayoutLocator(file::Layout layout) : layout_(std::move(layout)) {}

  Result<uint64_t> RecordCount() override { return layout_.record_count(); }

  Status Locate(RecordIndex first, uint64_t count, file::RecordRunSink& sink) override {
    return layout_.ExpandRange(first, count, RecordIndex{0}, sink);
  }

  Status VisitRuns(RecordRange range,
                   const std::function<void(const file::RunLocation&)>& visit) override {
    for (uint64_t i = 0; i < layout_.run_count(); ++i) {
      const file::RunLocation run = layout_.Run(i);
      if (range.Meets({run.first_record.value, run.record_count})) visit(run);
    }
    return {};
  }

 private:
  file::Layout layout_;
};

// See MakeFileLocator.
class FileLocator final : public Locator {
 public:
  FileLocator(Locator& all, RecordRange range, PageNo first, uint64_t page_bytes)
      : all_(all), range_(range), shift_{range.first, first.value, first.value * page_bytes} {}

  Result<uint64_t> RecordCount() override { return range_.count; }

  Status Locate(RecordIndex first, uint64_t count, file::RecordRunSink& sink) override {
    file::ShiftedRuns own(sink, shift_.Back());
    return all_.Locate({first.value + range_.first}, count, own);
  }

  // A run belongs to one file.
  Status VisitRuns(RecordRange range,
                   const std::function<void(const file::RunLocation&)>& visit) override {
    const RecordRange in_list{range_.first + range.first,
                              std::min(range.count, range_.count - range.first)};
    return all_.VisitRuns(in_list, [&](file::RunLocation run) {
      run.first_record.value -= range_.first;
      run.leaf.value -= shift_.pages;
      run.home.value -= shift_.pages;
      visit(run);
    });
  }

 private:
  Locator& all_;
  RecordRange range_;
  file::ShiftedRuns::By shift_;  // from the file to the list
};

class Counter final : public file::RecordRunSink {
 public:
  Status Add(const file::RecordRun& run) override {
    count_ += run.values.size();
    return {};
  }
  uint64_t count() const { return count_; }

 private:
  uint64_t count_ = 0;
};

// path  of the provenance file
Result<file::Layout> LayoutOf(const file::Provenance& provenance, const std::string& path) {
  // A provenance file can turn out wrong after its last run, so the layout exists only after
  // success.
  file::LayoutBuilder builder;
  Status expanded = provenance.Expand(builder);
  if (!expanded) return Fail(std::move(expanded).error().Within(path));
  return builder.Finish();
}

class ProvenanceLocator final : public Locator {
 public:
  ProvenanceLocator(file::Provenance provenance, std::string path, SharedLayout* host)
      : provenance_(std::move(provenance)), path_(std::move(path)), host_(host) {}

  Result<uint64_t> RecordCount() override { return provenance_.record_count(); }

  Status Locate(RecordIndex first, uint64_t count, file::RecordRunSink& sink) override {
    if (!layout_) LMDBIO_TRY_VOID(Compute());
    return layout_->ExpandRange(first, count, RecordIndex{0}, sink);
  }

 private:
  // The other readers of the host wait for this result, so a failure goes to them as well.
  Status Compute() {
    Result<file::Layout> layout = LayoutOf(provenance_, path_);
    Status status = layout ? Status() : Fail(layout.error().Copy());
    if (layout) layout_ = ShareWithHost(std::move(*layout), host_);
    if (!layout && host_ != nullptr) host_->End(status);
    return status;
  }

  file::Provenance provenance_;
  std::string path_;
  SharedLayout* host_;
  std::optional<file::Layout> layout_;
};

}  // namespace

Status Locator::VisitRuns(RecordRange /*range*/,
                          const std::function<void(const file::RunLocation&)>& /*visit*/) {
  return Fail(ErrorCode::kUnsupported, "this locator does not list the runs of records");
}

std::unique_ptr<Locator> MakeLayoutLocator(file::Layout layout, SharedLayout* host) {
  return std::make_unique<LayoutLocator>(ShareWithHost(std::move(layout), host));
}

std::unique_ptr<Locator> MakeProvenanceLocator(file::Provenance provenance, std::string path,
                                               SharedLayout* host) {
  return std::make_unique<ProvenanceLocator>(std::move(provenance), std::move(path), host);
}

std::unique_ptr<Locator> MakeFileLocator(Locator& all, RecordRange range, PageNo first,
                                         uint64_t page_bytes) {
  return std::make_unique<FileLocator>(all, range, first, page_bytes);
}

std::string ProvenancePathOf(const file::Database& database) {
  return file::ProvenancePath(database.pages().source().name(), database.name());
}

Result<file::Provenance> ReadProvenance(const file::Database& database, const std::string& path) {
  LMDBIO_TRY(const std::vector<std::byte> file, file::ReadSmallFile(path, kProvenanceBytesMax));
  Result<file::Provenance> decoded = file::Provenance::Decode(file);
  if (!decoded) return Fail(std::move(decoded).error().Within(path));
  Status fits = file::CheckFingerprint(decoded->fingerprint(), database);
  if (!fits) return Fail(std::move(fits).error().Within(path));
  return decoded;
}

Result<file::Layout> LayoutFromProvenance(const file::Database& database, const std::string& path) {
  LMDBIO_TRY(const file::Provenance provenance, ReadProvenance(database, path));
  return LayoutOf(provenance, path);
}

Result<uint64_t> CountRecords(const file::Database& database) {
  // With duplicates, LMDB's count may be too high or too low (docs/format.md section 4).
  if (database.counts_exactly() || database.record().empty()) return database.entry_count();
  Counter counter;
  LMDBIO_TRY_VOID(file::WalkDatabase(database, counter));
  return counter.count();
}

}  // namespace lmdbio::load
