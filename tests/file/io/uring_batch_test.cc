// Goal: a transient failure of one read does not delay the other reads of a batch. A final failure
// ends the batch. Method: a file with one read that fails until all others are done.
#include "lmdbio/file/io/uring_batch.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "tests/file/io/holed_memory.h"
#include "tests/support/catch.h"
#include "tests/support/check_in_child.h"
#include "tests/support/file_bytes.h"

namespace lmdbio::file {
namespace {

using test::CheckInChild;
using test::Verdict;

// Requests for the hole and for all readable blocks after it.
struct Requests {
  explicit Requests(const HoledMemory& memory)
      : bytes((HoledMemory::kBlockCount + 1) * HoledMemory::kBlockBytes, std::byte{1}) {
    list.push_back({HoledMemory::kHole, At(0)});
    for (uint64_t i = 0; i < HoledMemory::kBlockCount; ++i) {
      list.push_back({memory.Offset(i), At(i + 1)});
    }
  }
  MutableBytes At(uint64_t i) {
    return MutableBytes(bytes).subspan(i * HoledMemory::kBlockBytes, HoledMemory::kBlockBytes);
  }

  std::vector<std::byte> bytes;
  std::vector<ReadRequest> list;
};

TEST_CASE("ReadBatch continues while a failed read waits for its retry", "[io][uring][fault]") {
  const uint32_t depth = GENERATE(1, 4);
  CAPTURE(depth);
  CheckInChild([&] {
    HoledMemory memory;
    auto ring = UringRing::Create(depth);
    if (!ring || !memory.Works()) return Verdict::kCannotTell;
    Requests requests(memory);
    std::vector<uint64_t> order;  // offsets in order of completion
    const auto on_done = [&](const ReadRequest& request) {
      order.push_back(request.offset);
      if (order.size() == HoledMemory::kBlockCount) memory.Fill();
    };
    // Retries for 10 s, the limit for the other reads.
    const Status status =
        ReadBatch(*std::move(ring), requests.list,
                  {memory.fd(), on_done, /*retry_pause=*/std::chrono::milliseconds(500)});
    CHILD_CHECK(status);
    CHILD_CHECK(order.size() == requests.list.size());
    CHILD_CHECK(order.back() == HoledMemory::kHole);
    CHILD_CHECK(std::ranges::all_of(requests.At(0), [](std::byte b) { return b == std::byte(); }));
    for (uint64_t i = 0; i < HoledMemory::kBlockCount; ++i) {
      CHILD_CHECK(test::AsText(requests.At(i + 1)) == memory.Content(i));
    }
    return Verdict::kRight;
  });
}

TEST_CASE("ReadBatch ends after the final failure of a read", "[io][uring][fault]") {
  CheckInChild([&] {
    const HoledMemory memory;
    auto ring = UringRing::Create(4);
    if (!ring || !memory.Works()) return Verdict::kCannotTell;
    Requests requests(memory);
    const Status status = ReadBatch(*std::move(ring), requests.list,
                                    {.fd = memory.fd(), .on_done = [](const ReadRequest&) {}});
    CHILD_CHECK(!status);
    CHILD_CHECK(status.error().code() == ErrorCode::kIo);
    CHILD_CHECK(status.error().message() ==
                "read of 1000 bytes at offset 1048576: Input/output error");
    return Verdict::kRight;
  });
}

}  // namespace
}  // namespace lmdbio::file
