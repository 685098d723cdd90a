// Goal: reads leave the queue in order, and a failed read not before its due time. The pauses are 0
// or an hour, so that no result depends on the speed of the test.
#include "lmdbio/file/io/read_queue.h"
#include "tests/support/catch.h"

#include <chrono>
#include <vector>

namespace lmdbio::file {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

PendingRead Read(size_t owner) { return {.progress = ReadProgress(), .owner = owner}; }

std::vector<size_t> TakeAll(ReadQueue& queue) {
  std::vector<size_t> owners;
  while (const auto next = queue.Next()) owners.push_back(next->owner);
  return owners;
}

TEST_CASE("ReadQueue keeps the order of its reads", "[io][read-queue]") {
  ReadQueue queue;
  CHECK_FALSE(queue.Next());
  for (size_t i = 0; i < 3; ++i) queue.Add(Read(i));
  queue.AddAgain(Read(7), milliseconds(0));
  CHECK(TakeAll(queue) == std::vector<size_t>{7, 0, 1, 2});
}

TEST_CASE("ReadQueue delays only the failed read", "[io][read-queue]") {
  ReadQueue queue;
  CHECK_FALSE(queue.next_due());
  const auto before = ReadQueue::Clock::now();
  queue.AddAgain(Read(8), hours(2));
  queue.AddAgain(Read(7), hours(1));
  for (size_t i = 0; i < 3; ++i) queue.Add(Read(i));
  CHECK(TakeAll(queue) == std::vector<size_t>{0, 1, 2});
  REQUIRE(queue.next_due());
  CHECK(*queue.next_due() >= before + hours(1));
  CHECK(*queue.next_due() < before + hours(2));
  queue.Clear();
  CHECK_FALSE(queue.next_due());
}

TEST_CASE("ReadQueue returns a due retry before other reads", "[io][read-queue]") {
  ReadQueue queue;
  queue.Add(Read(0));
  queue.AddAgain(Read(7), milliseconds(1));
  while (ReadQueue::Clock::now() < *queue.next_due()) {
  }
  CHECK(TakeAll(queue) == std::vector<size_t>{7, 0});
  CHECK_FALSE(queue.next_due());
}

}  // namespace
}  // namespace lmdbio::file
