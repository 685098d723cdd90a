// tools/inspect/layout_statistics.h - sizes and locations of records, counted by a page walk.
#ifndef LMDBIO_TOOLS_INSPECT_LAYOUT_STATISTICS_H_
#define LMDBIO_TOOLS_INSPECT_LAYOUT_STATISTICS_H_

#include <array>
#include <cstdint>

#include "lmdbio/file/format/page_format.h"
#include "lmdbio/file/layout/record_run.h"

namespace lmdbio::tools {

class LayoutStatistics final : public file::RecordRunSink {
 public:
  explicit LayoutStatistics(file::PageFormat page_format) : page_format_(page_format) {}

  Status Add(const file::RecordRun& run) override;

  uint64_t record_count() const { return record_count_; }
  uint64_t value_bytes_total() const { return value_bytes_total_; }
  uint64_t value_bytes_min() const { return record_count_ == 0 ? 0 : value_bytes_min_; }
  uint64_t value_bytes_max() const { return value_bytes_max_; }
  uint64_t key_bytes_min() const { return record_count_ == 0 ? 0 : key_bytes_min_; }
  uint64_t key_bytes_max() const { return key_bytes_max_; }
  uint64_t overflow_record_count() const { return overflow_record_count_; }

  // Records by value size. Bucket 0 counts empty values, bucket b values of [2^(b-1), 2^b) bytes.
  static constexpr size_t kBucketCount = 34;
  const std::array<uint64_t, kBucketCount>& buckets() const { return buckets_; }

  // The steps of a pass in key order, from the pages of one record to those of the next. adjacent:
  // the same page or the next. near: at most kNearBytes forward. far: farther forward. backward.
  static constexpr uint64_t kNearBytes = 64 << 10;
  uint64_t adjacent_count() const { return adjacent_count_; }
  uint64_t near_count() const { return near_count_; }
  uint64_t far_count() const { return far_count_; }
  uint64_t backward_count() const { return backward_count_; }

 private:
  void AddValue(const Extent& value, PageNo home);

  file::PageFormat page_format_;
  uint64_t record_count_ = 0;
  uint64_t value_bytes_total_ = 0;
  uint64_t value_bytes_min_ = ~uint64_t{0};
  uint64_t value_bytes_max_ = 0;
  uint64_t key_bytes_min_ = ~uint64_t{0};
  uint64_t key_bytes_max_ = 0;
  uint64_t overflow_record_count_ = 0;
  std::array<uint64_t, kBucketCount> buckets_{};
  uint64_t adjacent_count_ = 0;
  uint64_t near_count_ = 0;
  uint64_t far_count_ = 0;
  uint64_t backward_count_ = 0;
  uint64_t previous_page_ = 0;  // the last page of the previous record
};

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_INSPECT_LAYOUT_STATISTICS_H_
