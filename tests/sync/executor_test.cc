// Goal: memory in which a call may go on after it has failed is not freed.
#include "lmdbio/sync/executor.h"

#include <memory>
#include <string>
#include <vector>

#include "lmdbio/base/kept_memory.h"
#include "tests/support/catch.h"

namespace lmdbio::sync {
namespace {

using collective::CallOutcome;
using collective::CallTag;
using collective::Values;
using control::Operation;

// Every call fails, and goes on if it is to.
class Failing final : public collective::Collectives {
 public:
  using Outcome = Result<CallOutcome>;
  bool goes_on = false;

  int rank() const override { return 0; }
  int size() const override { return 2; }
  Outcome AllReduce(const CallTag&, const Values&, const reduce::Reduction&) override {
    return Gone();
  }
  Outcome ReduceScatter(const CallTag&, const Values&, std::byte*, std::span<const uint64_t>,
                        const reduce::Reduction&) override {
    return Gone();
  }
  Outcome AllGather(const CallTag&, Bytes, MutableBytes, std::span<const uint64_t>) override {
    return Gone();
  }
  Outcome Broadcast(const CallTag&, MutableBytes, int) override { return Gone(); }
  Outcome AllToAll(const CallTag&, Bytes, std::span<const uint64_t>, MutableBytes,
                   std::span<const uint64_t>) override {
    return Gone();
  }
  Outcome Barrier(const CallTag&) override { return Gone(); }
  bool writes_after_failure() const override { return goes_on; }
  void Stop(const Error&) override {}

 private:
  static Outcome Gone() { return Fail(ErrorCode::kPeerFailed, "gone"); }
};

control::Request RequestOf(Operation operation, std::string name) {
  control::Request request;
  request.name = std::move(name);
  request.operation = operation;
  request.shape = {4};
  request.root = 1;
  return request;
}

// A call that fails, of tensors of which this rank has the first `task_count`.
void Perform(Executor& executor, Operation operation, size_t tensor_count, size_t task_count) {
  control::Response response;
  std::vector<float> values(16, 1.0F);
  std::vector<Task> tasks(tensor_count);
  std::vector<Task*> given;
  for (size_t i = 0; i < tensor_count; ++i) {
    response.tensors.push_back(RequestOf(operation, "t" + std::to_string(i)));
    tasks[i].submission.request = response.tensors.back();
    tasks[i].submission.input = reinterpret_cast<const std::byte*>(&values[4 * i]);
    tasks[i].submission.output = reinterpret_cast<std::byte*>(&values[4 * i]);
    given.push_back(i < task_count ? &tasks[i] : nullptr);
  }
  response.rows = operation == Operation::kAllToAll ? std::vector<int64_t>{2, 2, 2, 2}
                                                    : std::vector<int64_t>{4, 4};
  const auto outcome = executor.Perform(response, given, {.digest = 1});
  REQUIRE_FALSE(outcome);
}

TEST_CASE("Executor keeps memory in which a call that has failed goes on", "[sync][executor]") {
  Failing collectives;
  collectives.goes_on = GENERATE(true, false);
  const size_t one = collectives.goes_on ? 1 : 0;
  Witness witness(nullptr);
  const size_t before = KeptCount();
  {
    Executor executor(collectives, witness, 1000, 1000);
    Perform(executor, Operation::kAllGather, 1, 1);
    CHECK(KeptCount() == before + one);
    Perform(executor, Operation::kAllToAll, 1, 1);
    CHECK(KeptCount() == before + 2 * one);
    Perform(executor, Operation::kBroadcast, 1, 0);
    CHECK(KeptCount() == before + 3 * one);
    Perform(executor, Operation::kAllReduce, 1, 0);
    CHECK(KeptCount() == before + 4 * one);
    Perform(executor, Operation::kReduceScatter, 1, 1);
    CHECK(KeptCount() == before + 6 * one);  // what it reads and what it writes
    Perform(executor, Operation::kAllReduce, 3, 2);
    CHECK(KeptCount() == before + 6 * one);
  }
  CHECK(KeptCount() == before + 8 * one);  // the fusion buffer and the gradients
}

}  // namespace
}  // namespace lmdbio::sync
