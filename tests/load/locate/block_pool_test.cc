// Goal: the pool hands over blocks in file order, its waits end, and it never copies other bytes
// than those of the file.
// Method: byte i of the file has a value that is computed from i. One thread plays both sides, or a
// second one plays the walking thread.
#include "lmdbio/load/locate/block_pool.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/catch.h"

namespace lmdbio::load {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kBlock = 4096;

std::byte ByteAt(uint64_t offset) { return static_cast<std::byte>(offset * 31 + offset / 251); }

std::unique_ptr<BlockPool> PoolOf(const Extent& range, uint64_t block_count, uint64_t slack = 0) {
  return std::move(*BlockPool::Create(
      range, {.block_bytes = kBlock, .block_count = block_count, .slack_bytes = slack}));
}

void Fill(const BlockPool::Empty& empty) {
  for (uint64_t i = 0; i < empty.file.length_bytes; ++i) {
    empty.memory[i] = ByteAt(empty.file.offset + i);
  }
}

// Fills all blocks that have room; returns their number.
int FillAll(BlockPool& pool) {
  int count = 0;
  while (const auto empty = pool.TakeNext()) {
    Fill(*empty);
    pool.SetArrived(empty->block);
    ++count;
  }
  return count;
}

// Whether the pool copies `file`, and copies the right bytes.
bool CopiesRight(BlockPool& pool, const Extent& file) {
  std::vector<std::byte> to(file.length_bytes, std::byte{0xEE});
  if (!pool.Copy(file, to)) return false;
  for (uint64_t i = 0; i < to.size(); ++i) {
    if (to[i] != ByteAt(file.offset + i)) return false;
  }
  return true;
}

TEST_CASE("The pool takes the blocks of its range in file order", "[block_pool]") {
  const Extent range{kBlock + 100, 3 * kBlock};  // neither end is that of a block
  const auto pool = PoolOf(range, 8);
  std::vector<Extent> taken;
  while (const auto empty = pool->TakeNext()) {
    CHECK(empty->memory.size() == empty->file.length_bytes);
    taken.push_back(empty->file);
  }
  CHECK(taken == std::vector<Extent>{{kBlock + 100, kBlock - 100},
                                     {2 * kBlock, kBlock},
                                     {3 * kBlock, kBlock},
                                     {4 * kBlock, 100}});
  CHECK(pool->has_taken_all());
}

TEST_CASE("The pool copies bytes of one block and of several", "[block_pool]") {
  const auto pool = PoolOf({100, 6 * kBlock}, 8);
  FillAll(*pool);
  CHECK(CopiesRight(*pool, {100, 1}));
  CHECK(CopiesRight(*pool, {kBlock - 1, 2}));
  CHECK(CopiesRight(*pool, {kBlock / 2, 3 * kBlock}));
  CHECK(CopiesRight(*pool, {6 * kBlock, 100}));
  CHECK(pool->counters().copied_bytes == 1 + 2 + 3 * kBlock + 100);
  CHECK(pool->counters().missed_bytes == 0);
}

TEST_CASE("The pool refuses bytes that it does not have", "[block_pool]") {
  const auto pool = PoolOf({2 * kBlock, 30 * kBlock}, 8);
  FillAll(*pool);
  std::vector<std::byte> to(8 * kBlock);

  SECTION("before its range") { CHECK_FALSE(CopiesRight(*pool, {kBlock, 10})); }
  SECTION("partly before its range") { CHECK_FALSE(CopiesRight(*pool, {2 * kBlock - 5, 10})); }
  SECTION("behind its range") { CHECK_FALSE(CopiesRight(*pool, {32 * kBlock, 10})); }
  SECTION("in its last block, behind its range") {
    const auto partial = PoolOf({100, kBlock}, 8);
    FillAll(*partial);
    CHECK(CopiesRight(*partial, {kBlock + 99, 1}));
    CHECK_FALSE(CopiesRight(*partial, {kBlock + 99, 2}));
    CHECK_FALSE(CopiesRight(*partial, {99, 2}));
    CHECK_FALSE(CopiesRight(*pool, {kBlock, 10}));
  }
  SECTION("far ahead of its blocks") { CHECK_FALSE(CopiesRight(*pool, {29 * kBlock, 10})); }
  SECTION("more than it may hold at once") {
    CHECK_FALSE(CopiesRight(*pool, {2 * kBlock, 5 * kBlock}));
  }
  CHECK(pool->counters().missed_bytes > 0);
}

TEST_CASE("Blocks that cannot be read are not copied", "[block_pool]") {
  const auto pool = PoolOf({0, 3 * kBlock}, 8);
  for (uint64_t block = 0; block < 3; ++block) {
    Fill(*pool->TakeNext());
    block == 1 ? pool->SetFailed(block) : pool->SetArrived(block);
  }
  CHECK(pool->Find(1) == BlockPool::Place::kOutside);
  CHECK_FALSE(CopiesRight(*pool, {kBlock + 1, 1}));
  CHECK_FALSE(CopiesRight(*pool, {kBlock - 1, 2}));
  CHECK(CopiesRight(*pool, {2 * kBlock, kBlock}));
}

TEST_CASE("Blocks well behind a copied place make room", "[block_pool]") {
  const auto pool = PoolOf({0, 100 * kBlock}, 8, 2 * kBlock);
  CHECK(FillAll(*pool) == 8);
  CHECK(CopiesRight(*pool, {4 * kBlock, 10}));
  CHECK(FillAll(*pool) == 2);  // blocks 0 and 1 were dropped
  CHECK(pool->Find(1) == BlockPool::Place::kOutside);
  CHECK(CopiesRight(*pool, {2 * kBlock, 10}));
  CHECK(CopiesRight(*pool, {9 * kBlock, 10}));
}

TEST_CASE("A copy sleeps until its blocks have arrived", "[block_pool]") {
  const auto pool = PoolOf({0, 200 * kBlock}, 8, kBlock);
  // The walking thread needs room for most blocks, which the copies make.
  std::thread walker([&] {
    while (!pool->has_taken_all()) {
      if (FillAll(*pool) == 0) pool->AwaitRoom();
    }
  });
  int wrong = 0;
  for (uint64_t block = 0; block < 198; block += 2) {
    if (!CopiesRight(*pool, {block * kBlock + 7, 2 * kBlock})) ++wrong;
  }
  walker.join();
  CHECK(wrong == 0);
  CHECK(pool->counters().missed_bytes == 0);
}

TEST_CASE("A walk that the reading thread waits for drops the first blocks", "[block_pool]") {
  const auto pool = PoolOf({0, 100 * kBlock}, 4);
  CHECK(FillAll(*pool) == 4);
  pool->BeginWaiting();
  pool->AwaitRoom();
  pool->EndWaiting();
  CHECK(pool->Find(0) == BlockPool::Place::kOutside);
  CHECK(FillAll(*pool) == 1);
}

TEST_CASE("A pool whose blocks are not needed gives up", "[block_pool]") {
  constexpr uint64_t kBlocks = 16 << 10;  // 64 MiB
  const auto pool = PoolOf({0, kBlocks * kBlock}, 64);
  uint64_t block = 0;
  for (; block < kBlocks && !pool->is_over(); ++block) {
    FillAll(*pool);
    std::vector<std::byte> to(kBlock / 2);
    pool->Copy({block * kBlock, to.size()}, to);  // half of each block
  }
  CHECK(pool->is_over());
  CHECK(block * kBlock >= 32 << 20);
  CHECK_FALSE(CopiesRight(*pool, {block * kBlock, 1}));
  CHECK_FALSE(pool->TakeNext().has_value());
}

TEST_CASE("The next epoch frees the pool", "[block_pool]") {
  const auto pool = PoolOf({0, 100 * kBlock}, 8, kBlock);
  for (uint64_t block = 0; block < 100; ++block) {
    FillAll(*pool);
    CHECK(CopiesRight(*pool, {block * kBlock, kBlock}));
  }
  CHECK_FALSE(CopiesRight(*pool, {0, kBlock}));  // the walk has not ended
  CHECK_FALSE(pool->is_over());
  pool->End();
  CHECK(CopiesRight(*pool, {99 * kBlock, kBlock}));
  CHECK_FALSE(CopiesRight(*pool, {0, kBlock}));
  CHECK(pool->is_over());
  CHECK_FALSE(CopiesRight(*pool, {99 * kBlock, kBlock}));
}

TEST_CASE("Stop and End end the sleep of a copy", "[block_pool]") {
  const auto pool = PoolOf({0, 100 * kBlock}, 8, kBlock);
  const auto first = pool->TakeNext();
  Fill(*first);
  pool->SetArrived(first->block);
  pool->TakeNext();  // never arrives
  const bool stops = GENERATE(true, false);
  std::thread other([&] {
    std::this_thread::sleep_for(20ms);
    stops ? pool->Stop() : pool->End();
  });
  CHECK_FALSE(CopiesRight(*pool, {kBlock, 1}));
  other.join();
  CHECK(CopiesRight(*pool, {0, kBlock}) == !stops);
  pool->AwaitRoom();  // returns
}

}  // namespace
}  // namespace lmdbio::load
