// lmdbio/file/keys/key_search.h - finds many keys of a tree in one descent.
//
// The keys are in the order of the database. All of them go down the tree together, level by level:
// a page is visited once, with all keys below it, and the pages of a level are read together.
//
// A search believes the order of the keys, so it checks it. Each page that it visits must be in
// order, and lie between the keys of the branch pages above it. So most damage to a page, and the
// order of a program's own comparison function, end in an error. LMDB has no checksums: if bytes of
// a key are damaged and its page stays in order, a key can be absent by mistake.
//
// Source: docs/keys.md "Search"; docs/format.md sections 3 and 6.
#ifndef LMDBIO_FILE_KEYS_KEY_SEARCH_H_
#define LMDBIO_FILE_KEYS_KEY_SEARCH_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lmdbio/file/keys/kept_branches.h"
#include "lmdbio/file/layout/database.h"

namespace lmdbio::file {

// A key of a search that is in the database.
struct KeyHit {
  size_t key = 0;     // index into the keys of the search
  uint32_t node = 0;  // of the leaf page
};

// A visited leaf page, and the keys that are on it, in order. Borrowed for the call.
struct FoundLeaf {
  PageNo page_no;
  Bytes bytes;  // [page size]
  const LeafPage& page;
  std::span<const KeyHit> hits;  // not empty
};

// Threads: one at a time; several searches may share `kept`.
// Lifetime: copies `database`; its source, and `kept`, must outlive the search
class KeySearch {
 public:
  KeySearch(const Database& database, KeptBranches& kept)
      : database_(database), order_(database.key_order()), kept_(kept) {}

  using Visitor = std::function<Status(const FoundLeaf&)>;

  // Calls `visit` for each leaf page with one of the keys, in key order. A key that no call names
  // is not in the database.
  //
  // keys  [each once] in the order of the database (CompareKeys); of any size, also empty
  // Errors: kInvalidArgument  the database has integer keys of another size than this key
  //         kCorruption       a damaged page, or keys in another order; kIo; those of `visit`
  // Cost:   for each level of the tree one batch of reads, of the pages that are not kept; the
  //         headers and keys of the visited pages
  Status Find(std::span<const Bytes> keys, const Visitor& visit);

 private:
  // A key in memory of the search, or no bound.
  struct Bound {
    size_t begin = 0;  // in `bounds_`
    size_t size = 0;
    bool is_set = false;
  };
  // Consecutive keys of the search that are below one page.
  struct KeyGroup {
    PageNo page_no;
    size_t first_key = 0;
    size_t key_count = 0;
    Bound least;  // no key of the page is less
    Bound above;  // every key of the page is less
  };

  Status FetchBranches();
  Status Descend(std::span<const Bytes> keys);
  void Split(const KeyGroup& group, const BranchPage& branch, std::span<const Bytes> keys);
  Status VisitLeaves(std::span<const Bytes> keys, const Visitor& visit);
  Status FindOnLeaf(const KeyGroup& group, const TreePage& page, std::span<const Bytes> keys,
                    const Visitor& visit);

  Bytes BytesOf(const Bound& bound) const {
    return Bytes(bounds_).subspan(bound.begin, bound.size);
  }
  Bound KeepBound(Bytes key);
  Result<std::shared_ptr<const OwnedBranch>> OwnBranch(const TreePage& page) const;
  Status CheckBounds(const KeyGroup& group, Bytes first_key, Bytes last_key) const;
  tl::unexpected<Error> OutOfOrder(PageNo page_no, uint32_t node) const;
  Status CheckKeySize(Bytes of_page, Bytes wanted) const;

  Database database_;
  KeyOrder order_;
  KeptBranches& kept_;
  // Of the level that is searched:
  std::vector<KeyGroup> groups_;
  std::vector<std::shared_ptr<const OwnedBranch>> branches_;  // [groups_]
  // Of the next level:
  std::vector<KeyGroup> next_groups_;
  std::vector<std::byte> bounds_;  // of all levels
  std::vector<KeyHit> hits_;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_KEYS_KEY_SEARCH_H_
