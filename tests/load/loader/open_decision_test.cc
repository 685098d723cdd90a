// Goal: `auto` uses a file in place from the documented share on, and asks for memory and storage
// only where they decide.
// Method: shares on both sides of each limit, with measures that count their calls.
#include "lmdbio/load/loader/open_decision.h"

#include <cstdint>

#include "tests/support/catch.h"

namespace lmdbio::load {
namespace {

constexpr uint64_t kFileBytes = 1'000'000;

// A host with room for the file and fast storage, unless a case says otherwise.
struct FakeHost {
  bool Uses(double share, Order order, bool is_counted = true) {
    const InPlaceMeasures measures = {
        .room_bytes =
            [this] {
              ++room_questions;
              return room_bytes;
            },
        .read_s = [this]() -> Result<double> {
          ++reads;
          if (read_s < 0) return Fail(ErrorCode::kIo, "no such sector");
          return read_s;
        },
    };
    return IsCachedEnough({share, is_counted}, order, kFileBytes, measures);
  }

  uint64_t room_bytes = 2 * kFileBytes;
  double read_s = 0.0001;  // below 0: it fails
  int room_questions = 0;
  int reads = 0;
};

TEST_CASE("a file is used in place from the limit of its order on", "[decision]") {
  FakeHost host;
  CHECK_FALSE(host.Uses(0.84, Order::kSequential));
  CHECK(host.Uses(0.85, Order::kSequential));
  CHECK_FALSE(host.Uses(0.84, Order::kChunked));
  CHECK(host.Uses(0.85, Order::kChunked));
  CHECK_FALSE(host.Uses(0.39, Order::kShuffle));
  CHECK(host.Uses(0.4, Order::kShuffle));
}

TEST_CASE("a large file or slow storage needs more of the file in the cache", "[decision]") {
  FakeHost host;
  SECTION("too little memory") { host.room_bytes = 2 * kFileBytes - 2; }
  SECTION("slow reads") { host.read_s = kSlowReadSeconds; }
  SECTION("reads that fail") { host.read_s = -1; }
  for (const Order order : {Order::kSequential, Order::kShuffle}) {
    CHECK_FALSE(host.Uses(0.94, order));
    CHECK(host.Uses(0.95, order));
  }
}

TEST_CASE("nothing is measured if the share decides", "[decision]") {
  FakeHost host;
  host.Uses(0.3, Order::kShuffle);
  host.Uses(0.95, Order::kShuffle);
  host.Uses(0.5, Order::kSequential);
  CHECK(host.room_questions == 0);
  CHECK(host.reads == 0);
  host.room_bytes = 0;
  host.Uses(0.9, Order::kSequential);
  CHECK(host.room_questions == 1);
  CHECK(host.reads == 0);  // the storage is not asked after memory has decided
}

TEST_CASE("a share that the kernel did not count has to be nearly all", "[decision]") {
  FakeHost host;
  CHECK_FALSE(host.Uses(0.99, Order::kShuffle, /*is_counted=*/false));
  CHECK(host.Uses(0.995, Order::kShuffle, /*is_counted=*/false));
  CHECK(host.reads == 0);
}

}  // namespace
}  // namespace lmdbio::load
