// Goal: a view has the records that plain loops over liblmdb's records choose, in the same order;
// wrong input gives one line that names it.
#include "lmdbio/load/view/view.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <lmdb.h>

#include "lmdbio/file/source/file_source.h"
#include "lmdbio/load/view/key_stream.h"
#include "lmdbio/load/view/key_template.h"
#include "lmdbio/load/view/sample_index.h"
#include "tests/fixtures/lmdb_fixture.h"
#include "tests/fixtures/lmdb_oracle.h"
#include "tests/fixtures/tiny_db.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/good.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::load {
namespace {

using test::Good;
using test::KeyValue;
using test::LmdbRecords;
using test::TempDir;
using test::TinyDb;

// An open file, for as long as views of it are resolved.
class ViewedFile {
 public:
  explicit ViewedFile(const TinyDb& db)
      : source_(Good(file::FileSource::Open(db.data_file().string()))),
        environment_(Good(file::Environment::Open(*source_))) {}
  ViewDatabase Main(uint64_t first_record = 0) const { return {environment_.Main(), first_record}; }
  ViewDatabase Named(const std::string& name, uint64_t first_record = 0) const {
    return {Good(environment_.Named(name)), first_record};
  }

 private:
  std::unique_ptr<file::FileSource> source_;
  file::Environment environment_;
};

struct Outcome {
  Result<View> view;
  std::vector<std::string> notes;
};

Outcome Resolve(const ViewSpec& spec, const std::vector<std::vector<ViewDatabase>>& files) {
  std::vector<std::string> notes;
  Result<View> view = View::Resolve(spec, files, notes);
  return {std::move(view), std::move(notes)};
}

// [samples][fields] record numbers
using Table = std::vector<std::vector<uint64_t>>;

Table TableOf(const View& view) {
  Table rows;
  for (uint64_t sample = 0; sample < view.sample_count(); ++sample) {
    rows.emplace_back();
    for (size_t field = 0; field < view.field_count(); ++field) {
      rows.back().push_back(view.RecordOf(sample, field));
    }
  }
  return rows;
}

Table Rows(const ViewSpec& spec, const ViewDatabase& own) {
  return TableOf(Good(Resolve(spec, {{own}}).view));
}

Error Refusal(const ViewSpec& spec, const std::vector<std::vector<ViewDatabase>>& files) {
  Outcome outcome = Resolve(spec, files);
  if (outcome.view) FAIL("the view was resolved");
  CHECK(outcome.view.error().message().find('\n') == std::string::npos);
  return std::move(outcome.view).error();
}

bool Has(const Error& error, std::string_view words) {
  INFO(error.message());
  return error.message().find(words) != std::string::npos;
}

// The number of the record with a key.
uint64_t NumberOf(const std::vector<KeyValue>& records, const std::string& key) {
  for (size_t i = 0; i < records.size(); ++i) {
    if (records[i].first == key) return i;
  }
  throw std::runtime_error("no key " + key);
}

ViewSpec OcrSpec() {
  ViewSpec spec;
  spec.fields = {{"image", "image-{:09d}"}, {"label", "label-{:09d}"}};
  spec.start = 1;
  spec.count_key = "num-samples";
  return spec;
}

void FillOcr(TinyDb& db, int count) {
  for (int i = 1; i <= count; ++i) {
    db.Put(fmt::format("image-{:09}", i), std::string(static_cast<size_t>(100 + 37 * i), 'i'));
    db.Put(fmt::format("label-{:09}", i), fmt::format("word {}", i));
  }
  db.Put("num-samples", std::to_string(count));
}

TEST_CASE("Every key of a stream is liblmdb's", "[view]") {
  for (const char* name : {"single-record", "dupsort-inline", "keys-and-values", "dense"}) {
    const auto catalogue = test::FixtureCatalogue(test::FixtureScale::kSmall);
    const auto spec = std::ranges::find(catalogue, name, &test::FixtureSpec::name);
    if (spec == catalogue.end()) continue;
    const TempDir dir;
    const test::Fixture fixture = test::WriteFixture(*spec, dir.path());
    const auto source = Good(file::FileSource::Open(fixture.data_file.string()));
    const auto environment = Good(file::Environment::Open(*source));
    KeyStream keys(environment.Main());
    const std::vector<KeyValue> expected = LmdbRecords(fixture.data_file);
    for (size_t i = 0; i < expected.size(); ++i) {
      REQUIRE(Good(keys.Next()));
      REQUIRE(keys.number() == i);
      REQUIRE(TextOf(keys.key()) == expected[i].first);
    }
    CHECK_FALSE(Good(keys.Next()));
  }
}

TEST_CASE("A default view has every record, in key order", "[view]") {
  for (const test::FixtureSpec& spec : test::FixtureCatalogue(test::FixtureScale::kSmall)) {
    if (spec.bulk == test::FixtureBulk::kHuge) continue;
    INFO(spec.name);
    const TempDir dir;
    const test::Fixture fixture = test::WriteFixture(spec, dir.path());
    const auto source = Good(file::FileSource::Open(fixture.data_file.string()));
    const auto environment = Good(file::Environment::Open(*source));
    const std::vector<KeyValue> expected = LmdbRecords(fixture.data_file);
    ViewSpec view;
    if (!expected.empty()) view.exclude = {expected.back().first, "absent"};
    const auto kept = static_cast<size_t>(std::ranges::count_if(
        expected, [&](const KeyValue& record) { return record.first != expected.back().first; }));
    const Table rows = Rows(view, {environment.Main(), 1000});
    REQUIRE(rows.size() == kept);
    for (size_t i = 0; i < kept; ++i) REQUIRE(rows[i] == std::vector<uint64_t>{1000 + i});
  }
}

TEST_CASE("Numeric order is that of the numbers", "[view]") {
  const TempDir dir;
  TinyDb db(dir.path());
  const uint64_t count = GENERATE(1, 9, 11, 3000);
  for (uint64_t i = 0; i < count; ++i) db.Put(std::to_string(i), std::string(20, 'v'));
  db.Put("length", "3000").Commit();
  const ViewedFile file(db);
  const std::vector<KeyValue> records = LmdbRecords(db.data_file());
  ViewSpec spec;
  spec.order = ViewOrder::kNumeric;
  const Error refused = Refusal(spec, {{file.Main()}});
  CHECK(refused.code() == ErrorCode::kInvalidArgument);
  CHECK(Has(refused, "the key \"length\" is no decimal number"));
  CHECK(Has(refused, "exclude"));
  spec.exclude = {"length"};
  const Table rows = Rows(spec, file.Main());
  REQUIRE(rows.size() == count);
  for (uint64_t i = 0; i < count; ++i) {
    REQUIRE(records[rows[i][0]].first == std::to_string(i));
  }
}

TEST_CASE("Templates make rows of records, as the count record says", "[view]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FillOcr(db, 500);
  db.Put("image-000000501", "beyond the count").Put("other", "no sample").Commit();
  const ViewedFile file(db);
  const std::vector<KeyValue> records = LmdbRecords(db.data_file());
  ViewSpec spec = OcrSpec();
  const Table rows = Rows(spec, file.Main());
  REQUIRE(rows.size() == 500);
  for (size_t i = 0; i < rows.size(); ++i) {
    REQUIRE(records[rows[i][0]].first == fmt::format("image-{:09}", i + 1));
    REQUIRE(records[rows[i][1]].first == fmt::format("label-{:09}", i + 1));
  }
  SECTION("a count") {
    spec.count_key.clear();
    spec.count = 20;
    spec.start = 3;
    const Table some = Rows(spec, file.Main());
    REQUIRE(some.size() == 20);
    CHECK(some == Table(rows.begin() + 2, rows.begin() + 22));
    spec.count = 0;
    CHECK(Rows(spec, file.Main()).empty());
  }
  SECTION("without a count all numbers must line up") {
    spec.count_key.clear();
    const Error refused = Refusal(spec, {{file.Main()}});
    CHECK(refused.code() == ErrorCode::kNotFound);
    CHECK(Has(refused, "field \"label\" lacks the key \"label-000000501\" of sample 500"));
    db.Put("label-000000501", "now it is there").Delete("image-000000007");
    db.Delete("label-000000007").Commit();
    const ViewedFile changed(db);
    CHECK(Rows(spec, changed.Main()).size() == 500);  // 7 is absent from both
  }
  SECTION("a record is missing") {
    db.Delete("label-000000007").Commit();
    const Error refused = Refusal(spec, {{ViewedFile(db).Main()}});
    CHECK(refused.code() == ErrorCode::kNotFound);
    CHECK(Has(refused, "lacks the key \"label-000000007\" of sample 6"));
    CHECK(Has(refused, db.data_file().string()));
  }
}

TEST_CASE("A count record must begin with a number, and what it counts must be there", "[view]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FillOcr(db, 5);
  db.Commit();
  const auto refusal = [&](std::string_view count) {
    db.Put("num-samples", count).Commit();
    return Refusal(OcrSpec(), {{ViewedFile(db).Main()}});
  };
  for (const char* wrong : {"five", "", "-5", "5a", "0x5", "99999999999999999999"}) {
    const Error refused = refusal(wrong);
    CHECK(refused.code() == ErrorCode::kInvalidArgument);
    CHECK(Has(refused, fmt::format("the count record \"num-samples\" is \"{}\"", wrong)));
  }
  CHECK(Has(refusal("1000000000000000000"), "lacks the key \"image-000000006\""));
  db.Put("num-samples", "4 16 60").Commit();
  CHECK(Rows(OcrSpec(), ViewedFile(db).Main()).size() == 4);
  db.Delete("num-samples").Commit();
  const Error absent = Refusal(OcrSpec(), {{ViewedFile(db).Main()}});
  CHECK(absent.code() == ErrorCode::kNotFound);
  CHECK(Has(absent, "no count record \"num-samples\""));
}

TEST_CASE("Databases are joined by equal keys", "[view]") {
  const TempDir dir, other_dir;
  TinyDb db(dir.path()), other(other_dir.path());
  test::Random random(3);
  std::vector<std::string> keys;
  for (int i = 0; i < 4000; ++i) keys.push_back(fmt::format("{:x}", random.Below(1 << 30)));
  for (const std::string& key : keys) {
    db.Put(key, "low");
    other.Put(key, std::string(60, 'h'));
  }
  db.Commit();
  other.Commit();
  ViewSpec spec;
  spec.fields = {{"lq", ""}, {"gt", "", 1}};
  spec.others = {{"other", ""}};
  const std::vector<KeyValue> records = LmdbRecords(db.data_file());
  const auto check = [&](const ViewSpec& wanted, size_t count) {
    const ViewedFile file(db), of_other(other);
    const Outcome outcome = Resolve(wanted, {{file.Main(), of_other.Main(1'000'000)}});
    const Table rows = TableOf(
        Good(outcome.view ? Result<View>(*outcome.view) : Fail(outcome.view.error().Copy())));
    const std::vector<KeyValue> of_gt = LmdbRecords(other.data_file());
    REQUIRE(rows.size() == count);
    for (const auto& row : rows) {
      REQUIRE(records[row[0]].first == of_gt[row[1] - 1'000'000].first);
    }
    return outcome.notes;
  };
  CHECK(check(spec, records.size()).empty());
  SECTION("further records of another database give a note") {
    other.Put("zz", "1").Put("!", "2").Commit();
    const auto notes = check(spec, records.size());
    REQUIRE(notes.size() == 1);
    CHECK(notes[0].find("2 records belong to no sample") != std::string::npos);
    CHECK(notes[0].find("\"!\"") != std::string::npos);
    spec.exclude = {"zz", "!"};
    CHECK(check(spec, records.size()).empty());
  }
  SECTION("a missing one is named") {
    const std::string missing = records[1234].first;
    other.Delete(missing).Commit();
    const ViewedFile file(db), of_other(other);
    const Error refused = Refusal(spec, {{file.Main(), of_other.Main()}});
    CHECK(refused.code() == ErrorCode::kNotFound);
    CHECK(Has(refused, fmt::format("field \"gt\" lacks the key \"{}\"", missing)));
    CHECK(Has(refused, other.data_file().string()));
    CHECK(Has(refused, db.data_file().string()));
    spec.exclude = {missing};
    CHECK(check(spec, records.size() - 1).empty());
  }
  SECTION("the first field decides, whichever database it is of") {
    std::swap(spec.fields[0], spec.fields[1]);
    const ViewedFile file(db), of_other(other);
    const View view = Good(Resolve(spec, {{file.Main(), of_other.Main(1'000'000)}}).view);
    CHECK(view.sample_count() == records.size());
    CHECK(view.RecordOf(0, 0) == 1'000'000);
    CHECK(view.RecordOf(0, 1) == 0);
  }
}

TEST_CASE("Named databases of one file are joined", "[view]") {
  const TempDir dir;
  TinyDb db(dir.path());
  for (int i = 0; i < 300; ++i) {
    db.Use("image").Put(std::to_string(i), "image").Use("label").Put(std::to_string(i), "label");
  }
  db.Use("integers", MDB_INTEGERKEY).Put(std::string(8, 'k'), "v");
  db.Use("duplicates", MDB_DUPSORT).Put("1", "v").Commit();
  const ViewedFile file(db);
  ViewSpec spec;
  spec.order = ViewOrder::kNumeric;
  spec.fields = {{"image", ""}, {"label", "", 1}};
  spec.others = {{"", "label"}};
  const View view = Good(Resolve(spec, {{file.Named("image"), file.Named("label", 300)}}).view);
  const std::vector<KeyValue> records = LmdbRecords(db.data_file(), "image");
  for (uint64_t i = 0; i < 300; ++i) {
    REQUIRE(records[view.RecordOf(i, 0)].first == std::to_string(i));
    REQUIRE(view.RecordOf(i, 1) == view.RecordOf(i, 0) + 300);
  }
  const Error order = Refusal(spec, {{file.Named("image"), file.Named("integers")}});
  CHECK(order.code() == ErrorCode::kUnsupported);
  CHECK(Has(order, "\"label\": its keys have another order"));
  const Error duplicates = Refusal(spec, {{file.Named("image"), file.Named("duplicates")}});
  CHECK(duplicates.code() == ErrorCode::kUnsupported);
  CHECK(Has(duplicates, "MDB_DUPSORT"));
}

TEST_CASE("Samples of several files follow each other", "[view]") {
  const TempDir first_dir, second_dir;
  TinyDb first(first_dir.path()), second(second_dir.path());
  for (int i = 0; i < 12; ++i) first.Put(std::to_string(i), "v");
  for (int i = 0; i < 15; ++i) second.Put(std::to_string(i), "v");
  first.Put("length", "12").Commit();
  second.Commit();
  const ViewedFile one(first), two(second);
  ViewSpec spec;
  spec.order = ViewOrder::kNumeric;
  spec.exclude = {"length"};
  const View view = Good(Resolve(spec, {{one.Main()}, {two.Main(13)}}).view);
  const std::vector<KeyValue> of_first = LmdbRecords(first.data_file());
  const std::vector<KeyValue> of_second = LmdbRecords(second.data_file());
  REQUIRE(view.sample_count() == 27);
  for (uint64_t i = 0; i < 12; ++i)
    CHECK(view.RecordOf(i, 0) == NumberOf(of_first, std::to_string(i)));
  for (uint64_t i = 0; i < 15; ++i) {
    CHECK(view.RecordOf(12 + i, 0) == 13 + NumberOf(of_second, std::to_string(i)));
  }
  spec.subset = {26, 0};
  CHECK(Good(Resolve(spec, {{one.Main()}, {two.Main(13)}}).view).sample_count() == 2);
  spec.subset.reset();
  spec.subset_keys = {"3"};
  CHECK(Refusal(spec, {{one.Main()}, {two.Main(13)}}).code() == ErrorCode::kUnsupported);
}

TEST_CASE("A subset has its samples in its order", "[view]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FillOcr(db, 30);
  for (int i = 0; i < 20; ++i) db.Use("stems").Put(fmt::format("s{}", i), "v");
  db.Commit();
  const ViewedFile file(db);
  ViewSpec spec = OcrSpec();
  const Table all = Rows(spec, file.Main());
  spec.subset = {29, 0, 7, 7};
  CHECK(Rows(spec, file.Main()) == Table{all[29], all[0], all[7], all[7]});
  spec.subset = std::vector<uint64_t>();
  CHECK(Rows(spec, file.Main()).empty());
  spec.subset = {0, 5, 30, 31};
  const Error refused = Refusal(spec, {{file.Main()}});
  CHECK(refused.code() == ErrorCode::kInvalidArgument);
  CHECK(Has(refused, "subset[2] is 30, but there are 30 samples"));
  CHECK(Has(refused, db.data_file().string()));
  spec.subset.reset();
  spec.subset_keys = {"30", "1"};  // numbers in the template
  CHECK(Rows(spec, file.Main()) == Table{all[29], all[0]});
  spec.subset_keys = {"1", "31"};
  CHECK(Has(Refusal(spec, {{file.Main()}}), "subset[1]: no sample has the key \"31\""));
  ViewSpec by_stem;
  by_stem.subset_keys = {"s7", "s10", "s7"};
  const std::vector<KeyValue> stems = LmdbRecords(db.data_file(), "stems");
  const uint64_t seven = NumberOf(stems, "s7"), ten = NumberOf(stems, "s10");
  CHECK(Rows(by_stem, file.Named("stems")) == Table{{seven}, {ten}, {seven}});
  by_stem.subset_keys = {"s7", "s99"};
  const Error absent = Refusal(by_stem, {{file.Named("stems")}});
  CHECK(absent.code() == ErrorCode::kNotFound);
  CHECK(Has(absent, "subset[1]: no sample has the key \"s99\""));
}

TEST_CASE("A damaged leaf page is an error that names it", "[view]") {
  const TempDir dir;
  TinyDb db(dir.path());
  for (int i = 0; i < 5000; ++i) db.Put(std::to_string(i), std::string(20, 'v'));
  db.Commit();
  std::string bytes = test::ReadWholeTextFile(db.data_file());
  const size_t at = bytes.find("3333" + std::string(20, 'v'));
  REQUIRE(at != std::string::npos);
  const size_t page = at / 4096;
  const auto refusal = [&](size_t offset) {
    std::string damaged = bytes;
    for (size_t i = 0; i < 4; ++i) damaged[page * 4096 + offset + i] = '\x5A';
    test::WriteWholeFile(dir.path() / "damaged.mdb", test::AsBytes(damaged));
    const auto source = Good(file::FileSource::Open((dir.path() / "damaged.mdb").string()));
    const auto environment = Good(file::Environment::Open(*source));
    ViewSpec spec;
    spec.order = ViewOrder::kNumeric;
    return Refusal(spec, {{{environment.Main(), 0}}});
  };
  for (const size_t offset : {size_t{0}, size_t{8}, size_t{16}}) {
    const Error refused = refusal(offset);  // number, flags and bounds, slots
    CHECK(refused.code() == ErrorCode::kCorruption);
    CHECK(Has(refused, fmt::format("page {}", page)));
  }
}

TEST_CASE("Keys in an order that the file does not record cannot be joined", "[view]") {
  const TempDir dir, other_dir, short_dir;
  TinyDb sorted(dir.path()), other(other_dir.path()), one(short_dir.path());
  for (const char* key : {"a", "b", "c", "d"}) sorted.Put(key, "v");
  for (const char* key : {"a", "b", "c"}) other.Put(key, "v");
  one.Put("a", "v").Commit();
  sorted.Commit();
  other.Commit();
  // As a program with a comparison function of its own would have them: a, d, c.
  std::string bytes = test::ReadWholeTextFile(other.data_file());
  for (size_t at = bytes.find("bv"); at != std::string::npos; at = bytes.find("bv", at + 1)) {
    bytes[at] = 'd';
  }
  test::WriteWholeFile(other.data_file(), test::AsBytes(bytes));
  ViewSpec spec;
  spec.fields = {{"one", ""}, {"two", "", 1}};
  spec.others = {{"other", ""}};
  const ViewedFile of_sorted(sorted), of_other(other), of_one(one);
  const std::vector<std::vector<ViewDatabase>> wrong = {{of_other.Main(), of_sorted.Main()},
                                                        {of_one.Main(), of_other.Main()}};
  for (const std::vector<ViewDatabase>& databases : wrong) {
    const Error refused = Refusal(spec, {databases});
    CHECK(refused.code() == ErrorCode::kCorruption);
    CHECK(Has(refused, "the key \"c\" comes after \"d\""));
    CHECK(Has(refused, other.data_file().string()));
  }
}

TEST_CASE("Equal views have equal digests, and others have others", "[view]") {
  const TempDir dir;
  TinyDb db(dir.path());
  FillOcr(db, 40);
  db.Commit();
  const ViewedFile file(db);
  const auto digest = [&](const ViewSpec& spec) {
    return Good(Resolve(spec, {{file.Main()}}).view).digest();
  };
  ViewSpec by_count = OcrSpec();
  by_count.count_key.clear();
  by_count.count = 40;
  ViewSpec renamed = OcrSpec();
  renamed.fields[0].name = "picture";
  CHECK(digest(by_count) == digest(OcrSpec()));
  CHECK(digest(renamed) == digest(OcrSpec()));
  CHECK(DigestOf(by_count) != DigestOf(OcrSpec()));
  CHECK(DigestOf(renamed) != DigestOf(OcrSpec()));
  ViewSpec swapped = OcrSpec();
  std::swap(swapped.fields[0], swapped.fields[1]);
  CHECK(digest(swapped) != digest(OcrSpec()));
  by_count.count = 39;
  CHECK(digest(by_count) != digest(OcrSpec()));
  by_count.count = 40;
  by_count.subset = {1, 0};
  const uint64_t one_zero = digest(by_count);
  by_count.subset = {0, 1};
  CHECK(digest(by_count) != one_zero);
  const View view = Good(Resolve(OcrSpec(), {{file.Main()}}).view);
  CHECK(view.field_names() == std::vector<std::string>{"image", "label"});
  const SampleIndex index(view);
  for (uint64_t sample = 0; sample < 40; ++sample) {
    CHECK(index.SampleOf(view.RecordOf(sample, 0)) == sample);
    CHECK(index.SampleOf(view.RecordOf(sample, 1)) == sample);
  }
  CHECK_FALSE(index.SampleOf(80));  // num-samples
}

TEST_CASE("Descriptions that contradict themselves are refused", "[view]") {
  const auto refusal = [](const ViewSpec& spec) {
    const Status checked = CheckView(spec);
    REQUIRE_FALSE(checked);
    CHECK(checked.error().code() == ErrorCode::kInvalidArgument);
    return checked.error().Copy();
  };
  ViewSpec spec = OcrSpec();
  CHECK(CheckView(spec));
  spec.fields[1].name = "image";
  CHECK(Has(refusal(spec), "two fields have the name \"image\""));
  spec.fields[1].name = "";
  CHECK(Has(refusal(spec), "has no name"));
  spec = OcrSpec();
  spec.fields[1].key_template = "label";
  CHECK(Has(refusal(spec), "field \"label\": the key template \"label\" has no place"));
  spec.fields[1].key_template = "";
  CHECK(Has(refusal(spec), "either by numbers or by keys"));
  spec = OcrSpec();
  spec.fields[1].source = 1;
  CHECK(Has(refusal(spec), "source 1 is out of range"));
  spec = OcrSpec();
  spec.count = 3;
  CHECK(Has(refusal(spec), "exclude each other"));
  spec = OcrSpec();
  spec.start = ~uint64_t{0};
  CHECK(Has(refusal(spec), "out of range"));
  spec = {};
  spec.start = 1;
  CHECK(Has(refusal(spec), "start and count need fields"));
  spec = {};
  spec.count_key = "length";
  CHECK(Has(refusal(spec), "start and count need fields"));
  spec = {};
  spec.subset = {1};
  spec.subset_keys = {"1"};
  CHECK(Has(refusal(spec), "exclude each other"));
}

}  // namespace
}  // namespace lmdbio::load
