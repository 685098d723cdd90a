// Goal: a feed ahead of its program loses no batch and reports each failure once; its program
// resumes where it stopped; in steady state no call of the driver waits.
#include "lmdbio/feed/device_feed.h"

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/kept_memory.h"
#include "tests/feed/fed_stream.h"
#include "tests/load/loader/stream_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::feed {
namespace {

using load::BatchStep;
using load::Loader;
using load::LoaderOptions;
using std::chrono::milliseconds;
using test::EmulatedGpu;
using test::EndlessWork;
using test::FedReader;
using test::Good;
using test::KeyValue;
using test::Must;
using test::ProgramOnDevice;
using test::TempDir;
using test::TinyDb;

// 60 records of different sizes, in batches of 4.
class FeedDatabase {
 public:
  FeedDatabase() : db_(dir_.path()) {
    for (int i = 0; i < 60; ++i) {
      db_.Put(fmt::format("{:04}", i),
              fmt::format("value {} ", i) + std::string(static_cast<size_t>(i * 97 % 500), 'v'));
    }
    db_.Commit();
  }
  std::string path() const { return db_.data_file().string(); }
  std::map<uint64_t, KeyValue> Expected(const LoaderOptions& options) const {
    return test::Expected(db_.data_file(), options);
  }

 private:
  TempDir dir_;
  TinyDb db_;
};

LoaderOptions FourEach(uint64_t batches) {
  LoaderOptions options = test::WindowOptions();
  options.global_batch_size = 4;
  options.max_batches = batches;
  return options;
}

// For waits that must end.
constexpr auto kLimit = milliseconds(20'000);

// A rank alone, with its loader, its feed and its program.
struct FedRank {
  FedRank(const std::string& path, const LoaderOptions& loader_options,
          const FeedOptions& options = {}, uint64_t seed = 1)
      : gpu(seed),
        loader(Good(Loader::Open(*group, path, loader_options))),
        feed(Good(DeviceFeed::Open(*loader, 0, options, test::EmulatedKernelImage()))) {}

  device::StreamHandle stream() { return program.stream().native(); }
  // The next batch of the program, whose rows it reads later.
  void Take() {
    REQUIRE(Good(feed->NextWithin(kLimit, stream(), batch)) == BatchStep::kBatch);
    reader.Add(batch, stream());
  }
  void TakeToEnd() {
    while (Good(feed->Next(stream(), batch))) reader.Add(batch, stream());
  }
  std::map<uint64_t, KeyValue> Records() {
    Must(program.stream().Synchronize());
    return test::OneField(reader);
  }

  EmulatedGpu gpu;
  std::unique_ptr<ranks::Group> group = ranks::SoloGroup();
  std::unique_ptr<Loader> loader;
  std::shared_ptr<device::Device> opened = gpu.Open();
  ProgramOnDevice program{opened};
  FedReader reader{opened};
  std::unique_ptr<DeviceFeed> feed;
  FedBatch batch;
};

TEST_CASE("A batch has the facts of the loader's batch", "[feed]") {
  const FeedDatabase database;
  FedRank rank(database.path(), FourEach(16));
  const auto group = ranks::SoloGroup();
  const auto loader = Good(Loader::Open(*group, database.path(), FourEach(16)));
  while (Good(loader->Next())) {
    const load::Batch& expected = loader->batch();
    REQUIRE(Good(rank.feed->Next(rank.stream(), rank.batch)));
    const BatchFacts& facts = rank.batch.facts();
    CHECK(facts.number() == expected.number());
    CHECK(facts.epoch() == expected.epoch());
    CHECK(facts.first_position() == expected.first_position());
    CHECK(facts.global_record_count() == expected.global_record_count());
    CHECK(facts.ends_epoch() == expected.ends_epoch());
    CHECK(facts.skipped_count() == expected.skipped_count());
    CHECK(facts.sample_count() == expected.sample_count());
    REQUIRE(facts.record_count() == expected.record_count());
    uint64_t largest = 0;
    for (size_t i = 0; i < facts.record_count(); ++i) {
      CHECK(test::TextOf(facts.key(i)) == test::TextOf(expected.key(i)));
      CHECK(facts.position(i) == expected.position(i));
      CHECK(facts.value_bytes(i) == expected.value(i).size());
      largest = std::max(largest, facts.value_bytes(i));
    }
    CHECK(rank.batch.rows().row_bytes == largest);
    CHECK(rank.batch.rows().offsets.size_bytes == 0);
  }
  CHECK_FALSE(Good(rank.feed->Next(rank.stream(), rank.batch)));
  CHECK_FALSE(rank.batch.is_held());
  CHECK_FALSE(Good(rank.feed->Next(rank.stream(), rank.batch)));  // and again
}

TEST_CASE("In steady state no call waits, and a batch is one launch", "[feed]") {
  const FeedDatabase database;
  FedRank rank(database.path(), FourEach(0), {.rows = {RowShape::kRows, 600}, .depth = 2});
  // The loader may be late at first. Then the feed has fewer buffers.
  for (int i = 0; i < 20 || rank.feed->counters().grown_count < 3; ++i) {
    REQUIRE(Good(rank.feed->Next(rank.stream(), rank.batch)));
  }
  const std::vector<const char*> waiting = {
      "cuStreamSynchronize", "cuCtxSynchronize",           "cuEventSynchronize",  "cuMemAlloc",
      "cuMemFree",           "cuMemHostRegister",          "cuMemHostUnregister", "cuEventCreate",
      "cuEventDestroy",      "cuStreamCreateWithPriority", "cuMemcpyHtoDAsync"};
  const auto count = [&](const char* name) { return rank.gpu->CallCount(name); };
  std::map<std::string, uint64_t> before;
  for (const char* const name : waiting) before[name] = count(name);
  const uint64_t launches = count("cuLaunchKernel");
  const uint64_t records = count("cuEventRecord");
  const uint64_t waits = count("cuStreamWaitEvent");
  for (int i = 0; i < 100; ++i) {
    REQUIRE(Good(rank.feed->Next(rank.stream(), rank.batch)));
  }
  for (const char* const name : waiting) {
    INFO(name);
    CHECK(count(name) == before[name]);
  }
  const auto about_100 = [](uint64_t calls, uint64_t each) {
    return calls >= 98 * each && calls <= 102 * each;  // the depth varies
  };
  CHECK(about_100(count("cuLaunchKernel") - launches, 1));
  CHECK(about_100(count("cuEventRecord") - records, 3));
  CHECK(count("cuStreamWaitEvent") - waits == 100);
  CHECK(rank.feed->counters().gathered_count >= 120);
  CHECK(rank.feed->counters().grown_count == 3);
  CHECK(rank.feed->TakeNotes().empty());
}

TEST_CASE("The feed is ahead of its program by its depth", "[feed]") {
  const FeedDatabase database;
  for (const uint32_t depth : {1U, 2U}) {
    FedRank rank(database.path(), FourEach(0), {.rows = {}, .depth = depth});
    uint64_t most = 0;
    // At first the loader may not have a batch when the feed asks for it.
    for (uint64_t taken = 1; taken < 20 || (most < depth && taken < 2000); ++taken) {
      REQUIRE(Good(rank.feed->Next(rank.stream(), rank.batch)));
      Must(rank.program.stream().Synchronize());
      most = std::max(most, rank.loader->next_batch() - taken);
    }
    CHECK(most == depth);
  }
}

TEST_CASE("A stream resumes behind the batches that the program has got", "[feed]") {
  const FeedDatabase database;
  const LoaderOptions options = FourEach(20);
  std::string state;
  std::map<uint64_t, KeyValue> records;
  {
    FedRank first(database.path(), options, {.rows = {}, .depth = 3});
    CHECK(first.feed->Save() == first.loader->SaveBefore(0));
    // The loader may not have a batch when the feed asks for it.
    for (uint64_t taken = 0; taken < 7 || first.loader->next_batch() == taken; ++taken) {
      first.Take();
    }
    state = first.feed->Save();
    records = first.Records();
    CHECK(records.size() < 80);
  }
  LoaderOptions resumed = options;
  resumed.state = state;
  FedRank second(database.path(), resumed);
  second.TakeToEnd();
  auto rest = second.Records();
  records.merge(rest);
  CHECK(rest.empty());
  CHECK((records == database.Expected(options)));
}

TEST_CASE("A feed goes on at another state, and its window with it", "[feed]") {
  const FeedDatabase database;
  const LoaderOptions options = FourEach(20);
  FedRank rank(database.path(), options, {.rows = {}, .depth = 3});
  const std::string begin = rank.feed->Save();
  for (int i = 0; i < 5; ++i) rank.Take();
  const FedBatch kept = std::move(rank.batch);
  SECTION("a state that does not fit leaves the stream as it is") {
    const Status refused = rank.feed->Restore("no state");
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code() == ErrorCode::kInvalidArgument);
    rank.TakeToEnd();
    CHECK((rank.Records() == database.Expected(options)));
  }
  SECTION("the begin") {
    CHECK(rank.Records().size() == 20);
    REQUIRE(rank.feed->Restore(begin));
    FedReader again(rank.opened);
    while (Good(rank.feed->Next(rank.stream(), rank.batch))) again.Add(rank.batch, rank.stream());
    Must(rank.program.stream().Synchronize());
    CHECK((test::OneField(again) == database.Expected(options)));
    CHECK(rank.feed->counters().staged_count == 0);
  }
  CHECK(kept.facts().number() == 4);
  CHECK(kept.rows().rows.size_bytes > 0);
}

TEST_CASE("An epoch that the program has reached keeps the batches ahead", "[feed]") {
  const FeedDatabase database;  // 15 batches an epoch
  FedRank rank(database.path(), FourEach(40), {.rows = {}, .depth = 2});
  for (int i = 0; i < 15; ++i) rank.Take();
  CHECK(rank.batch.facts().ends_epoch());
  const uint64_t pins = rank.gpu->CallCount("cuMemHostRegister");
  const uint64_t taken = rank.loader->next_batch();
  REQUIRE(rank.feed->SetEpoch(1));
  CHECK(rank.loader->next_batch() == taken);
  CHECK(rank.gpu->CallCount("cuMemHostRegister") == pins);
  rank.Take();
  CHECK(rank.batch.facts().first_position() == 60);
  REQUIRE(rank.feed->SetEpoch(3));
  rank.Take();
  CHECK(rank.batch.facts().number() == 16);
  CHECK(rank.batch.facts().first_position() == 180);
  CHECK(rank.feed->counters().staged_count == 0);
}

TEST_CASE("A program may keep batches, and may end after its feed and loader", "[feed]") {
  const FeedDatabase database;
  FedRank rank(database.path(), FourEach(20));
  std::vector<FedBatch> kept;
  for (int i = 0; i < 9; ++i) {
    rank.Take();
    kept.push_back(std::move(rank.batch));
  }
  rank.feed.reset();
  rank.loader.reset();
  for (const FedBatch& batch : kept) rank.reader.Add(batch, rank.stream());
  Must(rank.program.stream().Synchronize());
  FedReader again(rank.opened);
  for (const FedBatch& batch : kept) again.Add(batch, rank.stream());
  Must(rank.program.stream().Synchronize());
  CHECK((test::OneField(again) == database.Expected(FourEach(9))));
}

TEST_CASE("A batch may be used on a second stream", "[feed]") {
  const FeedDatabase database;
  for (uint64_t seed = 1; seed <= test::SeedCount(40); ++seed) {
    INFO("seed " << seed);
    FedRank rank(database.path(), FourEach(30), {.rows = {}, .depth = 1}, seed);
    device::DeviceStream other = Good(rank.opened->MakeStream());
    while (Good(rank.feed->Next(rank.stream(), rank.batch))) {
      REQUIRE(rank.batch.UseOn(other.native()));
      rank.reader.Add(rank.batch, other.native());
    }
    Must(other.Synchronize());
    REQUIRE((test::OneField(rank.reader) == database.Expected(FourEach(30))));
  }
  FedBatch none;
  CHECK(none.UseOn(nullptr).error().code() == ErrorCode::kInvalidArgument);
}

TEST_CASE("A feed waits for the program's work, and not beyond its limit", "[feed]") {
  const FeedDatabase database;
  FedRank rank(database.path(), FourEach(40), {.rows = {}, .depth = 1});
  auto endless = std::make_unique<EndlessWork>(*rank.opened);
  BatchStep step = BatchStep::kBatch;
  int taken = 0;
  endless->BeginOn(rank.program.stream());
  // Before that, the loader may not have the batch within the limit.
  while (rank.feed->counters().buffer_wait_s == 0 && taken < 20) {
    step = Good(rank.feed->NextWithin(milliseconds(20), rank.stream(), rank.batch));
    if (step == BatchStep::kBatch) rank.reader.Add(rank.batch, rank.stream()), ++taken;
  }
  CHECK(step == BatchStep::kNothing);
  CHECK(taken == 2);
  endless->End();
  rank.TakeToEnd();
  CHECK((rank.Records() == database.Expected(FourEach(40))));
}

TEST_CASE("Rows that a stream never leaves are kept, and nothing waits for ever", "[feed]") {
  const FeedDatabase database;
  const size_t kept_before = KeptCount();
  {
    FedRank rank(database.path(), FourEach(20));
    auto endless = std::make_unique<EndlessWork>(*rank.opened);
    endless->BeginOn(rank.program.stream());
    rank.Take();
    rank.batch.Return();
    rank.feed.reset();
    CHECK(KeptCount() == kept_before + 1);
    endless->End();
    Must(rank.program.stream().Synchronize());
  }
  CHECK(KeptCount() == kept_before + 1);
}

TEST_CASE("Rows whose stream was destroyed are kept, with a note", "[feed]") {
  const FeedDatabase database;
  const size_t kept_before = KeptCount();
  FedRank rank(database.path(), FourEach(20));
  {
    const device::DeviceStream gone = Good(rank.opened->MakeStream());
    REQUIRE(Good(rank.feed->Next(gone.native(), rank.batch)));
  }
  rank.TakeToEnd();
  CHECK(KeptCount() == kept_before + 1);
  const std::vector<std::string> notes = rank.feed->TakeNotes();
  REQUIRE(notes.size() == 1);
  CHECK_THAT(notes[0], ContainsSubstring("the end of their use is unknown"));
  CHECK(rank.Records().size() == 76);
}

TEST_CASE("A stream that cannot be used loses no batch", "[feed]") {
  const FeedDatabase database;
  FedRank rank(database.path(), FourEach(20));
  rank.Take();
  std::string words;
  std::optional<device::DeviceStream> wrong;
  const auto peer = rank.gpu.Open(1);
  SECTION("captured") {
    wrong.emplace(Good(rank.opened->MakeStream()));
    rank.gpu->BeginCapture(wrong->native());
    words = "captured into a graph";
  }
  SECTION("of another GPU") {
    wrong.emplace(Good(peer->MakeStream()));
    words = "not one of GPU 0";
  }
  const auto refused = rank.feed->Next(wrong->native(), rank.batch);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == ErrorCode::kInvalidArgument);
  CHECK_THAT(refused.error().message(), ContainsSubstring(words));
  rank.TakeToEnd();
  CHECK((rank.Records() == database.Expected(FourEach(20))));
}

TEST_CASE("A GPU without memory fails a batch that the program needs, and keeps it", "[feed]") {
  const FeedDatabase database;
  FedRank rank(database.path(), FourEach(20), {.rows = {RowShape::kRows, 1 << 20}, .depth = 4});
  std::vector<FedBatch> kept;
  Result<BatchStep> step = BatchStep::kBatch;
  while (step && *step == BatchStep::kBatch && kept.size() < 19) {  // 4 MiB each; the GPU has 64
    step = rank.feed->NextWithin(kLimit, rank.stream(), rank.batch);
    if (step) kept.push_back(std::move(rank.batch));
  }
  REQUIRE_FALSE(step);
  CHECK(step.error().code() == ErrorCode::kResourceExhausted);
  CHECK_THAT(step.error().message(),
             ContainsSubstring(fmt::format("the program has {} batches", kept.size())));
  CHECK(kept.size() > 8);
  const uint64_t next = kept.size();
  kept.clear();
  REQUIRE(Good(rank.feed->Next(rank.stream(), rank.batch)));
  CHECK(rank.batch.facts().number() == next);
}

// Damages the value of a record in the file.
void Spoil(const std::string& path, const std::string& value) {
  std::ifstream in(path, std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(in)), {});
  const size_t at = content.find(value.substr(0, 64));
  REQUIRE(at != std::string::npos);
  std::fstream out(path, std::ios::in | std::ios::out | std::ios::binary);
  out.seekp(static_cast<std::streamoff>(at / 4096 * 4096));
  out.write("\x5A\x5A\x5A\x5A\x5A\x5A\x5A\x5A", 8);
}

TEST_CASE("A record that cannot be read is an error behind the batches before, or left out",
          "[feed]") {
  const TempDir dir;
  TinyDb db(dir.path());
  test::FillOverflow(db);
  db.Commit();
  LoaderOptions options = test::WindowOptions();
  options.strategy = load::Strategy::kScan;
  options.global_batch_size = 20;
  options.max_batches = 15;
  auto expected = test::Expected(db.data_file(), options);
  Spoil(db.data_file().string(), expected.at(123).second);
  SECTION("raised") {
    options.memory_budget_bytes = 1 << 20;
    FedRank rank(db.data_file().string(), options, {.rows = {}, .depth = 3});
    Result<bool> found = true;
    uint64_t batches = 0;
    while (true) {
      found = rank.feed->Next(rank.stream(), rank.batch);
      if (!found) break;
      ++batches;
      REQUIRE(*found);
      rank.reader.Add(rank.batch, rank.stream());
    }
    CHECK(batches == rank.loader->next_batch());
    CHECK(batches <= 6);
    CHECK(found.error().code() == ErrorCode::kCorruption);
    const auto again = rank.feed->Next(rank.stream(), rank.batch);
    REQUIRE_FALSE(again);
    CHECK(again.error().message() == found.error().message());
    for (const auto& [position, record] : rank.Records()) CHECK(expected.at(position) == record);
  }
  SECTION("skipped") {
    options.on_error = load::OnError::kSkip;
    FedRank rank(db.data_file().string(), options);
    uint64_t skipped = 0;
    while (Good(rank.feed->Next(rank.stream(), rank.batch))) {
      skipped += rank.batch.facts().skipped_count();
      rank.reader.Add(rank.batch, rank.stream());
    }
    CHECK(skipped == 1);
    expected.erase(123);
    CHECK((rank.Records() == expected));
  }
}

TEST_CASE("Each sample's fields have rows of their own", "[feed]") {
  const TempDir dir;
  TinyDb db(dir.path());
  std::map<std::pair<uint64_t, size_t>, KeyValue> expected;
  for (uint64_t i = 0; i < 30; ++i) {
    const std::string image = fmt::format("image-{:03}", i);
    const std::string label = fmt::format("label-{:03}", i);
    expected[{i, 0}] = {image, std::string(50 + i * 31 % 200, static_cast<char>('a' + i % 26))};
    expected[{i, 1}] = {label, fmt::format("{}", i)};
    for (size_t f = 0; f < 2; ++f) db.Put(expected[{i, f}].first, expected[{i, f}].second);
  }
  db.Commit();
  auto spec = std::make_shared<load::ViewSpec>();
  spec->fields = {{"image", "image-{:03d}"}, {"label", "label-{:03d}"}};
  const RowShape shape = GENERATE(RowShape::kRows, RowShape::kPacked);
  const bool is_map = GENERATE(false, true);
  LoaderOptions options = FourEach(8);
  options.allow_map = is_map;
  const EmulatedGpu gpu(1);
  const auto group = ranks::SoloGroup();
  const auto loader = Good(Loader::Open(*group, db.data_file().string(), options, spec));
  const auto opened = gpu.Open();
  ProgramOnDevice program(opened);
  FedReader reader(opened);
  const auto feed = Good(
      DeviceFeed::Open(*loader, 0, {.rows = {shape, 0}, .depth = 2}, test::EmulatedKernelImage()));
  FedBatch batch;
  while (Good(feed->Next(program.stream().native(), batch))) {
    CHECK(batch.facts().field_count() == 2);
    reader.Add(batch, program.stream().native());
  }
  Must(program.stream().Synchronize());
  CHECK((reader.Records(2) == expected));
  CHECK(feed->counters().gathered_count == (is_map ? 0 : 8));
}

TEST_CASE("Without kernels, or without pinned pages, batches are staged", "[feed]") {
  const FeedDatabase database;
  const EmulatedGpu gpu(2);
  const auto group = ranks::SoloGroup();
  const auto loader = Good(Loader::Open(*group, database.path(), FourEach(20)));
  const auto opened = gpu.Open();
  kernels::KernelImage image = test::EmulatedKernelImage();
  std::string words;
  SECTION("no kernels") {
    image.bytes = {};
    words = "built without kernels";
  }
  SECTION("no pinned window") {
    gpu->FailCall("cuMemHostRegister", 1, device::driver_code::kOutOfMemory);
    words = "the window cannot be pinned";
  }
  const auto feed = Good(DeviceFeed::Open(*loader, 0, {}, image));
  ProgramOnDevice program(opened);
  FedReader reader(opened);
  FedBatch batch;
  while (Good(feed->Next(program.stream().native(), batch))) {
    reader.Add(batch, program.stream().native());
  }
  Must(program.stream().Synchronize());
  CHECK((test::OneField(reader) == database.Expected(FourEach(20))));
  CHECK(feed->counters().staged_count == 20);
  CHECK(feed->counters().gathered_count == 0);
  const std::vector<std::string> notes = feed->TakeNotes();
  REQUIRE(notes.size() == 1);
  CHECK_THAT(notes[0], ContainsSubstring(words));
  CHECK_THAT(feed->Describe(), ContainsSubstring("batches are staged"));
}

TEST_CASE("Options out of range, and a GPU that is not there, are refused", "[feed]") {
  const FeedDatabase database;
  const EmulatedGpu gpu(1);
  const auto group = ranks::SoloGroup();
  const auto loader = Good(Loader::Open(*group, database.path(), FourEach(3)));
  for (const uint32_t depth : {0U, kDepthMax + 1}) {
    const auto feed = DeviceFeed::Open(*loader, 0, {.rows = {}, .depth = depth});
    REQUIRE_FALSE(feed);
    CHECK(feed.error().code() == ErrorCode::kInvalidArgument);
    CHECK_THAT(feed.error().message(), ContainsSubstring("expected 1 to 64"));
  }
  const auto feed = DeviceFeed::Open(*loader, test::kEmulatedDevices, {});
  REQUIRE_FALSE(feed);
  CHECK(feed.error().code() == ErrorCode::kNotFound);
  CHECK(Good(loader->Next()));  // no batch was taken
  CHECK(loader->batch().number() == 0);
}

TEST_CASE("A child of fork() is refused, and does not disturb its parent", "[feed]") {
  const FeedDatabase database;
  FedRank rank(database.path(), FourEach(20));
  // Before the first batch the feed is at epoch 0, and has nothing to drop.
  const bool is_under_way = GENERATE(false, true);
  if (is_under_way) rank.Take();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    const auto refused = rank.feed->Next(rank.stream(), rank.batch);
    bool is_right = !refused && refused.error().code() == ErrorCode::kUnsupported;
    is_right = is_right && !rank.feed->SetEpoch(0);
    rank.feed.reset();
    ::_exit(is_right ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  rank.TakeToEnd();
  CHECK((rank.Records() == database.Expected(FourEach(20))));
}

TEST_CASE("A failure of the driver stays", "[feed]") {
  const FeedDatabase database;
  FedRank rank(database.path(), FourEach(20));
  rank.Take();
  rank.gpu->FailCall("cuLaunchKernel", 1, 999);
  Result<bool> found = true;
  while (found && *found) found = rank.feed->Next(rank.stream(), rank.batch);
  REQUIRE_FALSE(found);
  CHECK(found.error().code() == ErrorCode::kInternal);
  CHECK_THAT(found.error().message(), ContainsSubstring("cuLaunchKernel"));
  const auto again = rank.feed->Next(rank.stream(), rank.batch);
  REQUIRE_FALSE(again);
  CHECK(again.error().message() == found.error().message());
  CHECK_FALSE(rank.feed->SetEpoch(3));
}

}  // namespace
}  // namespace lmdbio::feed
