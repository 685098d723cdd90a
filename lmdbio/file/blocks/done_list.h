// lmdbio/file/blocks/done_list.h - completed blocks, collected by an engine and returned together.
#ifndef LMDBIO_FILE_BLOCKS_DONE_LIST_H_
#define LMDBIO_FILE_BLOCKS_DONE_LIST_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "lmdbio/file/blocks/block_engine.h"

namespace lmdbio::file {

class DoneList {
 public:
  void Add(uint64_t tag, Status status) { fresh_.push_back({tag, std::move(status)}); }
  bool empty() const { return fresh_.empty(); }

  // The blocks added since the last call. Lifetime: until the next call; Add does not end it.
  std::span<BlockDone> Take() {
    handed_.clear();
    handed_.swap(fresh_);
    return handed_;
  }

 private:
  std::vector<BlockDone> fresh_;
  std::vector<BlockDone> handed_;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_BLOCKS_DONE_LIST_H_
