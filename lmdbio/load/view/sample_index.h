// lmdbio/load/view/sample_index.h - from the number of a record to the sample that has it.
#ifndef LMDBIO_LOAD_VIEW_SAMPLE_INDEX_H_
#define LMDBIO_LOAD_VIEW_SAMPLE_INDEX_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "lmdbio/load/view/view.h"

namespace lmdbio::load {

// Threads: const; any number of readers. Memory: 16 bytes for each record of a sample.
class SampleIndex {
 public:
  explicit SampleIndex(const View& view) {
    entries_.reserve(view.sample_count() * view.field_count());
    for (size_t field = 0; field < view.field_count(); ++field) {
      for (uint64_t sample = 0; sample < view.sample_count(); ++sample) {
        entries_.push_back({view.RecordOf(sample, field), sample});
      }
    }
    std::ranges::sort(entries_, [](const Entry& a, const Entry& b) {
      return a.record != b.record ? a.record < b.record : a.sample < b.sample;
    });
  }

  // The first sample with this record; nothing if no sample has it.
  std::optional<uint64_t> SampleOf(uint64_t record) const {
    const auto found = std::ranges::lower_bound(entries_, record, {}, &Entry::record);
    if (found == entries_.end() || found->record != record) return std::nullopt;
    return found->sample;
  }

 private:
  struct Entry {
    uint64_t record = 0;
    uint64_t sample = 0;
  };
  std::vector<Entry> entries_;  // by record, then by sample
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_VIEW_SAMPLE_INDEX_H_
