// lmdbio/feed/fed_batch.h - one rank's share of a batch, whose values lie on a device.
#ifndef LMDBIO_FEED_FED_BATCH_H_
#define LMDBIO_FEED_FED_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/device/device_address.h"
#include "lmdbio/device/driver_table.h"
#include "lmdbio/feed/row_buffers.h"
#include "lmdbio/feed/row_layout.h"
#include "lmdbio/load/loader/batch.h"

namespace lmdbio::feed {

// All of a batch but its values, copied from the window. The calls are those of load::Batch.
class BatchFacts {
 public:
  BatchFacts() = default;
  explicit BatchFacts(const load::Batch& batch);

  uint64_t number() const { return number_; }
  uint64_t epoch() const { return epoch_; }
  uint64_t first_position() const { return first_position_; }
  uint64_t global_record_count() const { return global_record_count_; }
  bool ends_epoch() const { return ends_epoch_; }
  size_t record_count() const { return records_.size(); }
  size_t field_count() const { return field_count_; }
  size_t sample_count() const { return records_.size() / field_count_; }
  uint32_t skipped_count() const { return skipped_count_; }

  // Requires (here and below): i < record_count()
  Bytes key(size_t i) const {
    return Bytes(keys_).subspan(records_[i].key_at, records_[i].key_bytes);
  }
  uint64_t value_bytes(size_t i) const { return records_[i].value_bytes; }
  uint64_t position(size_t i) const { return records_[i].position; }

 private:
  struct RecordFacts {
    uint64_t position = 0;
    size_t key_at = 0;
    size_t key_bytes = 0;
    uint64_t value_bytes = 0;
  };

  uint64_t number_ = 0;
  uint64_t epoch_ = 0;
  uint64_t first_position_ = 0;
  uint64_t global_record_count_ = 0;
  bool ends_epoch_ = false;
  uint32_t skipped_count_ = 0;
  size_t field_count_ = 1;
  std::vector<RecordFacts> records_;
  std::vector<std::byte> keys_;
};

// The values of one field, on the device.
struct DeviceRows {
  device::DeviceSpan rows;     // [samples, row_bytes], or packed values
  uint64_t row_bytes = 0;      // 0 of packed values
  device::DeviceSpan offsets;  // [samples + 1] uint64 of packed values: value i is bytes
                               // [offsets[i], offsets[i + 1]) of `rows`; else empty
};

// A batch that was taken from a feed, until it is returned. Its memory serves no later batch before
// that. May outlive the feed and the loader.
//
// The program uses the rows on the stream with which it took the batch, and on those of UseOn. It
// returns the batch when all such work is enqueued; the work need not be done.
// Threads: one at a time; not necessarily the one that took it
class FedBatch {
 public:
  FedBatch() = default;
  // buffer  handed out by `buffers`
  FedBatch(BatchFacts facts, RowLayout layout, RowBuffer& buffer,
           std::shared_ptr<RowBuffers> buffers)
      : facts_(std::move(facts)),
        layout_(std::move(layout)),
        buffer_(&buffer),
        buffers_(std::move(buffers)) {}
  FedBatch(FedBatch&& other) noexcept { *this = std::move(other); }
  FedBatch& operator=(FedBatch&& other) noexcept;
  ~FedBatch() { Return(); }

  // Does nothing if no batch is held.
  void Return();
  bool is_held() const { return buffers_ != nullptr; }

  // Work that follows on `stream` sees the rows, and may use them until the batch is returned.
  // stream  of the same GPU; null: the default stream
  // Errors: kInvalidArgument  the stream is of another GPU, or was destroyed; no batch is held
  //         and as PrimaryContext::Run
  Status UseOn(device::StreamHandle stream);

  const BatchFacts& facts() const { return facts_; }
  // Requires: field < facts().field_count()
  DeviceRows rows(size_t field = 0) const;

 private:
  BatchFacts facts_;
  RowLayout layout_;
  RowBuffer* buffer_ = nullptr;
  std::shared_ptr<RowBuffers> buffers_;  // null: no batch is held
};

}  // namespace lmdbio::feed
#endif  // LMDBIO_FEED_FED_BATCH_H_
