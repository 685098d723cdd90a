#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/run_command.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/make_tool.h"

namespace lmdbio::test {
namespace {

constexpr const char* kTable = LMDBIO_TEST_DATA_DIR "/digits/digits.csv.gz";

// Goal: the built-in digits are all digits of the file in the same order.
TEST_CASE("lmdbio-make digits stores the table", "[tools]") {
  const TempDir dir;
  Make({"digits", (dir.path() / "db").string()});
  const std::vector<CaffeRecord> records = CaffeRecords(dir.path() / "db/data.mdb");
  const CommandResult table = RunCommand({"gzip", "-dc", kTable});
  REQUIRE(table.exit_code == 0);

  std::string expected;
  std::array<int, 10> counts = {};
  for (size_t i = 0; i < records.size(); ++i) {
    const caffe::Datum& datum = records[i].datum;
    REQUIRE(datum.channels() == 1);
    REQUIRE(datum.height() == 8);
    REQUIRE(datum.width() == 8);
    REQUIRE(datum.data().size() == 64);
    REQUIRE_FALSE(datum.has_encoded());
    REQUIRE(std::stoul(records[i].key) == i);
    REQUIRE(records[i].key.size() == 5);
    for (const char pixel : datum.data()) expected += std::to_string(int{pixel}) + ",";
    expected += std::to_string(datum.label()) + "\n";
    ++counts.at(static_cast<size_t>(datum.label()));
  }
  CHECK(records.size() == 1797);
  CHECK(expected == table.output);
  // The counts published with the data set.
  CHECK(counts == std::array<int, 10>{178, 182, 177, 183, 181, 182, 181, 179, 174, 180});
}

TEST_CASE("lmdbio-make digits takes another table", "[tools]") {
  const TempDir dir;
  std::string line;
  for (int pixel = 0; pixel < 64; ++pixel) line += std::to_string(pixel % 17) + ",";
  const std::string path = (dir.path() / "table.csv").string();
  const std::string end = GENERATE("\n", "");
  WriteWholeFile(path, AsBytes(line + "3\n" + line + "9" + end));

  Make({"digits", (dir.path() / "db").string(), "--data", path});

  const auto records = CaffeRecords(dir.path() / "db/data.mdb");
  REQUIRE(records.size() == 2);
  CHECK(records[1].datum.label() == 9);
  CHECK(records[1].datum.data()[16] == 16);
  CHECK(records[1].datum.data()[17] == 0);
}

// Goal: train and test share no record and together have all of them, with unchanged keys.
TEST_CASE("lmdbio-make digits stores a part of the table", "[tools]") {
  const TempDir dir;
  const auto records_of = [&](const std::string& part) {
    Make({"digits", (dir.path() / part).string(), "--part", part});
    return CaffeRecords(dir.path() / part / "data.mdb");
  };
  const auto all = records_of("all"), train = records_of("train"), test = records_of("test");

  CHECK(all.size() == 1797);
  CHECK(test.size() == 299);
  CHECK(train.size() == 1498);
  size_t tests = 0;
  std::array<int, 10> counts = {};
  for (size_t i = 0; i < all.size(); ++i) {
    const bool is_for_test = i % 6 == 5;
    const CaffeRecord& record = is_for_test ? test.at(tests) : train.at(i - tests);
    CHECK(record.key == all[i].key);
    CHECK(record.datum.SerializeAsString() == all[i].datum.SerializeAsString());
    if (!is_for_test) continue;
    ++tests;
    ++counts.at(static_cast<size_t>(record.datum.label()));
  }
  CHECK(*std::min_element(counts.begin(), counts.end()) >= 20);  // about 30 of each digit
}

TEST_CASE("lmdbio-make digits refuses an unknown part", "[tools]") {
  const TempDir dir;
  const std::string part = GENERATE("", "Test", "validation");
  const CommandResult result = RunMake({"digits", (dir.path() / "db").string(), "--part", part});
  CHECK(result.exit_code == 2);
  CHECK(result.errors.find("--part takes all, train or test, not '" + part + "'") !=
        std::string::npos);
  CHECK(NamesIn(dir.path()).empty());
}

TEST_CASE("lmdbio-make digits refuses an empty part", "[tools]") {
  const TempDir dir;
  std::string line;
  for (int pixel = 0; pixel < 64; ++pixel) line += "0,";
  WriteWholeFile(dir.path() / "table", AsBytes(line + "3\n"));
  const CommandResult result = RunMake({"digits", (dir.path() / "db").string(), "--data",
                                        (dir.path() / "table").string(), "--part", "test"});
  CHECK(result.exit_code == 1);
  CHECK(result.errors == "lmdbio-make: the table has no record of part test\n");
  CHECK(NamesIn(dir.path()) == std::set<std::string>{"table"});
}

TEST_CASE("lmdbio-make digits refuses a bad table", "[tools]") {
  struct Case {
    std::string table;
    std::string message;
  };
  std::string zeros;
  for (int pixel = 0; pixel < 63; ++pixel) zeros += "0,";
  const std::string good = zeros + "0,1\n";
  const std::string cut = ReadWholeTextFile(kTable).substr(0, 30000);
  const auto [table, message] = GENERATE_COPY(values<Case>({
      {"", "the table of digits is empty"},
      {good + zeros + "0\n", "line 2: not 64 pixels"},
      {good + zeros + "0,1,1\n", "line 2: not 64 pixels"},
      {good + zeros + "0,10\n", "line 2: not 64 pixels"},
      {good + zeros + "17,1\n", "line 2: not 64 pixels"},
      {good + zeros + "-1,1\n", "line 2: not 64 pixels"},
      {good + zeros + "0,1,\n", "line 2: not 64 pixels"},
      {good + "\n" + good, "line 2: not 64 pixels"},
      {"words\n", "line 1: not 64 pixels"},
      {cut, "damaged gzip data"},
  }));
  const TempDir dir;
  WriteWholeFile(dir.path() / "table", AsBytes(table));

  const CommandResult result =
      RunMake({"digits", (dir.path() / "db").string(), "--data", (dir.path() / "table").string()});

  INFO(result.errors);
  CHECK(result.exit_code == 1);
  CHECK(result.errors.find(message) != std::string::npos);
  CHECK(NamesIn(dir.path()) == std::set<std::string>{"table"});
}

TEST_CASE("lmdbio-make digits names a missing table", "[tools]") {
  const TempDir dir;
  const CommandResult result = RunMake({"digits", (dir.path() / "db").string(), "--data", "/none"});
  CHECK(result.exit_code == 1);
  CHECK(result.errors == "lmdbio-make: /none: cannot be opened: No such file or directory\n");
}

}  // namespace
}  // namespace lmdbio::test
