// lmdbio/load/locate/walked_source.h - leaf pages for a walk, from large reads that also bring the
// values behind them.
//
// A page walk needs 4 KiB of each leaf page, and right behind them lie the values that the next
// slot needs. In a file that was written once, both come in the order of the walk. So this source
// reads the file from one end to the other into a BlockPool, in direct reads of 1 MiB, and answers
// the walk from there. The reading thread copies the pages of its slots from the same pool.
//
// A wrong guess costs a read and never a wrong record. Pages outside the pool, and those of a block
// that cannot be read, come from the file alone; slots are checked like all others.
//
// Source: dissertation 4.2.2 (speculative reading), 5.2.3 (large reads); docs/loader.md "Joint
// walk".
#ifndef LMDBIO_LOAD_LOCATE_WALKED_SOURCE_H_
#define LMDBIO_LOAD_LOCATE_WALKED_SOURCE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "lmdbio/base/byte_source.h"
#include "lmdbio/file/blocks/block_engine.h"
#include "lmdbio/file/layout/database.h"
#include "lmdbio/load/locate/block_pool.h"

namespace lmdbio::load {

// The part of the file to read for a stream in key order: from the first leaf page of the database
// on. Nothing if reading it as a whole would not pay: the file is small, it has much besides the
// pages of this database, or its leaf pages are in another order than the walk.
// leaves        of the database, in key order
// stream_bytes  the pages that the stream will need
std::optional<Extent> JointRange(const file::Database& database, std::span<const PageNo> leaves,
                                 uint64_t stream_bytes);

// Threads: the walking thread.
class WalkedSource final : public ByteSource {
 public:
  // file  the same data file; borrowed
  // pool  borrowed
  WalkedSource(const ByteSource& file, std::unique_ptr<file::BlockEngine> engine, BlockPool& pool)
      : file_(file), engine_(std::move(engine)), pool_(pool) {}

  // Waits for the reads in flight.
  ~WalkedSource() override;

  const std::string& name() const override { return file_.name(); }
  Result<uint64_t> SizeBytes() const override { return file_.SizeBytes(); }
  // These wait until the blocks of the bytes have arrived.
  Result<Bytes> Read(Extent extent, MutableBytes scratch) const override;
  Status ReadMany(std::span<const ReadRequest> requests) const override;
  ReadCounters counters() const override { return file_.counters(); }

  // Reads the rest of the range. Returns when all of it was read, or the pool is over.
  void ReadRest();

 private:
  bool Serve(const ReadRequest& request) const;
  bool Await(uint64_t block) const;
  bool Advance() const;

  const ByteSource& file_;
  std::unique_ptr<file::BlockEngine> engine_;
  BlockPool& pool_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOCATE_WALKED_SOURCE_H_
