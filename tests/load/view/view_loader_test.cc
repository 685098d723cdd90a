// Goal: a loader with a view delivers its samples, each with all of its fields, in the order that
// the stream oracle has for as many records; with every kind of order, rank and engine.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/file/writer/record_provenance.h"
#include "lmdbio/load/loader/loader.h"
#include "lmdbio/load/plan/option_text.h"
#include "lmdbio/load/view/key_template.h"
#include "lmdbio/ranks/group/thread_group.h"
#include "tests/fixtures/tiny_db.h"
#include "tests/load/loader/stream_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/good.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::load {
namespace {

using test::Good;
using test::KeyValue;
using test::TempDir;
using test::TinyDb;
using Sample = std::vector<KeyValue>;  // [fields]

// The samples of a stream by position, and the errors of the ranks.
struct Stream {
  std::map<uint64_t, Sample> samples;
  uint64_t skipped_count = 0;
  std::vector<std::optional<Error>> errors;  // [ranks]
  std::string state;                         // of rank 0, at the end
  std::string described;
  LoaderCounters counters;  // of rank 0
};

void TakeBatch(const Batch& batch, Stream& all) {
  all.skipped_count += batch.skipped_count();
  const size_t fields = batch.field_count();
  for (size_t i = 0; i < batch.sample_count(); ++i) {
    Sample sample;
    for (size_t k = i * fields; k < (i + 1) * fields; ++k) {
      if (batch.position(k) != batch.position(i * fields)) sample.emplace_back("torn", "sample");
      sample.emplace_back(TextOf(batch.key(k)), TextOf(batch.value(k)));
    }
    if (!all.samples.emplace(batch.position(i * fields), sample).second) {
      all.samples[batch.position(i * fields)].emplace_back("delivered", "twice");
    }
  }
}

using ViewOfRank = std::function<std::shared_ptr<const ViewSpec>(int rank)>;

Stream Run(ranks::ThreadRanks ranks, const std::string& path, const LoaderOptions& options,
           const ViewOfRank& view) {
  Stream all;
  all.errors.resize(static_cast<size_t>(ranks.rank_count));
  std::mutex mutex;
  ranks::RunAsThreads(ranks, [&](ranks::Group& group) {
    auto& error = all.errors[static_cast<size_t>(group.rank())];
    auto loader = Loader::Open(group, path, options, view(group.rank()));
    if (!loader) {
      error.emplace(std::move(loader).error());
      return;
    }
    while (true) {
      const Result<bool> found = (*loader)->Next();
      const std::lock_guard lock(mutex);
      if (!found) error.emplace(found.error().Copy());
      if (!found || !*found) break;
      TakeBatch((*loader)->batch(), all);
    }
    if (group.rank() > 0) return;
    all.state = (*loader)->Save();
    all.described = (*loader)->Describe();
    all.counters = (*loader)->counters();
  });
  return all;
}

Stream Run(ranks::ThreadRanks ranks, const std::string& path, const LoaderOptions& options,
           const ViewSpec& spec) {
  const auto shared = std::make_shared<const ViewSpec>(spec);
  return Run(ranks, path, options, [&](int) { return shared; });
}

std::string FirstMessage(const Stream& stream) {
  for (const auto& error : stream.errors) {
    if (error && error->code() != ErrorCode::kPeerFailed) return error->message();
  }
  return "";
}

void CheckNoErrors(const Stream& stream) {
  INFO(FirstMessage(stream));
  for (const auto& error : stream.errors) REQUIRE_FALSE(error.has_value());
}

// The samples by position, if the stream of `samples.size()` records has them.
std::map<uint64_t, Sample> ExpectedSamples(const std::vector<Sample>& samples,
                                           const LoaderOptions& options) {
  std::vector<KeyValue> numbered;
  for (size_t i = 0; i < samples.size(); ++i) numbered.emplace_back(std::to_string(i), "");
  std::map<uint64_t, Sample> expected;
  for (const auto& [position, record] : test::ExpectedOf(numbered, options)) {
    expected[position] = samples[std::stoull(record.first)];
  }
  return expected;
}

// Keys in numeric order, with a record that is no sample.
struct NumberedSet {
  explicit NumberedSet(TinyDb& db) {
    spec.order = ViewOrder::kNumeric;
    spec.exclude = {"length"};
    for (size_t i = 0; i < 257; ++i) {
      const std::string key = std::to_string(i);
      const std::string value(30 + (i % 7) * 900, static_cast<char>('a' + i % 26));
      samples.push_back({{key, value + key}});
      db.Put(key, value + key);
    }
    db.Put("length", "257").Commit();
  }
  ViewSpec spec;
  std::vector<Sample> samples;
};

// Three fields, whose records lie apart, some of them on overflow pages.
struct FieldSet {
  explicit FieldSet(TinyDb& db) {
    spec.fields = {{"image", "image-{:04d}"}, {"label", "label-{:04d}"}, {"mask", "mask-{:04d}"}};
    spec.start = 1;
    spec.count_key = "num-samples";
    for (size_t i = 1; i <= 150; ++i) {
      Sample sample = {
          {fmt::format("image-{:04}", i), fmt::format("{:064}", i) + std::string(6000, 'i')},
          {fmt::format("label-{:04}", i), fmt::format("word {}", i)},
          {fmt::format("mask-{:04}", i), std::string(i % 40 == 0 ? 0 : 300, 'm')}};
      for (const auto& [key, value] : sample) db.Put(key, value);
      samples.push_back(std::move(sample));
    }
    db.Put("num-samples", "150").Commit();
  }
  ViewSpec spec;
  std::vector<Sample> samples;
};

struct RunOfTest {
  ranks::ThreadRanks ranks;
  LoaderOptions options;
};

// Orders, engines and ranks, each at least once with each of the others' kinds.
std::vector<RunOfTest> Runs() {
  std::vector<RunOfTest> runs;
  const std::vector<ranks::ThreadRanks> ranks = {{1, 1}, {3, 64}, {4, 2}};
  size_t turn = 0;
  for (const Strategy strategy : {Strategy::kAuto, Strategy::kScan, Strategy::kLmmDioProvCoal}) {
    for (int order = 0; order < 5; ++order) {
      for (const bool allow_map : {true, false}) {
        LoaderOptions options;
        options.strategy = strategy;
        options.allow_map = allow_map || strategy != Strategy::kAuto;
        options.global_batch_size = 24;
        options.max_batches = 30;  // several epochs
        options.seed = 5;
        options.group_batches = 4;
        options.block_records = 16;
        options.order = order == 0   ? Order::kSequential
                        : order == 1 ? Order::kChunked
                                     : Order::kShuffle;
        if (order == 3) options.shuffle = Shuffle::kBlock;
        if (order == 4) options.reuse = 2;
        if (order < 1 || order == 2) options.group_batches = 0;
        options.readers_per_host = turn % 4 == 3 ? 2 : 1;
        runs.push_back({ranks[turn++ % ranks.size()], options});
      }
    }
  }
  return runs;
}

template <typename Set>
void CheckRuns() {
  const TempDir dir;
  TinyDb db(dir.path());
  const Set set(db);
  file::RecordProvenanceOptions provenance;
  provenance.path = db.data_file();
  const auto recorded = Good(file::RecordProvenance(provenance));
  for (const RunOfTest& run : Runs()) {
    INFO(OptionsJson(run.options) << " ranks " << run.ranks.rank_count);
    const Stream stream = Run(run.ranks, db.data_file().string(), run.options, set.spec);
    CheckNoErrors(stream);
    CHECK(stream.described.find("samples of a view") != std::string::npos);
    REQUIRE((stream.samples == ExpectedSamples(set.samples, run.options)));
  }
}

TEST_CASE("Samples of one record come in numeric order", "[view][loader]") {
  CheckRuns<NumberedSet>();
}

TEST_CASE("Samples of several records come whole", "[view][loader]") { CheckRuns<FieldSet>(); }

TEST_CASE("Fields of other databases of the file are read along", "[view][loader]") {
  const TempDir dir;
  TinyDb db(dir.path());
  std::vector<Sample> samples;
  for (int i = 0; i < 200; ++i) {
    const std::string key = std::to_string(i);
    samples.push_back({{key, key + std::string(static_cast<size_t>(i) * 50, 'i')},
                       {key, key},
                       {key, "mask " + key}});
    db.Use("image").Put(key, samples.back()[0].second);
    db.Use("label").Put(key, key);
    db.Use("mask").Put(key, samples.back()[2].second);
  }
  db.Commit();
  ViewSpec spec;
  spec.order = ViewOrder::kNumeric;
  spec.fields = {{"image", ""}, {"label", "", 1}, {"mask", "", 2}};
  spec.others = {{"", "label"}, {"", "mask"}};
  for (const Order order : {Order::kSequential, Order::kShuffle}) {
    for (const bool allow_map : {true, false}) {
      LoaderOptions options;
      options.database_name = "image";
      options.order = order;
      options.allow_map = allow_map;
      options.global_batch_size = 32;
      options.max_batches = 14;
      const Stream stream = Run({3, 2}, db.data_file().string(), options, spec);
      CheckNoErrors(stream);
      REQUIRE((stream.samples == ExpectedSamples(samples, options)));
    }
  }
}

TEST_CASE("Fields of other files are read along, and their streams resume", "[view][loader]") {
  const TempDir dir, other_dir;
  TinyDb db(dir.path()), other(other_dir.path());
  std::vector<Sample> samples;
  for (int i = 0; i < 150; ++i) {
    const std::string key = std::to_string(i);
    samples.push_back({{key, "low " + key}, {key, std::string(4000, 'h') + key}});
    db.Put(key, samples.back()[0].second);
    other.Put(key, samples.back()[1].second);
  }
  db.Commit();
  other.Put("!", "belongs to no sample").Commit();
  ViewSpec spec;
  spec.order = ViewOrder::kNumeric;
  spec.exclude = {"!"};
  spec.fields = {{"lq", ""}, {"gt", "", 1}};
  spec.others = {{other.data_file().string(), ""}};
  LoaderOptions options;
  options.order = Order::kShuffle;
  options.global_batch_size = 24;
  options.max_batches = 16;
  const std::string path = db.data_file().string();
  const Stream whole = Run({3, 2}, path, options, spec);
  CheckNoErrors(whole);
  REQUIRE((whole.samples == ExpectedSamples(samples, options)));
  options.max_batches = 5;
  Stream first = Run({2, 64}, path, options, spec);
  CheckNoErrors(first);
  options.state = first.state;
  options.max_batches = 16;
  const Stream second = Run({1, 1}, path, options, spec);
  CheckNoErrors(second);
  first.samples.insert(second.samples.begin(), second.samples.end());
  CHECK((first.samples == whole.samples));
  other.Put("149", "changed").Commit();
  const Stream changed = Run({1, 1}, path, options, spec);
  REQUIRE(changed.errors[0].has_value());
  CHECK(changed.errors[0]->code() == ErrorCode::kStale);
}

TEST_CASE("A subset is all that a loader delivers", "[view][loader]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FieldSet set(db);
  set.spec.subset = {149, 3, 3, 0};
  LoaderOptions options;
  options.global_batch_size = 3;
  options.max_batches = 4;
  const Stream stream = Run({2, 64}, db.data_file().string(), options, set.spec);
  CheckNoErrors(stream);
  const std::vector<Sample> chosen = {set.samples[149], set.samples[3], set.samples[3],
                                      set.samples[0]};
  CHECK((stream.samples == ExpectedSamples(chosen, options)));
  CHECK(stream.counters.epoch_count == 2);
}

TEST_CASE("A sample with a damaged record is left out as a whole", "[view][loader][fault]") {
  const Strategy strategy = GENERATE(Strategy::kAuto, Strategy::kScan);
  const bool is_last = GENERATE(false, true);  // the damaged record, among those of its sample
  const TempDir dir;
  TinyDb db(dir.path());
  FieldSet set(db);
  if (is_last) {
    std::swap(set.spec.fields[0], set.spec.fields[2]);
    for (Sample& sample : set.samples) std::swap(sample[0], sample[2]);
  }
  LoaderOptions options;
  options.strategy = strategy;
  options.global_batch_size = 20;
  options.max_batches = 8;
  {
    std::ifstream in(db.data_file(), std::ios::binary);
    const std::string content((std::istreambuf_iterator<char>(in)), {});
    const size_t at = content.find(set.samples[70][is_last ? 2 : 0].second.substr(0, 100));
    REQUIRE(at != std::string::npos);
    std::fstream out(db.data_file(), std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(static_cast<std::streamoff>(at / 4096 * 4096));
    out.write("ZZZZZZZZ", 8);
  }
  const Stream raised = Run({2, 64}, db.data_file().string(), options, set.spec);
  CHECK(FirstMessage(raised).find("page") != std::string::npos);
  options.on_error = OnError::kSkip;
  const Stream skipped = Run({2, 64}, db.data_file().string(), options, set.spec);
  CheckNoErrors(skipped);
  CHECK(skipped.skipped_count == 1);
  auto expected = ExpectedSamples(set.samples, options);
  expected.erase(70);
  CHECK((skipped.samples == expected));
}

TEST_CASE("A stream of samples resumes with other ranks, and with the same view only",
          "[view][loader]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FieldSet set(db);
  LoaderOptions options;
  options.order = Order::kShuffle;
  options.seed = 11;
  options.global_batch_size = 24;
  options.max_batches = 20;
  const auto whole = ExpectedSamples(set.samples, options);
  options.max_batches = 9;
  Stream first = Run({3, 64}, db.data_file().string(), options, set.spec);
  CheckNoErrors(first);
  options.state = first.state;
  options.max_batches = 20;
  const Stream second = Run({4, 2}, db.data_file().string(), options, set.spec);
  CheckNoErrors(second);
  first.samples.insert(second.samples.begin(), second.samples.end());
  CHECK((first.samples == whole));

  ViewSpec other = set.spec;
  other.subset.emplace();
  for (uint64_t i = 0; i < 150; ++i) other.subset->push_back(149 - i);
  const Stream refused = Run({1, 1}, db.data_file().string(), options, other);
  REQUIRE(refused.errors[0].has_value());
  CHECK(refused.errors[0]->code() == ErrorCode::kStale);
  CHECK(FirstMessage(refused).find("the state was saved with view ") != std::string::npos);
  const Stream none = Run({1, 1}, db.data_file().string(), options,
                          [](int) { return std::shared_ptr<const ViewSpec>(); });
  REQUIRE(none.errors[0].has_value());
  CHECK(none.errors[0]->code() == ErrorCode::kStale);
  CHECK(FirstMessage(none).find("but the loader has none") != std::string::npos);
}

TEST_CASE("Restore and SetEpoch keep the view", "[view][loader]") {
  const TempDir dir;
  TinyDb db(dir.path());
  const FieldSet set(db);
  LoaderOptions options;
  options.global_batch_size = 50;
  options.allow_map = false;
  const auto group = ranks::SoloGroup();
  const auto loader = Good(Loader::Open(*group, db.data_file().string(), options,
                                        std::make_shared<const ViewSpec>(set.spec)));
  CHECK(loader->record_count() == 150);
  CHECK(loader->field_names() == std::vector<std::string>{"image", "label", "mask"});
  CHECK(loader->view_digest() != 0);
  const std::string begin = loader->Save();
  REQUIRE(Good(loader->Next()));
  REQUIRE(loader->Restore(begin));
  for (int epoch = 0; epoch < 2; ++epoch) {
    REQUIRE(loader->SetEpoch(5));
    REQUIRE(Good(loader->Next()));
    REQUIRE(loader->batch().sample_count() == 50);
    CHECK(loader->batch().position(0) == 750);
    CHECK(TextOf(loader->batch().value(1)) == "word 1");
  }
}

TEST_CASE("What cannot serve a view is refused with one line", "[view][loader]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FieldSet set(db);
  const std::string path = db.data_file().string();
  LoaderOptions options;
  const auto message = [&](const ViewSpec& spec) {
    return FirstMessage(Run({2, 64}, path, options, spec));
  };
  for (const Strategy strategy :
       {Strategy::kLmdb, Strategy::kLmm, Strategy::kLmmDm, Strategy::kLmmDio}) {
    options.strategy = strategy;
    CHECK(message(set.spec).find("cannot serve a view") != std::string::npos);
  }
  options.strategy = Strategy::kAuto;
  ViewSpec empty = set.spec;
  empty.subset.emplace();
  CHECK(message(empty) == path + ": the view has no samples");
  options.tail = Tail::kDrop;
  options.global_batch_size = 151;
  CHECK(message(set.spec).find("exceeds the 150 samples") != std::string::npos);
  options = {};
  ViewSpec wrong = set.spec;
  wrong.fields[1].key_template = "label";
  CHECK(message(wrong).find("no place for the number") != std::string::npos);
  const auto good = std::make_shared<const ViewSpec>(set.spec);
  const auto other = std::make_shared<const ViewSpec>(empty);
  const Stream differs =
      Run({3, 64}, path, options, [&](int rank) { return rank == 2 ? other : good; });
  CHECK(FirstMessage(differs) ==
        "the view of rank 2 differs from that of rank 0; give all ranks of the job the same view");
  const Stream absent = Run({3, 64}, path, options, [&](int rank) {
    return rank == 1 ? std::shared_ptr<const ViewSpec>() : good;
  });
  CHECK(FirstMessage(absent).find("the view of rank 1 differs") != std::string::npos);
}

}  // namespace
}  // namespace lmdbio::load
