// Goal: ranks whose options differ all fail with one line. It names option, rank and both values.
#include <functional>
#include <string>
#include <vector>

#include "lmdbio/load/loader/open_decision.h"
#include "lmdbio/ranks/group/thread_group.h"
#include "tests/support/catch.h"

namespace lmdbio::load {
namespace {

// The message of each of three ranks, of which rank 2 has other options.
std::vector<std::string> MessagesWith(const std::function<void(LoaderOptions&)>& change) {
  std::vector<std::string> messages(3);
  ranks::RunAsThreads({3, 64}, [&](ranks::Group& group) {
    LoaderOptions options;
    if (group.rank() == 2) change(options);
    const Status same = CheckSameOptions(group, options);
    messages[static_cast<size_t>(group.rank())] = same ? "" : same.error().message();
  });
  return messages;
}

TEST_CASE("Ranks with different options get one line with option, rank and values", "[loader]") {
  const auto expect = [](const std::function<void(LoaderOptions&)>& change,
                         const std::string& message) {
    CAPTURE(message);
    for (const std::string& one : MessagesWith(change)) CHECK(one == message);
  };
  const std::string remedy = "; give all ranks of the job the same value";
  expect([](auto&) {}, "");
  expect([](auto& o) { o.global_batch_size = 65; },
         "global_batch_size is '65' on rank 2 and '64' on rank 0" + remedy);
  expect([](auto& o) { o.tail = Tail::kDrop; },
         "tail is 'drop' on rank 2 and 'short' on rank 0" + remedy);
  expect([](auto& o) { o.cache = file::CachePolicy::kDirect; },
         "cache is 'direct' on rank 2 and 'null' on rank 0" + remedy);
  expect([](auto& o) { o.allow_map = false; },
         "allow_map is 'false' on rank 2 and 'true' on rank 0" + remedy);
  expect([](auto& o) { o.stagger = 2; }, "stagger is '2' on rank 2 and '0' on rank 0" + remedy);
  expect([](auto& o) { o.state = std::string(500, 'x'); },
         "state of rank 2 differs from that of rank 0" + remedy);
}

TEST_CASE("Ranks may differ in shard, queue depth and placement", "[loader]") {
  for (const std::string& message : MessagesWith([](auto& o) {
         o.shard_id = 1;
         o.queue_depth = 5;
         o.placement = "scp";
       })) {
    CHECK(message.empty());
  }
}

}  // namespace
}  // namespace lmdbio::load
