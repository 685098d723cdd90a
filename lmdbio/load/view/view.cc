#include "lmdbio/load/view/view.h"

#include <array>
#include <utility>

#include "lmdbio/base/digest.h"

namespace lmdbio::load {
namespace {

// A digest of numbers. It hashes their little-endian bytes in pieces.
class NumberDigest {
 public:
  void Add(uint64_t number) {
    for (size_t i = 0; i < sizeof number; ++i) {
      bytes_[used_++] = static_cast<char>(number >> (8 * i));
    }
    if (used_ == bytes_.size()) Flush();
  }
  uint64_t Finish() {
    Flush();
    return digest_;
  }

 private:
  void Flush() {
    digest_ = TextDigest({bytes_.data(), used_}, digest_);
    used_ = 0;
  }

  std::array<char, 8192> bytes_{};
  size_t used_ = 0;
  uint64_t digest_ = 0;
};

}  // namespace

Result<View> View::Resolve(const ViewSpec& spec, std::span<const std::vector<ViewDatabase>> files,
                           std::vector<std::string>& notes) {
  LMDBIO_TRY_VOID(CheckView(spec));
  ViewRows rows(spec);
  for (const std::vector<ViewDatabase>& file : files) LMDBIO_TRY_VOID(rows.Add(file, notes));
  Status chosen = rows.ChooseSubset();
  if (!chosen) {
    const file::PageReader& pages = files.front().front().database.pages();
    return Fail(std::move(chosen).error().Within(pages.source().name()));
  }
  View view;
  view.field_names_ = FieldNamesOf(&spec);
  NumberDigest digest;
  digest.Add(rows.columns().size());
  digest.Add(rows.sample_count());
  // A stream state has the transaction of the view's own database; those of the others are here.
  for (const std::vector<ViewDatabase>& file : files) {
    for (const ViewDatabase& other : std::span(file).subspan(1)) {
      digest.Add(other.database.pages().snapshot().meta.transaction_id);
      digest.Add(other.database.record().root.value);
    }
  }
  for (const std::vector<uint64_t>& column : rows.columns()) {
    file::PackedColumnBuilder packed;
    for (const uint64_t record : column) {
      packed.Append(record);
      digest.Add(record);
    }
    view.columns_.push_back(packed.Finish());
  }
  view.digest_ = digest.Finish();
  return view;
}

uint64_t View::memory_bytes() const {
  uint64_t sum = 0;
  for (const file::PackedColumn& column : columns_) sum += column.memory_bytes();
  return sum;
}

}  // namespace lmdbio::load
