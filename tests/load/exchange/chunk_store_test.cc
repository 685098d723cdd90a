// Goal: a store gives up the chunks that nobody needs, and no other.
#include "lmdbio/load/exchange/chunk_store.h"

#include <vector>

#include "tests/support/catch.h"

namespace lmdbio::load {
namespace {

constexpr uint64_t kChunkBytes = 8;
constexpr uint64_t kChunkCount = 20;  // of the file
constexpr ChunkStore::Clock::time_point kStart{};
constexpr auto kTick = std::chrono::milliseconds(1);

ChunkStore::HeldChunk* AddReady(ChunkStore& store, uint64_t number,
                                ChunkStore::Clock::time_point when) {
  ChunkStore::HeldChunk* const chunk = store.Add(number, number, kChunkBytes, when);
  if (chunk != nullptr) chunk->is_ready = true;
  return chunk;
}

TEST_CASE("Each chunk has memory of its own, as long as it is", "[exchange]") {
  std::vector<std::byte> memory(2 * kChunkBytes);
  ChunkStore store(memory, kChunkBytes, kChunkCount, 2);
  CHECK(store.Find(7) == nullptr);
  ChunkStore::HeldChunk* const one = store.Add(7, 7, kChunkBytes, kStart);
  ChunkStore::HeldChunk* const end = store.Add(9, 9, 3, kStart);
  REQUIRE(one != nullptr);
  REQUIRE(end != nullptr);
  CHECK(store.Find(7) == one);
  CHECK(store.Find(9) == end);
  CHECK(store.IndexOf(*one) != store.IndexOf(*end));
  CHECK(&store.At(store.IndexOf(*end)) == end);
  CHECK(one->memory.size() == kChunkBytes);
  CHECK(end->memory.size() == 3);
  CHECK(one->memory.data() != end->memory.data());
}

TEST_CASE("A chunk that is being read or sent keeps its place", "[exchange]") {
  std::vector<std::byte> memory(2 * kChunkBytes);
  ChunkStore store(memory, kChunkBytes, kChunkCount, 2);
  store.Add(1, 1, kChunkBytes, kStart);
  AddReady(store, 2, kStart)->pin_count = 1;
  const auto later = kStart + 10 * ChunkStore::kPatience;
  CHECK(store.Add(3, 3, kChunkBytes, later) == nullptr);
  store.Find(2)->pin_count = 0;
  CHECK(store.Add(3, 3, kChunkBytes, later) != nullptr);
  CHECK(store.Find(1) != nullptr);
  CHECK(store.Find(2) == nullptr);
}

TEST_CASE("A chunk is done when all readers have wanted a later one", "[exchange]") {
  std::vector<std::byte> memory(2 * kChunkBytes);
  ChunkStore store(memory, kChunkBytes, kChunkCount, 2);
  const std::byte* const place = AddReady(store, 4, kStart)->memory.data();
  store.NoteWant(0, 6);
  store.NoteWant(1, 4);
  const bool is_gone = GENERATE(false, true);
  SECTION("one reader may still want it") {
    CHECK(store.Add(6, 6, kChunkBytes, kStart)->memory.data() != place);
    CHECK(store.Find(4) != nullptr);
  }
  SECTION("nobody wants it: its memory is used before new memory") {
    if (is_gone) store.NoteGone(1);
    if (!is_gone) store.NoteWant(1, 5);
    CHECK(store.Add(6, 6, kChunkBytes, kStart)->memory.data() == place);
    CHECK(store.Find(4) == nullptr);
  }
}

TEST_CASE("The next epoch does not make its first chunks done", "[exchange]") {
  std::vector<std::byte> memory(2 * kChunkBytes);
  ChunkStore store(memory, kChunkBytes, kChunkCount, 2);
  CHECK(store.NoteWant(0, kChunkCount - 1) == kChunkCount - 1);
  CHECK(store.NoteWant(1, kChunkCount - 1) == kChunkCount - 1);
  CHECK(store.NoteWant(1, kChunkCount - 3) == kChunkCount - 3);  // a small step back
  // Reader 0 begins again and goes on; reader 1 will want chunk 0, too.
  const uint64_t position = store.NoteWant(0, 0);
  CHECK(position == kChunkCount);
  ChunkStore::HeldChunk* const first = store.Add(0, position, kChunkBytes, kStart);
  first->is_ready = true;
  CHECK(store.NoteWant(0, 1) == kChunkCount + 1);
  CHECK(store.Add(1, kChunkCount + 1, kChunkBytes, kStart) != nullptr);
  CHECK(store.Find(0) == first);
  store.Find(1)->is_ready = true;
  CHECK(store.Add(2, kChunkCount + 2, kChunkBytes, kStart) == nullptr);
  CHECK(store.NoteWant(1, 1) == kChunkCount + 1);
  CHECK(store.Add(2, kChunkCount + 2, kChunkBytes, kStart) == first);
}

TEST_CASE("A chunk that is not done goes after a while, the oldest first", "[exchange]") {
  std::vector<std::byte> memory(2 * kChunkBytes);
  ChunkStore store(memory, kChunkBytes, kChunkCount, 2);
  AddReady(store, 2, kStart + kTick);
  AddReady(store, 1, kStart);
  CHECK(store.Add(3, 3, kChunkBytes, kStart + ChunkStore::kPatience - kTick) == nullptr);
  REQUIRE(store.Add(3, 3, kChunkBytes, kStart + ChunkStore::kPatience) != nullptr);
  CHECK(store.Find(1) == nullptr);
  CHECK(store.Find(2) != nullptr);
}

TEST_CASE("A removed chunk is not found, and its place is free", "[exchange]") {
  std::vector<std::byte> memory(kChunkBytes);
  ChunkStore store(memory, kChunkBytes, kChunkCount, 2);
  ChunkStore::Remove(*store.Add(1, 1, kChunkBytes, kStart));
  CHECK(store.Find(1) == nullptr);
  CHECK(store.Add(2, 2, kChunkBytes, kStart) != nullptr);
}

}  // namespace
}  // namespace lmdbio::load
