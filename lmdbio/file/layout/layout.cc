#include "lmdbio/file/layout/layout.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace lmdbio::file {

// The last run that starts at or before `record`.
uint64_t Layout::RunOf(RecordIndex record) const {
  LMDBIO_CHECK(record.value < record_count());
  uint64_t low = 0;
  uint64_t high = run_count();
  // Run 0 starts at record 0. So run `low` always starts at or before the record, and run `high`,
  // if it exists, behind it.
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    (first_records_[middle] <= record.value ? low : high) = middle;
  }
  return low;
}

KeyLocation Layout::Key(RecordIndex record) const {
  const uint64_t run = RunOf(record);
  const auto first_node = static_cast<uint32_t>(first_nodes_[run]);
  // The records of a kDuplicates run are duplicates of one key, so they share its node.
  const bool node_each = static_cast<RunKind>(kinds_[run]) == RunKind::kNodes;
  const uint64_t into = node_each ? record.value - first_records_[run] : 0;
  return {PageNo{leaves_[run]}, first_node + static_cast<uint32_t>(into)};
}

RunLocation Layout::Run(uint64_t run) const {
  LMDBIO_CHECK(run < run_count());
  RunLocation place;
  place.first_record = {first_records_[run]};
  // No column holds the record counts: a run ends at the start of the next one.
  const uint64_t end = run + 1 < run_count() ? first_records_[run + 1] : record_count();
  place.record_count = end - place.first_record.value;
  place.leaf = PageNo{leaves_[run]};
  place.first_node = static_cast<uint32_t>(first_nodes_[run]);
  place.kind = static_cast<RunKind>(kinds_[run]);
  place.home = PageNo{homes_[run]};
  return place;
}

Status Layout::Expand(RecordRunSink& sink) const {
  return ExpandRange({0}, record_count(), {0}, sink);
}

Status Layout::ExpandRange(RecordIndex first, uint64_t count, RecordIndex number_from,
                           RecordRunSink& sink) const {
  LMDBIO_CHECK(first.value <= record_count() && count <= record_count() - first.value);
  if (count == 0) return {};
  // The first and the last run may reach beyond the range and are cut. A cut run of nodes starts at
  // a later node; a cut run of duplicates keeps its node.
  const uint64_t end = first.value + count;
  std::vector<Extent> values;
  for (uint64_t i = RunOf(first); i < run_count(); ++i) {
    const RunLocation place = Run(i);
    if (place.first_record.value >= end) break;
    const uint64_t from = std::max(place.first_record.value, first.value);
    const uint64_t to = std::min(place.first_record.value + place.record_count, end);
    const bool node_each = place.kind == RunKind::kNodes;
    const uint64_t into = node_each ? from - place.first_record.value : 0;
    values.clear();
    for (uint64_t j = from; j < to; ++j) values.push_back(Value({j}));
    LMDBIO_TRY_VOID(sink.Add({RecordIndex{number_from.value + from},
                              place.leaf,
                              place.first_node + static_cast<uint32_t>(into),
                              place.kind,
                              place.home,
                              values,
                              {}}));
  }
  return {};
}

// The image of a layout is the images of its columns in this order, one after the other. Each
// begins with its own size, so the image has no table. Each size is a multiple of 8, which keeps
// the next column aligned.
std::array<PackedColumn*, 7> Layout::Columns() {
  return {&offsets_, &lengths_, &first_records_, &leaves_, &first_nodes_, &homes_, &kinds_};
}

std::array<const PackedColumn*, 7> Layout::Columns() const {
  return {&offsets_, &lengths_, &first_records_, &leaves_, &first_nodes_, &homes_, &kinds_};
}

uint64_t Layout::memory_bytes() const {
  uint64_t bytes = 0;
  for (const PackedColumn* column : Columns()) bytes += column->memory_bytes();
  return bytes;
}

uint64_t Layout::image_bytes() const {
  uint64_t bytes = 0;
  for (const PackedColumn* column : Columns()) bytes += column->image_bytes();
  return bytes;
}

void Layout::WriteImage(MutableBytes memory) const {
  for (const PackedColumn* column : Columns()) {
    column->WriteImage(memory.first(column->image_bytes()));
    memory = memory.subspan(column->image_bytes());
  }
}

Layout Layout::OfImage(Bytes image) {
  Layout layout;
  for (PackedColumn* column : layout.Columns()) {
    *column = PackedColumn::OfImage(image);
    image = image.subspan(column->image_bytes());
  }
  return layout;
}

Status LayoutBuilder::Add(const RecordRun& run) {
  if (run.first_record.value != record_count() || run.values.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("a run of {} records starts at record {}; expected record {}",
                            run.values.size(), run.first_record.value, record_count()));
  }
  offsets_.AppendAll(run.values, &Extent::offset);
  lengths_.AppendAll(run.values, &Extent::length_bytes);
  first_records_.Append(run.first_record.value);
  leaves_.Append(run.leaf.value);
  first_nodes_.Append(run.first_node);
  homes_.Append(run.home.value);
  kinds_.Append(static_cast<uint64_t>(run.kind));
  return {};
}

Layout LayoutBuilder::Finish() {
  Layout layout;
  layout.offsets_ = offsets_.Finish();
  layout.lengths_ = lengths_.Finish();
  layout.first_records_ = first_records_.Finish();
  layout.leaves_ = leaves_.Finish();
  layout.first_nodes_ = first_nodes_.Finish();
  layout.homes_ = homes_.Finish();
  layout.kinds_ = kinds_.Finish();
  return layout;
}

}  // namespace lmdbio::file
