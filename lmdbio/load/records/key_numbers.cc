#include "lmdbio/load/records/key_numbers.h"

#include <algorithm>

namespace lmdbio::load {

Result<KeyNumbers> KeyNumbers::Of(Locator& locator) {
  KeyNumbers numbers;
  constexpr RecordRange kAll{0, ~uint64_t{0}};
  LMDBIO_TRY_VOID(locator.VisitRuns(kAll, [&](const file::RunLocation& run) {
    // Both numbers fit: a page has at most 65,536 bytes.
    numbers.runs_.push_back({run.leaf.value, run.first_record.value,
                             static_cast<uint32_t>(run.record_count),
                             static_cast<uint16_t>(run.first_node), run.kind});
  }));
  numbers.runs_.shrink_to_fit();
  std::ranges::stable_sort(numbers.runs_, {}, &Run::leaf);
  return numbers;
}

KeyNumber KeyNumbers::NumberOf(PageNo leaf, uint32_t node) const {
  // The last run that begins at the node or before it. A private tree has several that do.
  const auto is_behind = [&](const Run& run) {
    return run.leaf > leaf.value || (run.leaf == leaf.value && run.first_node > node);
  };
  auto run = std::partition_point(runs_.begin(), runs_.end(),
                                  [&](const Run& one) { return !is_behind(one); });
  if (run == runs_.begin() || (--run)->leaf != leaf.value) return {};
  if (run->kind == file::RunKind::kNodes) {
    const uint64_t into_run = node - run->first_node;
    if (into_run >= run->record_count) return {};
    return {run->first_record + into_run, 1};
  }
  if (run->first_node != node) return {};
  const uint64_t end = run->first_record + run->record_count;
  const auto is_same = [&](const Run& one) {
    return one.leaf == leaf.value && one.first_node == node;
  };
  while (run != runs_.begin() && is_same(*(run - 1))) --run;
  return {run->first_record, end - run->first_record};
}

}  // namespace lmdbio::load
