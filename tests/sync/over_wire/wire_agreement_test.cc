// Goal: a rank that sends a malformed head is named, and no value is read beside its memory.
#include "lmdbio/sync/over_wire/wire_agreement.h"

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "lmdbio/sync/over_wire/wire_choice.h"
#include "tests/support/catch.h"
#include "tests/sync/over_wire/forged_wire.h"

namespace lmdbio::sync {
namespace {

using test::ForgedCallHead;
using test::ForgedWire;

constexpr size_t kCount = 4;
constexpr CallTag kTag{.digest = 77};
constexpr CallShape kSumOfFour{.kind = WireCall::kAllReduce,
                               .type = static_cast<uint8_t>(DataType::kFloat32),
                               .op = static_cast<uint8_t>(ReduceOp::kSum),
                               .bytes = kCount * sizeof(float)};

struct ReducedValues {
  std::string error;
  bool is_done = false;
  std::array<float, kCount> values{1, 2, 3, 4};
};

// A rank of `size`, whose neighbours all send this head and values of 1.
ReducedValues Reduce(int rank, int size, const ForgedCallHead& head, const CallTag& tag = kTag) {
  bool is_head = true;
  ForgedWire wire(rank, size, [&](int, MutableBytes message) {
    const std::vector<float> ones(message.size() / sizeof(float) + 1, 1);
    std::memcpy(message.data(), is_head ? static_cast<const void*>(&head) : ones.data(),
                message.size());
    is_head = !is_head || head.payload_bytes == 0;
  });
  ReducedValues reduced;
  const Values values{reinterpret_cast<std::byte*>(reduced.values.data()), kCount};
  const auto outcome =
      WireAgreement(wire).AgreeAndReduce(tag, kSumOfFour, values, Reduction(ReduceOp::kSum));
  if (!outcome) reduced.error = outcome.error().message();
  reduced.is_done = outcome && *outcome == CallOutcome::kDone;
  return reduced;
}

TEST_CASE("A head of another size than that of the values is refused or declines",
          "[collectives][wire]") {
  ForgedCallHead head{kTag.digest, kSumOfFour, 0, kCount * sizeof(float)};
  // Of three ranks, 0 is no worker: it gets the result of rank 1. The others are workers.
  const int rank = GENERATE(0, 1, 2);
  CAPTURE(rank);
  CHECK(Reduce(rank, 3, head).is_done);
  for (const uint32_t bytes : {0U, 4U, 15U, 17U, 1U << 20}) {
    CAPTURE(bytes);
    head.payload_bytes = bytes;
    const ReducedValues reduced = Reduce(rank, 3, head);
    CHECK_FALSE(reduced.is_done);
    CHECK(reduced.values == ReducedValues().values);
    CHECK((rank == 0) == (reduced.error.find("from rank 1: ") != std::string::npos));
  }
  head.payload_bytes = (1U << 20) + 1;
  CHECK(Reduce(rank, 3, head).error.find("expected at most 1048576") != std::string::npos);
}

TEST_CASE("A rank that declines gets no result", "[collectives][wire]") {
  const ForgedCallHead head{kTag.digest, kSumOfFour, 0, 0};
  for (int rank = 0; rank < 3; ++rank) {
    CAPTURE(rank);
    const ReducedValues reduced =
        Reduce(rank, 3, head, {.digest = kTag.digest, .is_declined = true});
    CHECK_FALSE(reduced.is_done);
    CHECK((rank == 0) == (reduced.error.find("from rank 1: ") != std::string::npos));
  }
}

}  // namespace
}  // namespace lmdbio::sync
