#include "lmdbio/load/records/key_lookup.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/file/layout/page_batch.h"

namespace lmdbio::load {
namespace {

// The locations that are asked for at once when all keys are read.
constexpr uint64_t kChunkRecords = 1 << 18;

// A key of consecutive records: of one, or of the duplicates of the key on one page.
struct RecordKey {
  Bytes key;
  uint64_t first_record = 0;
  uint64_t record_count = 0;
  PageNo leaf;
  uint32_t node = 0;
};

// The nodes of leaf pages that hold the keys of records.
class KeyNodes final : public file::RecordRunSink {
 public:
  Status Add(const file::RecordRun& run) override {
    nodes_.push_back({run.leaf, run.first_node, run.kind, run.first_record.value,
                      static_cast<uint32_t>(run.values.size())});
    if (leaves_.empty() || leaves_.back() != run.leaf) leaves_.push_back(run.leaf);
    return {};
  }

  std::span<const PageNo> leaves() const { return leaves_; }

  // Reads the leaf pages and calls `visit(const RecordKey&)`, which returns a Status, in the order
  // in which the records were added.
  template <typename Visit>
  Status ReadKeys(const file::PageReader& pages, Visit&& visit) const {
    auto next = nodes_.begin();
    file::PageBatch batch(pages);
    return batch.ForEach(leaves_, [&](const file::TreePage& page) -> Status {
      if (page.header.kind != file::PageKind::kLeaf) {
        return pages.Corrupt(page.header.page_no,
                             "is not a leaf page, but the layout has records on it");
      }
      auto leaf = file::LeafPage::Parse(pages.page_format(), page.bytes, page.header);
      if (!leaf) return pages.InFile(std::move(leaf).error());
      for (; next != nodes_.end() && next->leaf == page.header.page_no; ++next) {
        LMDBIO_TRY_VOID(VisitKeys(pages, *next, *leaf, visit));
      }
      return {};
    });
  }

 private:
  struct Nodes {
    PageNo leaf;
    uint32_t first = 0;
    file::RunKind kind = file::RunKind::kNodes;
    uint64_t first_record = 0;
    uint32_t record_count = 0;
  };

  template <typename Visit>
  static Status VisitKeys(const file::PageReader& pages, const Nodes& nodes,
                          const file::LeafPage& leaf, Visit& visit) {
    const bool is_each = nodes.kind == file::RunKind::kNodes;
    const uint32_t node_count = is_each ? nodes.record_count : 1;
    if (uint64_t{nodes.first} + node_count > leaf.entry_count()) {
      return pages.Corrupt(nodes.leaf,
                           fmt::format("holds {} nodes, but the layout expects {} from node {} on",
                                       leaf.entry_count(), node_count, nodes.first));
    }
    for (uint32_t i = 0; i < node_count; ++i) {
      const uint32_t node = nodes.first + i;
      LMDBIO_TRY_VOID(visit(RecordKey{leaf.key(node), nodes.first_record + i,
                                      is_each ? 1 : nodes.record_count, nodes.leaf, node}));
    }
    return {};
  }

  std::vector<Nodes> nodes_;
  std::vector<PageNo> leaves_;  // of nodes_; each once in a row
};

// The key of each record; that of duplicates once for each.
Result<KeyList> ListKeys(const KeyNodes& nodes, const file::PageReader& pages) {
  KeyList keys;
  LMDBIO_TRY_VOID(nodes.ReadKeys(pages, [&](const RecordKey& record) -> Status {
    for (uint64_t i = 0; i < record.record_count; ++i) keys.Add(record.key);
    return {};
  }));
  return keys;
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

Status KeyLookup::FindByTree(std::span<const Bytes> keys, std::span<KeyNumber> found) {
  LMDBIO_TRY(const KeyNumbers* const numbers, Numbers());
  return Search(keys, [&](const file::FoundLeaf& leaf) -> Status {
    for (const file::KeyHit& hit : leaf.hits) {
      found[hit.key] = numbers->NumberOf(leaf.page_no, hit.node);
      if (found[hit.key].value_count > 0) continue;
      return database_.pages().Corrupt(
          leaf.page_no, fmt::format("has node {}, which the layout does not have", hit.node));
    }
    return {};
  });
}

// Each round reads the keys of one proposed record for each key that is not found yet. There is a
// second round only if two keys have the same bits of their hashes.
Status KeyLookup::FindByIndex(const file::KeyIndex& index, std::span<const Bytes> keys,
                              std::span<KeyNumber> found) {
  const KeyNumbers* numbers = nullptr;
  if (database_.record().has_duplicates()) {
    LMDBIO_TRY(numbers, Numbers());
  }
  struct Proposal {
    uint64_t number = 0;
    size_t key = 0;
  };
  std::vector<std::vector<uint64_t>> candidates;
  candidates.reserve(keys.size());
  for (const Bytes key : keys) candidates.push_back(index.Candidates(key));
  for (size_t round = 0;; ++round) {
    std::vector<Proposal> proposals;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (found[i].value_count > 0 || round >= candidates[i].size()) continue;
      proposals.push_back({candidates[i][round], i});
    }
    if (proposals.empty()) return {};
    std::ranges::sort(proposals, {}, &Proposal::number);
    // Two keys may propose one record; it is then located twice.
    KeyNodes nodes;
    for (const Proposal& one : proposals) {
      LMDBIO_TRY_VOID(locator_.Locate(RecordIndex{one.number}, 1, nodes));
    }
    auto next = proposals.begin();
    LMDBIO_TRY_VOID(nodes.ReadKeys(database_.pages(), [&](const RecordKey& record) -> Status {
      const Proposal& one = *next++;
      if (!std::ranges::equal(record.key, keys[one.key])) return {};
      found[one.key] = numbers != nullptr ? numbers->NumberOf(record.leaf, record.node)
                                          : KeyNumber{one.number, 1};
      return {};
    }));
  }
}

Result<std::vector<KeyNumber>> KeyLookup::Find(const SortedKeys& keys) {
  std::vector<KeyNumber> sorted(keys.keys().size());
  if (const file::KeyIndex* const with = index()) {
    LMDBIO_TRY_VOID(FindByIndex(*with, keys.keys(), sorted));
  } else if (!database_.record().empty()) {
    LMDBIO_TRY_VOID(FindByTree(keys.keys(), sorted));
  }
  return keys.InWantedOrder(sorted);
}

Result<std::vector<uint64_t>> KeyLookup::CountValues(const SortedKeys& keys) {
  if (database_.record().has_duplicates() || index() != nullptr) {
    LMDBIO_TRY(const std::vector<KeyNumber> found, Find(keys));
    std::vector<uint64_t> counts;
    counts.reserve(found.size());
    for (const KeyNumber& key : found) counts.push_back(key.value_count);
    return counts;
  }
  std::vector<uint64_t> sorted(keys.keys().size());
  LMDBIO_TRY_VOID(Search(keys.keys(), [&](const file::FoundLeaf& leaf) -> Status {
    for (const file::KeyHit& hit : leaf.hits) sorted[hit.key] = 1;
    return {};
  }));
  return keys.InWantedOrder(sorted);
}

Result<KeyList> KeyLookup::ReadKeys(RecordIndex first, uint64_t count) {
  KeyNodes nodes;
  if (count > 0) LMDBIO_TRY_VOID(locator_.Locate(first, count, nodes));
  return ListKeys(nodes, database_.pages());
}

Result<KeyList> KeyLookup::ReadKeysOf(std::span<const uint64_t> records) {
  KeyNodes nodes;
  for (size_t i = 0; i < records.size();) {
    size_t end = i + 1;
    while (end < records.size() && records[end] == records[end - 1] + 1) ++end;
    LMDBIO_TRY_VOID(locator_.Locate(RecordIndex{records[i]}, end - i, nodes));
    i = end;
  }
  return ListKeys(nodes, database_.pages());
}

Result<file::KeyIndex> KeyLookup::BuildIndex(uint64_t record_count, std::vector<PageNo>& leaves) {
  file::KeyIndexBuilder builder(record_count);
  RecordKey last;
  for (uint64_t first = 0; first < record_count; first += kChunkRecords) {
    KeyNodes nodes;
    const uint64_t count = std::min(kChunkRecords, record_count - first);
    LMDBIO_TRY_VOID(locator_.Locate(RecordIndex{first}, count, nodes));
    LMDBIO_TRY_VOID(nodes.ReadKeys(database_.pages(), [&](const RecordKey& record) -> Status {
      // The duplicates of a key may be on several pages, and in two chunks.
      const bool is_more =
          last.record_count > 0 && last.leaf == record.leaf && last.node == record.node;
      if (!is_more) builder.Add(record.key, record.first_record);
      last = {{}, record.first_record, record.record_count, record.leaf, record.node};
      return {};
    }));
    for (const PageNo leaf : nodes.leaves()) {
      if (leaves.empty() || leaves.back() != leaf) leaves.push_back(leaf);
    }
  }
  return std::move(builder).Finish();
}

void KeyLookup::UseIndex(file::KeyIndex index) {
  const std::lock_guard lock(mutex_);
  if (owned_index_) return;
  owned_index_ = std::make_unique<const file::KeyIndex>(std::move(index));
  index_.store(owned_index_.get(), std::memory_order_release);
}

}  // namespace lmdbio::load
