#include "lmdbio/load/records/key_numbers.h"

#include <algorithm>

namespace lmdbio::load {

Result<KeyNumbers> KeyNumbers::Of(Locator& locator) {
  KeyNumbers numbers;
  LMDBIO_TRY_VOID(locator.VisitRuns([&](const file::RunLocation& run) {
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
  const auto of_leaf = std::ranges::equal_range(runs_, leaf.value, {}, &Run::leaf);
  // The last run that begins at the node or before it. A private tree has several that do.
  auto run = std::ranges::upper_bound(of_leaf, node, {}, &Run::first_node);
  if (run == of_leaf.begin()) return {};
  --run;
  if (run->kind == file::RunKind::kNodes) {
    const uint64_t into_run = node - run->first_node;
    if (into_run >= run->record_count) return {};
    return {run->first_record + into_run, 1};
  }
  if (run->first_node != node) return {};
  const uint64_t end = run->first_record + run->record_count;
  while (run != of_leaf.begin() && (run - 1)->first_node == node) --run;
  return {run->first_record, end - run->first_record};
}

}  // namespace lmdbio::load
