// The locator of LMM and LMM-DIO: a cursor over a map, one record after the other.
#include <algorithm>
#include <limits>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/io/map_source.h"
#include "lmdbio/layout/cursor.h"
#include "lmdbio/loader/locator.h"

namespace lmdbio::loader {
namespace {

// Records that span more bytes of the file for each of their own do not lie together.
constexpr uint64_t kSpanPerByteMax = 4;
// The kernel is not told of more than this in advance.
constexpr uint64_t kExpectBytesMax = 256 << 20;

// Joins neighbouring records of one leaf into runs.
class RunJoiner {
 public:
  explicit RunJoiner(layout::RecordRunSink& sink) : sink_(sink) {}

  Status Add(RecordIndex record, const layout::RecordPlace& place) {
    begin_ = std::min(begin_, place.value.offset);
    end_ = std::max(end_, place.value.offset + place.value.length_bytes);
    value_bytes_ += place.value.length_bytes;
    const bool node_each = run_.kind == layout::RunKind::kNodes;
    const uint32_t next_node =
        run_.first_node + (node_each ? static_cast<uint32_t>(values_.size()) : 0);
    if (values_.empty() || place.leaf != run_.leaf || place.kind != run_.kind ||
        place.home != run_.home || place.node != next_node) {
      LMDBIO_TRY_VOID(Flush());
      run_ = {record, place.leaf, place.node, place.kind, place.home, {}, {}};
    }
    values_.push_back(place.value);
    return {};
  }

  // What the records span, if they lie together; else nothing.
  Extent Span() const {
    const bool is_dense = end_ > begin_ && end_ - begin_ <= kSpanPerByteMax * value_bytes_;
    return is_dense ? Extent{begin_, end_ - begin_} : Extent{};
  }

  Status Flush() {
    if (values_.empty()) return {};
    run_.values = values_;
    Status added = sink_.Add(run_);
    values_.clear();
    return added;
  }

 private:
  layout::RecordRunSink& sink_;
  layout::RecordRun run_;
  std::vector<Extent> values_;
  uint64_t begin_ = std::numeric_limits<uint64_t>::max();
  uint64_t end_ = 0;
  uint64_t value_bytes_ = 0;
};

class CursorLocator final : public Locator {
 public:
  CursorLocator(std::unique_ptr<io::MapSource> source, const layout::Database& database)
      : source_(std::move(source)), database_(database), cursor_(database_) {}

  Result<uint64_t> RecordCount() override { return CountRecords(database_); }

  Status Locate(RecordIndex first, uint64_t count, layout::RecordRunSink& sink) override {
    if (count == 0) return {};
    LMDBIO_TRY_VOID(source_->CheckNotShrunk(database_.pages().snapshot().file_size_bytes));
    source_->Await(expected_);
    LMDBIO_TRY_VOID(StandAt(first));
    RunJoiner runs(sink);
    for (uint64_t i = 0; i < count; ++i) {
      if (i > 0) LMDBIO_TRY_VOID(Step());
      LMDBIO_TRY(const layout::RecordPlace place, cursor_.Place());
      LMDBIO_TRY_VOID(runs.Add({first.value + i}, place));
    }
    at_ = first.value + count - 1;
    // As far as the last records reached, the next will reach behind them (dissertation 4.2).
    const Extent span = runs.Span();
    expected_ = {span.offset + span.length_bytes, std::min(span.length_bytes, kExpectBytesMax)};
    source_->Expect(expected_);
    return runs.Flush();
  }

 private:
  Status Step() {
    LMDBIO_TRY(const bool found, cursor_.Next());
    return found ? Status() : Ended();
  }

  Status Ended() const {
    return Fail(ErrorCode::kCorruption,
                fmt::format("{}: the tree holds fewer records than its description says, {}",
                            source_->name(), database_.entry_count()));
  }

  Status StandAt(RecordIndex record) {
    if (cursor_.standing() && record.value == at_ + 1) return Step();
    if (record.value == 0) {
      LMDBIO_TRY(const bool found, cursor_.First());
      return found ? Status() : Ended();
    }
    LMDBIO_TRY(const bool found, cursor_.SeekOrdinal(record));
    return found ? Status() : Ended();
  }

  std::unique_ptr<io::MapSource> source_;
  layout::Database database_;
  layout::Cursor cursor_;
  uint64_t at_ = 0;  // the record under the cursor
  Extent expected_;  // where the next records probably lie
};

}  // namespace

Result<std::unique_ptr<Locator>> OpenCursorLocator(const std::string& data_path,
                                                   const std::string& database_name) {
  LMDBIO_TRY(auto source, io::MapSource::Open(data_path));
  LMDBIO_TRY(const layout::Environment environment, layout::Environment::Open(*source));
  if (database_name.empty()) {
    const layout::Database main = environment.Main();
    return std::unique_ptr<Locator>(std::make_unique<CursorLocator>(std::move(source), main));
  }
  LMDBIO_TRY(const layout::Database named, environment.Named(database_name));
  return std::unique_ptr<Locator>(std::make_unique<CursorLocator>(std::move(source), named));
}

}  // namespace lmdbio::loader
