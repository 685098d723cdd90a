#include "lmdbio/load/records/key_lookup.h"

#include <utility>

#include <fmt/format.h>

#include "lmdbio/file/layout/page_batch.h"

namespace lmdbio::load {
namespace {

// The nodes of leaf pages that hold the keys of records.
class KeyNodes final : public file::RecordRunSink {
 public:
  struct Nodes {
    PageNo leaf;
    uint32_t first = 0;
    uint32_t count = 0;  // keys
    file::RunKind kind = file::RunKind::kNodes;
  };

  Status Add(const file::RecordRun& run) override {
    nodes_.push_back(
        {run.leaf, run.first_node, static_cast<uint32_t>(run.values.size()), run.kind});
    if (leaves_.empty() || leaves_.back() != run.leaf) leaves_.push_back(run.leaf);
    return {};
  }

  std::span<const Nodes> nodes() const { return nodes_; }
  std::span<const PageNo> leaves() const { return leaves_; }  // each once

 private:
  std::vector<Nodes> nodes_;
  std::vector<PageNo> leaves_;
};

// Appends the keys of `nodes` to `keys`.
Status AddKeys(const file::PageReader& pages, const KeyNodes::Nodes& nodes,
               const file::LeafPage& leaf, KeyList& keys) {
  const uint32_t node_count = nodes.kind == file::RunKind::kNodes ? nodes.count : 1;
  if (uint64_t{nodes.first} + node_count > leaf.entry_count()) {
    return pages.Corrupt(nodes.leaf,
                         fmt::format("holds {} nodes, but the layout expects {} from node {} on",
                                     leaf.entry_count(), node_count, nodes.first));
  }
  for (uint32_t i = 0; i < nodes.count; ++i) {
    const Bytes key = leaf.key(nodes.first + (node_count == 1 ? 0 : i));
    keys.bytes.insert(keys.bytes.end(), key.begin(), key.end());
    keys.ends.push_back(keys.bytes.size());
  }
  return {};
}

}  // namespace

Status KeyLookup::Search(std::span<const Bytes> keys, const file::KeySearch::Visitor& visit) {
  return file::KeySearch(database_, branches_).Find(keys, visit);
}

// The threads that need the numbers wait for the first of them. A failure is not kept: the locator
// keeps its own.
Result<const KeyNumbers*> KeyLookup::Numbers() {
  const std::lock_guard lock(mutex_);
  if (!numbers_) {
    LMDBIO_TRY(KeyNumbers numbers, KeyNumbers::Of(locator_));
    numbers_ = std::make_unique<const KeyNumbers>(std::move(numbers));
  }
  return numbers_.get();
}

Result<std::vector<KeyNumber>> KeyLookup::Find(const SortedKeys& keys) {
  std::vector<KeyNumber> sorted(keys.keys().size());
  if (!database_.record().empty()) {
    LMDBIO_TRY(const KeyNumbers* const numbers, Numbers());
    LMDBIO_TRY_VOID(Search(keys.keys(), [&](const file::FoundLeaf& leaf) -> Status {
      for (const file::KeyHit& hit : leaf.hits) {
        sorted[hit.key] = numbers->NumberOf(leaf.page_no, hit.node);
        if (sorted[hit.key].value_count > 0) continue;
        return database_.pages().Corrupt(
            leaf.page_no, fmt::format("has node {}, which the layout does not have", hit.node));
      }
      return {};
    }));
  }
  std::vector<KeyNumber> found(keys.wanted_count());
  for (size_t i = 0; i < found.size(); ++i) found[i] = sorted[keys.place_of(i)];
  return found;
}

Result<std::vector<uint64_t>> KeyLookup::CountValues(const SortedKeys& keys) {
  std::vector<uint64_t> counts(keys.wanted_count());
  if (database_.record().has_duplicates()) {
    LMDBIO_TRY(const std::vector<KeyNumber> found, Find(keys));
    for (size_t i = 0; i < counts.size(); ++i) counts[i] = found[i].value_count;
    return counts;
  }
  std::vector<uint64_t> sorted(keys.keys().size());
  LMDBIO_TRY_VOID(Search(keys.keys(), [&](const file::FoundLeaf& leaf) -> Status {
    for (const file::KeyHit& hit : leaf.hits) sorted[hit.key] = 1;
    return {};
  }));
  for (size_t i = 0; i < counts.size(); ++i) counts[i] = sorted[keys.place_of(i)];
  return counts;
}

Result<KeyList> KeyLookup::ReadKeys(RecordIndex first, uint64_t count) {
  KeyNodes nodes;
  if (count > 0) LMDBIO_TRY_VOID(locator_.Locate(first, count, nodes));
  const file::PageReader& pages = database_.pages();
  KeyList keys;
  keys.ends.reserve(count);
  auto next = nodes.nodes().begin();
  file::PageBatch batch(pages);
  LMDBIO_TRY_VOID(batch.ForEach(nodes.leaves(), [&](const file::TreePage& page) -> Status {
    const PageNo page_no = page.header.page_no;
    if (page.header.kind != file::PageKind::kLeaf) {
      return pages.Corrupt(page_no, "is not a leaf page, but the layout has records on it");
    }
    auto leaf = file::LeafPage::Parse(pages.page_format(), page.bytes, page.header);
    if (!leaf) return pages.InFile(std::move(leaf).error());
    for (; next != nodes.nodes().end() && next->leaf == page_no; ++next) {
      LMDBIO_TRY_VOID(AddKeys(pages, *next, *leaf, keys));
    }
    return {};
  }));
  return keys;
}

}  // namespace lmdbio::load
