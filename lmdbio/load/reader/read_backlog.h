// lmdbio/load/reader/read_backlog.h - reads of begun slots whose memory is not prepared yet.
//
// Fresh memory takes 0.1 ms to 3 ms for each 2 MiB (ranks/shm/huge_pages.h), so the memory of a
// slot may take as long as the first of its reads. The backlog prepares it piece by piece: the
// first reads start at once, and the reader takes completed reads between two pieces.
//
// Source: docs/loader.md "Readers".
#ifndef LMDBIO_LOAD_READER_READ_BACKLOG_H_
#define LMDBIO_LOAD_READER_READ_BACKLOG_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/load/reader/read_engine.h"
#include "lmdbio/ranks/shm/huge_pages.h"

namespace lmdbio::load {

// Threads: one at a time.
class ReadBacklog {
 public:
  // memory  of all destinations
  // pages   of this memory; null: it needs no preparation; borrowed
  // engine  borrowed
  ReadBacklog(MutableBytes memory, ranks::HugePages* pages, ReadEngine& engine)
      : memory_(memory), pages_(pages), engine_(engine) {}

  // Adds a read. Its destination lies in the memory, and no read into it is in flight.
  void Add(const file::BlockRead& read) { waiting_.push_back(read); }

  bool is_empty() const { return waiting_.empty(); }

  // Starts the first reads whose memory is prepared. If there is none, prepares the memory of one
  // read before.
  // Errors: as ReadEngine::Start
  Status StartSome();

 private:
  bool IsPrepared(const file::BlockRead& read) const;
  Extent InMemory(const file::BlockRead& read) const;
  uint64_t BytesBehindFirst() const;

  MutableBytes memory_;
  ranks::HugePages* pages_;
  ReadEngine& engine_;
  std::deque<file::BlockRead> waiting_;
  std::vector<file::BlockRead> reads_;  // of StartSome
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_READER_READ_BACKLOG_H_
