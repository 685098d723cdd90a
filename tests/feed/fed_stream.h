// tests/feed/fed_stream.h - what a program sees of a feed, on a device of the stand-in
// (tests/emulated_gpu).
#ifndef LMDBIO_TESTS_FEED_FED_STREAM_H_
#define LMDBIO_TESTS_FEED_FED_STREAM_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lmdbio/feed/device_feed.h"
#include "tests/fixtures/lmdb_oracle.h"
#include "tests/kernels/kernels_on_device.h"
#include "tests/sync/on_device/tensors_on_device.h"

namespace lmdbio::test {

inline std::string TextOf(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Copies the rows of batches out of the device by work of a stream, and looks at them only at the
// end: so work of the program is under way while the feed goes on.
class FedReader {
 public:
  explicit FedReader(std::shared_ptr<device::Device> gpu, uint64_t room_bytes = 32 << 20)
      : gpu_(std::move(gpu)), host_(room_bytes), pinned_(Good(gpu_->Pin(host_.bytes()))) {}

  // Enqueues the copies of a batch that the program has.
  void Add(const feed::FedBatch& batch, device::StreamHandle stream) {
    device::DeviceStream borrowed = gpu_->Borrow(stream);
    const feed::BatchFacts& facts = batch.facts();
    for (size_t f = 0; f < facts.field_count(); ++f) {
      const feed::DeviceRows rows = batch.rows(f);
      SeenRows seen = {.rows_at = CopyOut(borrowed, rows.rows),
                       .size_bytes = rows.rows.size_bytes,
                       .row_bytes = rows.row_bytes,
                       .offsets_at = CopyOut(borrowed, rows.offsets),
                       .offsets_bytes = rows.offsets.size_bytes,
                       .records = {}};
      for (size_t i = f; i < facts.record_count(); i += facts.field_count()) {
        seen.records.push_back({facts.position(i), TextOf(facts.key(i)), facts.value_bytes(i)});
      }
      seen_.push_back(std::move(seen));
    }
  }

  // All records by position and field. "" as a key stands for rows that are not as they must be.
  std::map<std::pair<uint64_t, size_t>, KeyValue> Records(size_t field_count = 1) const {
    std::map<std::pair<uint64_t, size_t>, KeyValue> records;
    for (size_t i = 0; i < seen_.size(); ++i) AddRecords(seen_[i], i % field_count, records);
    return records;
  }

 private:
  struct Record {
    uint64_t position;
    std::string key;
    uint64_t value_bytes;
  };
  struct SeenRows {
    uint64_t rows_at;
    uint64_t size_bytes;
    uint64_t row_bytes;
    uint64_t offsets_at;
    uint64_t offsets_bytes;
    std::vector<Record> records;
  };
  using Found = std::map<std::pair<uint64_t, size_t>, KeyValue>;

  uint64_t CopyOut(device::DeviceStream& stream, device::DeviceSpan span) {
    const uint64_t at = used_;
    Must(stream.CopyOut(pinned_, at, span.begin, span.size_bytes));
    used_ += span.size_bytes;
    return at;
  }

  void AddRecords(const SeenRows& seen, size_t field, Found& found) const {
    const std::string rows = TextOf(host_.bytes().subspan(seen.rows_at, seen.size_bytes));
    std::vector<uint64_t> offsets(seen.offsets_bytes / sizeof(uint64_t));
    if (!offsets.empty()) {
      std::memcpy(offsets.data(), &host_.bytes()[seen.offsets_at], seen.offsets_bytes);
    }
    const bool is_packed = !offsets.empty();
    const size_t count = seen.records.size();
    bool is_right = is_packed ? offsets.size() == count + 1 && offsets[0] == 0 &&
                                    offsets.back() == seen.size_bytes
                              : seen.size_bytes == count * seen.row_bytes;
    for (size_t i = 0; i < count && is_right; ++i) {
      const Record& record = seen.records[i];
      const uint64_t at = is_packed ? offsets[i] : i * seen.row_bytes;
      const uint64_t row_bytes = is_packed ? offsets[i + 1] - at : seen.row_bytes;
      is_right = record.value_bytes <= row_bytes && at + row_bytes <= rows.size() &&
                 rows.find_first_not_of('\0', at + record.value_bytes) >= at + row_bytes;
      if (!is_right) break;
      const bool is_new = found
                              .emplace(std::pair(record.position, field),
                                       KeyValue{record.key, rows.substr(at, record.value_bytes)})
                              .second;
      is_right = is_new;
    }
    if (!is_right) found[{~uint64_t{0}, field}] = {"", "wrong rows"};
  }

  std::shared_ptr<device::Device> gpu_;
  SharedBytes host_;
  device::PinnedBytes pinned_;
  uint64_t used_ = 0;
  std::vector<SeenRows> seen_;
};

// The records of a stream without fields, as tests of the loader have them.
inline std::map<uint64_t, KeyValue> OneField(const FedReader& reader) {
  std::map<uint64_t, KeyValue> records;
  for (auto& [place, record] : reader.Records()) records[place.first] = record;
  return records;
}

// Options with which values lie in the window.
inline load::LoaderOptions WindowOptions() {
  load::LoaderOptions options;
  options.allow_map = false;
  options.keep_bytes = -1;
  options.layout_cache = "off";
  return options;
}

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_FEED_FED_STREAM_H_
