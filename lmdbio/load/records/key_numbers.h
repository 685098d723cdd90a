// lmdbio/load/records/key_numbers.h - from the node of a key to the number of its record.
//
// Branch pages hold no counts, so a descent finds the leaf page and node of a key, but not its
// number. The locations of all records give the number of the first record of each leaf page.
//
// Source: docs/keys.md "Numbers".
#ifndef LMDBIO_LOAD_RECORDS_KEY_NUMBERS_H_
#define LMDBIO_LOAD_RECORDS_KEY_NUMBERS_H_

#include <cstdint>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/load/locate/locator.h"

namespace lmdbio::load {

inline constexpr uint64_t kNoRecord = ~uint64_t{0};

// The records of one key.
struct KeyNumber {
  uint64_t first = kNoRecord;  // the number of its record, or of the first of its duplicates
  uint64_t value_count = 0;    // 0: there is no such key
  friend bool operator==(const KeyNumber&, const KeyNumber&) = default;
};

// Threads: const; any number of callers. Memory: 24 bytes for each run of records, which is a leaf
// page, or a key with duplicates.
class KeyNumbers {
 public:
  // Errors: as Locator::VisitRuns
  static Result<KeyNumbers> Of(Locator& locator);

  // The records of node `node` of leaf page `leaf`. No records if no run has this node: then the
  // locations are not those of this tree.
  KeyNumber NumberOf(PageNo leaf, uint32_t node) const;

 private:
  struct Run {
    uint64_t leaf = 0;
    uint64_t first_record = 0;
    uint32_t record_count = 0;
    uint16_t first_node = 0;
    file::RunKind kind = file::RunKind::kNodes;
  };
  std::vector<Run> runs_;  // by leaf page; those of a page in order
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_RECORDS_KEY_NUMBERS_H_
