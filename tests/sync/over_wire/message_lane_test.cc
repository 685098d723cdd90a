// Goal: a lane names the memory of the messages in their order, at most that of one turn; bytes
// that came early reach the message to which they belong.
// Method: each byte of a stream has a number, so a wrong place is seen.
#include "lmdbio/sync/over_wire/message_lane.h"

#include <array>
#include <numeric>
#include <vector>

#include "tests/support/catch.h"

namespace lmdbio::sync {
namespace {

std::vector<size_t> SizesOf(std::span<const iovec> vectors) {
  std::vector<size_t> sizes;
  for (const iovec& vector : vectors) sizes.push_back(vector.iov_len);
  return sizes;
}

TEST_CASE("A turn takes the next messages, up to its bytes and vectors", "[wire][lane]") {
  std::vector<std::byte> memory(3 * kBytesPerTurn);
  MessageLane lane;
  lane.Push(memory.data(), 40);
  lane.Push(memory.data() + 40, kBytesPerTurn);
  lane.Push(memory.data() + 40 + kBytesPerTurn, 7);
  std::array<iovec, 4> vectors;
  auto next = lane.FillVectors(vectors);
  CHECK(next.bytes == kBytesPerTurn);
  CHECK(SizesOf(std::span(vectors).first(next.count)) ==
        std::vector<size_t>{40, kBytesPerTurn - 40});
  CHECK(vectors[1].iov_base == memory.data() + 40);
  CHECK(lane.FillVectors(std::span(vectors).first(1)).bytes == 40);

  lane.Advance(kBytesPerTurn);
  CHECK(lane.done_count == 1);
  next = lane.FillVectors(vectors);
  CHECK(SizesOf(std::span(vectors).first(next.count)) == std::vector<size_t>{40, 7});
  CHECK(vectors[0].iov_base == memory.data() + kBytesPerTurn);
  lane.Advance(47);
  CHECK(lane.done_count == 3);
  CHECK(lane.FillVectors(vectors).count == 0);
}

TEST_CASE("A message without bytes is done after those ahead of it", "[wire][lane]") {
  std::byte memory{};
  MessageLane lane;
  lane.Push(nullptr, 0);
  CHECK(lane.done_count == 1);
  lane.Push(&memory, 1);
  lane.Push(nullptr, 0);
  CHECK(lane.done_count == 1);
  lane.Advance(1);
  CHECK(lane.done_count == 3);
}

TEST_CASE("Early bytes go to the next messages", "[wire][lane]") {
  ReadAhead ahead;
  const iovec room = ahead.Room();
  REQUIRE(room.iov_len == ReadAhead::kBytesMax);
  auto* const bytes = static_cast<uint8_t*>(room.iov_base);
  std::iota(bytes, bytes + 10, uint8_t{1});
  ahead.Take(10);

  std::array<uint8_t, 12> memory = {};
  const auto push = [&](MessageLane& lane, size_t begin, size_t size) {
    lane.Push(reinterpret_cast<std::byte*>(memory.data()) + begin, size);
    ahead.MoveTo(lane);
  };
  MessageLane lane;
  push(lane, 0, 4);
  push(lane, 4, 0);
  CHECK(lane.done_count == 2);
  push(lane, 4, 8);  // two bytes more than there are
  CHECK(lane.done_count == 2);
  REQUIRE(lane.transfers.size() == 1);
  CHECK(lane.transfers.front().left_bytes == 2);
  CHECK(memory == std::array<uint8_t, 12>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 0});
  ahead.Room();  // is free again
}

}  // namespace
}  // namespace lmdbio::sync
