// Arithmetic of the emulated disks. The oracle deals stripes to disks one by one.
#include "tools/storage/striped_disks.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/support/catch.h"

namespace {

constexpr int64_t kSeekNs = 8'000'000;

DiskModel ModelOf(uint32_t count, uint64_t stripe_bytes, uint64_t free_bytes = 0) {
  return {count, stripe_bytes, free_bytes, kSeekNs};
}

// The place of every stripe of a file.
std::vector<DiskPiece> DealStripes(const DiskModel& model, size_t stripe_count) {
  std::vector<DiskPiece> places;
  std::vector<uint64_t> lengths(model.count);
  for (size_t i = 0; i < stripe_count; ++i) {
    const auto shortest = std::min_element(lengths.begin(), lengths.end());
    const auto disk = static_cast<uint32_t>(shortest - lengths.begin());
    places.push_back({disk, *shortest, model.stripe_bytes});
    *shortest += model.stripe_bytes;
  }
  return places;
}

uint64_t Seeks(const std::vector<Disk>& disks) {
  uint64_t sum = 0;
  for (const Disk& disk : disks) sum += disk.seeks;
  return sum;
}

}  // namespace

TEST_CASE("disk_first_piece cuts a request at stripes and names disk and position", "[disks]") {
  const DiskModel model = ModelOf(GENERATE(1U, 2U, 3U, 8U), GENERATE(4096U, 12288U, 65536U));
  constexpr size_t kStripes = 50;
  const std::vector<DiskPiece> places = DealStripes(model, kStripes);
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    uint64_t offset = random() % (kStripes * model.stripe_bytes);
    const uint64_t end = offset + 1 + random() % (kStripes * model.stripe_bytes - offset);
    while (offset < end) {
      const DiskPiece piece = disk_first_piece(&model, offset, end - offset);
      const size_t stripe = offset / model.stripe_bytes;
      const uint64_t begin = stripe * model.stripe_bytes;
      CHECK(piece.disk == places[stripe].disk);
      CHECK(piece.position == places[stripe].position + (offset - begin));
      CHECK(piece.bytes == std::min(end, begin + model.stripe_bytes) - offset);
      REQUIRE(piece.bytes > 0);
      offset += piece.bytes;
    }
    CHECK(offset == end);
  }
}

TEST_CASE("disk_first_piece works at the last bytes of the largest file", "[disks]") {
  const DiskModel model = ModelOf(3, DISK_STRIPE_MAX);
  const uint64_t last = static_cast<uint64_t>(INT64_MAX);
  const DiskPiece piece = disk_first_piece(&model, last - 1, 1);
  CHECK(piece.disk == (last >> 40) % 3);
  CHECK(piece.position == (((last >> 40) / 3) << 40) + (DISK_STRIPE_MAX - 2));
  CHECK(piece.bytes == 1);
}

TEST_CASE("disk_is_in_order compares distances in both directions", "[disks]") {
  const DiskModel model = ModelOf(1, 1 << 20, 100);
  const Disk disk = {1, 1, 5000, 0};
  const auto is_in_order = [&](uint64_t position) {
    const DiskPiece piece = {0, position, 10};
    return disk_is_in_order(&model, &disk, &piece) != 0;
  };
  CHECK(is_in_order(5000));
  CHECK(is_in_order(5100));
  CHECK(is_in_order(4900));
  CHECK_FALSE(is_in_order(5101));
  CHECK_FALSE(is_in_order(4899));
  CHECK_FALSE(is_in_order(0));
}

TEST_CASE("A disk that has served nothing seeks", "[disks]") {
  const DiskModel model = ModelOf(2, 4096, UINT64_MAX);
  std::vector<Disk> disks(2);
  CHECK(disks_serve(&model, disks.data(), 0, 8192, 0) == kSeekNs);
  CHECK(disks_serve(&model, disks.data(), 1 << 20, 8192, kSeekNs) == kSeekNs);
  CHECK((disks[0].seeks == 1 && disks[0].in_order == 1));
  CHECK((disks[1].seeks == 1 && disks[1].in_order == 1));
}

TEST_CASE("A long request is one run on each disk", "[disks]") {
  const DiskModel model = ModelOf(4, 4096);
  std::vector<Disk> disks(4);
  CHECK(disks_serve(&model, disks.data(), 100, 1 << 20, 0) == kSeekNs);
  CHECK(Seeks(disks) == 4);
  CHECK((disks[0].in_order == 64 && disks[1].in_order == 63));
}

TEST_CASE("Seeks on one disk queue, and disks work in parallel", "[disks]") {
  const DiskModel model = ModelOf(2, 4096);
  std::vector<Disk> disks(2);
  const int64_t now = 1'000;
  CHECK(disks_serve(&model, disks.data(), 0, 1000, now) == now + kSeekNs);
  CHECK(disks_serve(&model, disks.data(), 4096, 1000, now) == now + kSeekNs);
  CHECK(disks_serve(&model, disks.data(), 8192, 1000, now) == now + 2 * kSeekNs);
  // A piece in order waits for the seeks before it, and adds nothing.
  CHECK(disks_serve(&model, disks.data(), 9192, 1000, now + 5) == now + 2 * kSeekNs);
  // A request waits for the later one of its two disks.
  CHECK(disks_serve(&model, disks.data(), 12288 - 10, 20, now + 5) == now + 3 * kSeekNs);
  // An idle disk begins when the request arrives.
  CHECK(disks_serve(&model, disks.data(), 0, 1, now + 100 * kSeekNs) == now + 101 * kSeekNs);
  CHECK(disks_serve(&model, disks.data(), 1, 1, now + 200 * kSeekNs) == now + 200 * kSeekNs);
}

TEST_CASE("A request without bytes, or without a cost of seeking, is served at once", "[disks]") {
  DiskModel model = ModelOf(2, 4096);
  std::vector<Disk> disks(2);
  CHECK(disks_serve(&model, disks.data(), 4096, 0, 7) == 7);
  CHECK(Seeks(disks) == 0);
  model.seek_ns = 0;
  CHECK(disks_serve(&model, disks.data(), 4096, 1, 7) == 7);
  CHECK(Seeks(disks) == 1);
}

TEST_CASE("disk_model_error names the limit that a model exceeds", "[disks]") {
  const auto is_valid = [](uint32_t count, uint64_t stripe_bytes, int64_t seek_ns) {
    const DiskModel model = {count, stripe_bytes, 0, seek_ns};
    return disk_model_error(&model) == nullptr;
  };
  CHECK(is_valid(1, 4096, 0));
  CHECK(is_valid(DISK_COUNT_MAX, DISK_STRIPE_MAX, DISK_SEEK_NS_MAX));
  CHECK(is_valid(3, 12288, 1));
  CHECK_FALSE(is_valid(0, 4096, 0));
  CHECK_FALSE(is_valid(DISK_COUNT_MAX + 1, 4096, 0));
  CHECK_FALSE(is_valid(1, 0, 0));
  CHECK_FALSE(is_valid(1, 4097, 0));
  CHECK_FALSE(is_valid(1, 2 * DISK_STRIPE_MAX, 0));
  CHECK_FALSE(is_valid(1, 4096, -1));
  CHECK_FALSE(is_valid(1, 4096, DISK_SEEK_NS_MAX + 1));
}
