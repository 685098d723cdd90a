#include "lmdbio/feed/fed_batch.h"

#include "lmdbio/base/check.h"

namespace lmdbio::feed {

BatchFacts::BatchFacts(const load::Batch& batch)
    : number_(batch.number()),
      epoch_(batch.epoch()),
      first_position_(batch.first_position()),
      global_record_count_(batch.global_record_count()),
      ends_epoch_(batch.ends_epoch()),
      skipped_count_(batch.skipped_count()),
      field_count_(batch.field_count()) {
  records_.reserve(batch.record_count());
  for (size_t i = 0; i < batch.record_count(); ++i) {
    const Bytes key = batch.key(i);
    records_.push_back({batch.position(i), keys_.size(), key.size(), batch.value(i).size()});
    keys_.insert(keys_.end(), key.begin(), key.end());
  }
}

FedBatch& FedBatch::operator=(FedBatch&& other) noexcept {
  if (this == &other) return *this;
  Return();
  facts_ = std::exchange(other.facts_, BatchFacts());
  layout_ = std::exchange(other.layout_, RowLayout());
  buffer_ = std::exchange(other.buffer_, nullptr);
  buffers_ = std::move(other.buffers_);
  return *this;
}

void FedBatch::Return() {
  facts_ = BatchFacts();
  layout_ = RowLayout();
  RowBuffer* const buffer = std::exchange(buffer_, nullptr);
  if (const auto buffers = std::move(buffers_)) buffers->Return(*buffer);
}

Status FedBatch::UseOn(device::StreamHandle stream) {
  if (!is_held()) return Fail(ErrorCode::kInvalidArgument, "no batch is held");
  return buffers_->UseOn(*buffer_, stream);
}

DeviceRows FedBatch::rows(size_t field) const {
  LMDBIO_CHECK(field < layout_.fields.size());
  const FieldLayout& of_field = layout_.fields[field];
  const device::DeviceAddress begin = buffer_->span().begin;
  DeviceRows rows = {.rows = {begin + of_field.rows_at, of_field.size_bytes},
                     .row_bytes = of_field.row_bytes,
                     .offsets = {}};
  if (of_field.offset_count > 0) {
    rows.offsets = {begin + of_field.offsets_at, of_field.offset_count * sizeof(uint64_t)};
  }
  return rows;
}

}  // namespace lmdbio::feed
