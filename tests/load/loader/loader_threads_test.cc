// Goal: the threads of a rank that share a loader get each batch once, in turn. A batch that a
// thread holds stays as it is while others take batches, and keeps nothing but memory from them.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/file/writer/record_provenance.h"
#include "lmdbio/load/loader/batch_cursor.h"
#include "lmdbio/load/loader/batch_returns.h"
#include "lmdbio/load/loader/loader.h"
#include "tests/load/loader/stream_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/good.h"
#include "tests/support/shared_bytes.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

using load::BatchStep;
using load::HeldBatch;
using load::Loader;
using load::LoaderOptions;
using load::Strategy;
using std::chrono::milliseconds;

// 400 values of 50,000 bytes: 20 MB, many times the least memory of a window.
class LargeDatabase {
 public:
  LargeDatabase() : db_(dir_.path()) {
    for (int i = 0; i < 400; ++i) {
      db_.Put(fmt::format("{:06}", i), fmt::format("{:06}", i) + std::string(49'994, 'v'));
    }
    db_.Commit();
  }
  std::string path() const { return db_.data_file().string(); }
  void RecordProvenance() const {
    file::RecordProvenanceOptions provenance;
    provenance.path = dir_.path().string();
    REQUIRE(file::RecordProvenance(provenance).has_value());
  }

 private:
  TempDir dir_;
  TinyDb db_;
};

LoaderOptions SmallWindow() {
  LoaderOptions options;
  options.global_batch_size = 2;
  options.memory_budget_bytes = 1 << 20;
  options.layout_cache = "off";
  options.allow_map = false;
  options.keep_bytes = -1;
  return options;
}

void CheckHolds(const load::Batch& batch) {
  for (size_t i = 0; i < batch.record_count(); ++i) {
    const Bytes value = batch.value(i);
    const std::string key(reinterpret_cast<const char*>(batch.key(i).data()), batch.key(i).size());
    REQUIRE(key == fmt::format("{:06}", batch.position(i) % 400));
    REQUIRE(value.size() == 50'000);
    REQUIRE(std::memcmp(value.data(), key.data(), 6) == 0);
    REQUIRE(std::to_integer<char>(value[49'999]) == 'v');
  }
}

// For several threads at a time, in which Catch checks nothing.
void Take(Loader& loader, HeldBatch& held) {
  const auto step = loader.NextWithin(Loader::kNoLimit, held);
  if (!step || *step != BatchStep::kBatch) std::terminate();
}

TEST_CASE("Threads that share a loader get liblmdb's sequence with every strategy", "[loader]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FillMixed(db);
  db.Commit();
  file::RecordProvenanceOptions provenance;
  provenance.path = dir.path().string();
  REQUIRE(file::RecordProvenance(provenance).has_value());
  for (const auto& row : load::kStrategies) {
    for (const int ranks : {1, 3}) {
      for (const uint64_t group_batches : {0, 5}) {
        INFO(row.name << ", " << ranks << " ranks, groups of " << group_batches);
        LoaderOptions options;
        options.strategy = row.strategy;
        options.global_batch_size = 24;
        options.max_batches = 40;
        options.group_batches = group_batches;
        if (group_batches > 0) options.order = load::Order::kChunked;
        options.memory_budget_bytes = 1 << 20;
        const Delivered got = Deliver({ranks, 64}, db.data_file(), options, 4);
        for (const auto& error : got.errors) {
          INFO((error ? error->message() : ""));
          REQUIRE_FALSE(error.has_value());
        }
        CHECK(got.twice_count == 0);
        CHECK(got.foreign_count == 0);
        CHECK((got.records == Expected(db.data_file(), options)));
      }
    }
  }
}

TEST_CASE("A batch that is held stays as it is, until its memory is the last", "[loader]") {
  const LargeDatabase database;
  LoaderOptions options = SmallWindow();
  int ranks = 1;
  SECTION("in the window") {}
  SECTION("each rank reads for itself") {
    database.RecordProvenance();
    options.allow_map = true;
    ranks = 2;
  }
  std::mutex mutex;  // of Catch's checks
  ranks::RunAsThreads({ranks, 64}, [&](ranks::Group& group) {
    const auto loader = Good(Loader::Open(group, database.path(), options));
    std::vector<HeldBatch> held;
    const auto take = [&](milliseconds limit) {
      HeldBatch batch;
      const BatchStep step = Good(loader->NextWithin(limit, batch));
      if (step == BatchStep::kBatch) held.push_back(std::move(batch));
      return step;
    };
    // All memory of the window, or all of its slots.
    while (held.size() < 300 && take(milliseconds(300)) == BatchStep::kBatch) {
    }
    const std::lock_guard lock(mutex);
    REQUIRE(held.size() > 1);
    REQUIRE(held.size() < 300);
    for (size_t i = 0; i < held.size(); ++i) {
      CHECK(held[i]->number() == i);
      CheckHolds(*held[i]);
    }
    // A batch behind the first one gives no memory free: slots are released in order.
    const uint64_t next = held.size();
    held.back().Return();
    CHECK_FALSE(held.back().is_held());
    CHECK(held.back()->record_count() == 0);
    CHECK(take(milliseconds(0)) == BatchStep::kNothing);
    for (HeldBatch& batch : held) batch.Return();
    held.clear();
    REQUIRE(take(Loader::kNoLimit) == BatchStep::kBatch);
    CHECK(held[0]->number() == next);
    CheckHolds(*held[0]);
  });
}

TEST_CASE("State and counters do not wait for a thread that waits for a batch", "[loader]") {
  const LargeDatabase database;
  const auto group = ranks::SoloGroup();
  const auto loader = Good(Loader::Open(*group, database.path(), SmallWindow()));
  std::vector<HeldBatch> held(1);
  while (Good(loader->NextWithin(milliseconds(300), held.back())) == BatchStep::kBatch) {
    held.emplace_back();
  }
  const uint64_t taken = held.size() - 1;
  std::atomic<bool> has_batch{false};
  std::jthread taker([&] {
    HeldBatch batch;
    has_batch = Good(loader->NextWithin(Loader::kNoLimit, batch)) == BatchStep::kBatch;
  });
  std::this_thread::sleep_for(milliseconds(50));  // so that it sleeps, mostly
  CHECK(loader->counters().batch_count == taken);
  CHECK(loader->Save().find(fmt::format("\"batch\":{}", taken)) != std::string::npos);
  CHECK(loader->TrySave() == loader->Save());
  CHECK_FALSE(loader->Describe().empty());
  HeldBatch other;
  CHECK(Good(loader->NextWithin(milliseconds(1), other)) == BatchStep::kNothing);
  CHECK_FALSE(has_batch);
  held.clear();
  taker.join();
  CHECK(has_batch);
}

TEST_CASE("The stream goes nowhere else while a thread of any rank holds a batch", "[loader]") {
  const LargeDatabase database;
  std::mutex mutex;  // of Catch's checks
  ranks::RunAsThreads({2, 64}, [&](ranks::Group& group) {
    const auto loader = Good(Loader::Open(group, database.path(), SmallWindow()));
    const std::string begin = loader->Save();
    HeldBatch held;
    Take(*loader, held);
    if (group.rank() == 0) held.Return();
    const Status restored = loader->Restore(begin);
    const Status moved = loader->SetEpoch(3);
    {
      const std::lock_guard lock(mutex);
      REQUIRE_FALSE(restored);
      REQUIRE_FALSE(moved);
      const bool is_other = group.rank() == 0;
      CHECK(restored.error().code() ==
            (is_other ? ErrorCode::kPeerFailed : ErrorCode::kInvalidArgument));
      CHECK(restored.error().message() ==
            std::string(is_other ? "rank 1: " : "") +
                "the stream cannot go on elsewhere while threads hold batches of it (1 held); "
                "return them first");
      CHECK(moved.error().message() == restored.error().message());
      if (held.is_held()) CheckHolds(*held);
    }
    held.Return();
    Take(*loader, held);
    const uint64_t second = held->number();
    held.Return();
    const Status again = loader->Restore(begin);
    Take(*loader, held);
    const std::lock_guard lock(mutex);
    CHECK(second == 1);
    CHECK(again.has_value());
    CHECK(held->number() == 0);
  });
}

TEST_CASE("A batch may be returned after its loader has ended", "[loader]") {
  const LargeDatabase database;
  const auto group = ranks::SoloGroup();
  HeldBatch held;
  {
    const auto loader = Good(Loader::Open(*group, database.path(), SmallWindow()));
    REQUIRE(Good(loader->NextWithin(Loader::kNoLimit, held)) == BatchStep::kBatch);
  }
  CHECK(held.is_held());
  HeldBatch moved = std::move(held);
  CHECK_FALSE(held.is_held());  // NOLINT: what a move leaves is defined
  moved.Return();
  CHECK_FALSE(moved.is_held());
}

TEST_CASE("Threads beside those that move the stream get batches of before or behind", "[loader]") {
  const LargeDatabase database;
  const auto group = ranks::SoloGroup();
  const auto loader = Good(Loader::Open(*group, database.path(), SmallWindow()));
  std::atomic<bool> has_ended{false};
  std::vector<std::jthread> takers;
  std::mutex mutex;
  std::vector<std::string> wrong;
  for (int i = 0; i < 4; ++i) {
    takers.emplace_back([&] {
      while (!has_ended) {
        HeldBatch held;
        const auto step = loader->NextWithin(milliseconds(100), held);
        const bool is_well = step && (*step != BatchStep::kBatch || held->record_count() == 2);
        static_cast<void>(loader->counters());
        static_cast<void>(loader->Save());
        const std::lock_guard lock(mutex);
        if (!is_well) wrong.push_back(step ? "records" : step.error().message());
      }
    });
  }
  int moved_count = 0;
  for (uint64_t epoch = 1; moved_count < 5 && epoch < 10'000; ++epoch) {
    const Status moved = loader->SetEpoch(epoch);
    if (moved) ++moved_count;
  }
  has_ended = true;
  takers.clear();
  CHECK(wrong.empty());
  CHECK(moved_count == 5);
}

// A window of one rank, whose reader is this test.
class WindowByHand {
 public:
  WindowByHand()
      : memory_(load::Window::BytesNeeded(kShape)), window_(memory_.bytes(), kShape, 0, 0) {}
  load::Window& window() { return window_; }
  // Announces a slot of one empty batch.
  void Announce(uint64_t slot) {
    load::SlotHead head = {};
    head.first_batch = slot;
    head.batch_count = 1;
    window_.Announce(slot, head);
  }

 private:
  static constexpr load::WindowShape kShape{1, 1, 4096};
  SharedBytes memory_;
  load::Window window_;
};

load::BatchSpan SpanOf(uint64_t number) {
  load::BatchSpan span = {};
  span.number = number;
  return span;
}

TEST_CASE("A wait ends if nobody returns what occupies the memory, and can begin again",
          "[loader]") {
  WindowByHand by_hand;
  load::WindowBatchesParts parts;
  parts.window = parts.host = &by_hand.window();
  parts.held_up_limit = milliseconds(400);
  const auto batches = load::MakeWindowBatches(parts);
  load::Batch batch;
  by_hand.Announce(0);
  REQUIRE(Good(batches->Take(SpanOf(0), Loader::kNoLimit, batch)) == load::TakeStep::kBatch);
  // A slot that is late for another reason is awaited as long as the caller likes.
  CHECK(Good(batches->Take(SpanOf(1), milliseconds(1000), batch)) == load::TakeStep::kNothing);
  std::atomic<bool> has_space{false};
  std::jthread reader([&] { has_space = Good(by_hand.window().AwaitSpace(1)); });
  // The limit holds over several calls.
  int nothing_count = 0;
  load::TakeStep step = load::TakeStep::kNothing;
  while (step == load::TakeStep::kNothing) {
    step = Good(batches->Take(SpanOf(1), milliseconds(150), batch));
    ++nothing_count;
  }
  CHECK(step == load::TakeStep::kHeldUp);
  CHECK(nothing_count > 1);
  CHECK(Good(batches->Take(SpanOf(1), milliseconds(0), batch)) == load::TakeStep::kNothing);
  CHECK(Good(batches->Take(SpanOf(1), Loader::kNoLimit, batch)) == load::TakeStep::kHeldUp);
  CHECK_FALSE(has_space);
  batches->Return(0);
  reader.join();
  CHECK(has_space);
  by_hand.Announce(1);
  CHECK(Good(batches->Take(SpanOf(1), Loader::kNoLimit, batch)) == load::TakeStep::kBatch);
}

class AlwaysHeldUp final : public load::BatchSource {
 public:
  Result<load::TakeStep> Take(const load::BatchSpan&, milliseconds, load::Batch&) override {
    return is_held_up ? load::TakeStep::kHeldUp : load::TakeStep::kBatch;
  }
  void Return(uint64_t) override {}
  void AddTo(load::LoaderCounters&) const override {}

  bool is_held_up = false;
};

TEST_CASE("A wait that was held up is an error that does not stay", "[loader]") {
  load::BatchCursor cursor{LoaderOptions()};
  AlwaysHeldUp source;
  load::StreamState stream;
  stream.schedule.walk.record_count = 100;
  stream.schedule.batch_size = 10;
  cursor.Seek(stream);
  cursor.ReadFrom(source);
  HeldBatch first;
  HeldBatch second;
  REQUIRE(Good(cursor.Next(Loader::kNoLimit, first)) == BatchStep::kBatch);
  source.is_held_up = true;
  const auto refused = cursor.Next(Loader::kNoLimit, second);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == ErrorCode::kResourceExhausted);
  CHECK(refused.error().message() ==
        "batch 1 has no memory: it is occupied by batches that threads hold and do not return (1 "
        "held); a thread returns its batch when it takes the next one; raise memory_budget_bytes, "
        "or return batches earlier");
  source.is_held_up = false;
  REQUIRE(Good(cursor.Next(Loader::kNoLimit, second)) == BatchStep::kBatch);
  CHECK(second.is_held());
  CHECK(cursor.held_count() == 2);
  cursor.LeaveSource();
}

TEST_CASE("Groups of batches end in order, when all of them are back", "[loader]") {
  load::BatchesInUse<char> groups;
  std::string ended;
  const auto end = [&](char name) { ended += name; };
  groups.Open(3, 5, 'a');  // a stream may begin within a group
  groups.Open(5, 9, 'b');
  groups.Return(5, end);
  groups.Return(6, end);
  groups.Return(4, end);
  CHECK(ended.empty());
  groups.Return(3, end);
  CHECK(ended == "a");
  groups.Abandon(8, end);  // 8 will never be taken
  CHECK(ended == "a");
  groups.Return(7, end);
  CHECK(ended == "ab");
  CHECK(groups.is_empty());
  groups.Abandon(8, end);
  groups.Open(9, 10, 'c');
  groups.Abandon(10, end);
  groups.Return(9, end);
  CHECK(ended == "abc");
}

}  // namespace
}  // namespace lmdbio::test
