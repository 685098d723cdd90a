// Goal: a RecordReader with a view reads the records of samples, by number and by key, from one
// database and from several.
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/load/records/record_reader.h"
#include "lmdbio/load/view/key_template.h"
#include "tests/fixtures/lmdb_oracle.h"
#include "tests/fixtures/tiny_db.h"
#include "tests/support/catch.h"
#include "tests/support/good.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::load {
namespace {

using test::Good;
using test::TempDir;
using test::TinyDb;

std::vector<Bytes> BytesOf(const std::vector<std::string>& keys) {
  std::vector<Bytes> bytes;
  for (const std::string& key : keys) bytes.push_back(std::as_bytes(std::span(key)));
  return bytes;
}

TEST_CASE("Samples of templates are read by number and by key", "[view][records]") {
  const TempDir dir;
  TinyDb db(dir.path());
  std::map<std::string, std::string> values;
  for (int i = 0; i < 700; ++i) {
    values[fmt::format("image-{}", i)] = std::string(static_cast<size_t>(1 + 13 * i), 'i');
    values[fmt::format("label-{}", i)] = fmt::format("word {}", i);
  }
  values["about"] = "a record that is no sample";
  for (const auto& [key, value] : values) db.Put(key, value);
  db.Commit();
  ViewSpec spec;
  spec.fields = {{"label", "label-{}"}, {"image", "image-{}"}};
  const auto reader = Good(RecordReader::Open(db.data_file(), {}, &spec));
  REQUIRE(reader->sample_count() == 700);
  REQUIRE(reader->field_count() == 2);
  CHECK(reader->record_count() == 1401);
  test::Random random(9);
  for (int round = 0; round < 20; ++round) {
    std::vector<uint64_t> numbers;
    for (uint64_t i = random.Below(50); i < 50; ++i) numbers.push_back(random.Below(700));
    const RecordSet records = Good(reader->Read(numbers));
    REQUIRE(records.size() == 2 * numbers.size());
    for (size_t i = 0; i < numbers.size(); ++i) {
      const std::string label = fmt::format("label-{}", numbers[i]);
      const std::string image = fmt::format("image-{}", numbers[i]);
      REQUIRE(TextOf(records[2 * i].key) == label);
      REQUIRE(TextOf(records[2 * i].value) == values.at(label));
      REQUIRE(TextOf(records[2 * i + 1].key) == image);
      REQUIRE((TextOf(records[2 * i + 1].value) == values.at(image)));
    }
  }
  const KeyList keys = Good(reader->ReadKeys(690, 10));
  REQUIRE(keys.size() == 20);
  for (size_t i = 0; i < 10; ++i) {
    CHECK(TextOf(keys[2 * i]) == fmt::format("label-{}", 690 + i));
    CHECK(TextOf(keys[2 * i + 1]) == fmt::format("image-{}", 690 + i));
  }
  CHECK(Good(reader->ReadKeys(700, 0)).size() == 0);
  CHECK(reader->ReadKeys(690, 11).error().message().find("11 samples from sample 690") !=
        std::string::npos);
  const uint64_t beyond = 700;
  CHECK(reader->Read({&beyond, 1}).error().message().find("sample 700 is out of range") !=
        std::string::npos);
  const std::vector<std::string> wanted = {"image-77", "about", "absent", "label-77"};
  const auto found = Good(reader->Find(BytesOf(wanted)));
  CHECK(found == std::vector<KeyNumber>{{77, 1}, {}, {}, {77, 1}});
  // The database itself: also what is no sample.
  const RecordSet by_key = Good(reader->Get(BytesOf(wanted)));
  CHECK(TextOf(by_key[1].value) == values.at("about"));
  CHECK_FALSE(by_key[2].is_found());
  CHECK(Good(reader->CountValues(BytesOf(wanted))) == std::vector<uint64_t>{1, 1, 0, 1});
}

TEST_CASE("Samples of two files are read together", "[view][records]") {
  const TempDir dir, other_dir;
  TinyDb db(dir.path()), other(other_dir.path());
  for (int i = 0; i < 300; ++i) {
    db.Put(std::to_string(i), fmt::format("low {}", i));
    other.Put(std::to_string(i), std::string(5000, 'h') + std::to_string(i));
  }
  db.Commit();
  other.Put("!", "belongs to no sample").Commit();
  ViewSpec spec;
  spec.order = ViewOrder::kNumeric;
  spec.fields = {{"lq", ""}, {"gt", "", 1}};
  spec.others = {{other.data_file().string(), ""}};
  const auto reader = Good(RecordReader::Open(db.data_file(), {}, &spec));
  const auto notes = reader->TakeNotes();
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].find("1 records belong to no sample") != std::string::npos);
  const std::vector<uint64_t> numbers = {299, 0, 10, 9, 10};
  RecordSet moved = Good(reader->Read(numbers));
  const RecordSet records = std::move(moved);
  REQUIRE(records.size() == 10);
  for (size_t i = 0; i < numbers.size(); ++i) {
    CHECK(TextOf(records[2 * i].value) == fmt::format("low {}", numbers[i]));
    CHECK(
        (TextOf(records[2 * i + 1].value) == std::string(5000, 'h') + std::to_string(numbers[i])));
  }
  const KeyList keys = Good(reader->ReadKeys(9, 2));
  CHECK(TextOf(keys[0]) == "9");
  CHECK(TextOf(keys[3]) == "10");
  CHECK(Good(reader->Find(BytesOf({"10", "!"}))) == std::vector<KeyNumber>{{10, 1}, {}});
  spec.others[0].path += ".none";
  CHECK(RecordReader::Open(db.data_file(), {}, &spec).error().code() == ErrorCode::kNotFound);
}

}  // namespace
}  // namespace lmdbio::load
