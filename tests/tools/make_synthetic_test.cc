#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "tests/fixtures/lmdb_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/make_tool.h"
#include "tools/make/synthetic_records.h"

namespace lmdbio::test {
namespace {

std::vector<KeyValue> MakeRecords(const TempDir& dir, const std::string& name,
                                  std::vector<std::string> options) {
  const std::string out = (dir.path() / name).string();
  options.insert(options.begin(), {"synthetic", out});
  Make(options);
  return LmdbRecords(out + "/data.mdb");
}

uint64_t NumberIn(const std::string& value) {
  uint64_t number = 0;
  for (size_t i = 0; i < 8; ++i) {
    number |= static_cast<uint64_t>(static_cast<unsigned char>(value[i])) << (8 * i);
  }
  return number;
}

// The number of different byte values. A constant or a counter has few, random bytes have all.
size_t DistinctBytes(const std::string& value) {
  return std::set<char>(value.begin() + 8, value.end()).size();
}

TEST_CASE("lmdbio-make synthetic writes numbered records", "[tools]") {
  const TempDir dir;
  const auto records = MakeRecords(dir, "db", {"--count", "2500", "--value-size", "3080"});
  REQUIRE(records.size() == 2500);
  for (size_t i = 0; i < records.size(); ++i) {
    INFO("record " << i);
    char key[16];
    std::snprintf(key, sizeof(key), "%08zu", i);
    REQUIRE(records[i].first == key);
    REQUIRE(records[i].second.size() == 3080);
    REQUIRE(NumberIn(records[i].second) == i);
    REQUIRE(DistinctBytes(records[i].second) > 250);
  }
}

TEST_CASE("lmdbio-make synthetic writes the same database for the same seed", "[tools]") {
  const TempDir dir;
  const std::vector<std::string> options = {"--count", "100", "--value-size-lognormal", "500:1"};
  auto other_options = options;
  other_options.insert(other_options.end(), {"--seed", "2"});
  const auto records = MakeRecords(dir, "a", options);
  CHECK(MakeRecords(dir, "b", options) == records);
  const auto others = MakeRecords(dir, "c", other_options);
  for (size_t i = 0; i < records.size(); ++i) CHECK(others[i].second != records[i].second);
}

// Goal: only the order of insertion changes.
TEST_CASE("lmdbio-make synthetic puts the same records in random order", "[tools]") {
  const TempDir dir;
  const std::vector<std::string> options = {"--count", "3000", "--value-size", "100"};
  auto shuffled_options = options;
  shuffled_options.insert(shuffled_options.end(), {"--order", "random"});
  CHECK(MakeRecords(dir, "sequential", options) == MakeRecords(dir, "random", shuffled_options));
  // Random insertion leaves pages about two thirds full, ordered insertion nearly full.
  const auto pages = [&dir](const char* name) {
    return LmdbStat(dir.path() / name / "data.mdb").ms_leaf_pages;
  };
  CHECK(pages("random") > pages("sequential") * 11 / 10);
}

TEST_CASE("lmdbio-make synthetic appends to full pages", "[tools]") {
  const TempDir dir;
  const std::vector<std::string> options = {"--count", "3000", "--value-size", "100"};
  auto append_options = options;
  append_options.push_back("--append");
  CHECK(MakeRecords(dir, "put", options) == MakeRecords(dir, "append", append_options));
  CHECK(LmdbStat(dir.path() / "append/data.mdb").ms_leaf_pages <=
        LmdbStat(dir.path() / "put/data.mdb").ms_leaf_pages);
}

TEST_CASE("lmdbio-make synthetic writes the requested distribution of sizes", "[tools]") {
  const TempDir dir;
  SECTION("uniform") {
    const auto records =
        MakeRecords(dir, "db", {"--count", "4000", "--value-size-uniform", "10:109"});
    std::set<size_t> sizes;
    double sum = 0;
    for (const KeyValue& record : records) {
      sizes.insert(record.second.size());
      sum += static_cast<double>(record.second.size());
    }
    CHECK(*sizes.begin() == 10);
    CHECK(*sizes.rbegin() == 109);
    CHECK(sizes.size() == 100);
    CHECK(sum / 4000 == Approx(59.5).margin(2.5));  // five standard errors
  }
  SECTION("lognormal") {
    const auto records =
        MakeRecords(dir, "db", {"--count", "4000", "--value-size-lognormal", "1000:0.5"});
    double sum = 0;
    double square_sum = 0;
    for (const KeyValue& record : records) {
      const double log_size = std::log(static_cast<double>(record.second.size()));
      sum += log_size;
      square_sum += log_size * log_size;
    }
    const double mean = sum / 4000;
    CHECK(mean == Approx(std::log(1000)).margin(0.05));
    CHECK(std::sqrt(square_sum / 4000 - mean * mean) == Approx(0.5).margin(0.03));
  }
}

TEST_CASE("lmdbio-make synthetic widens its keys", "[tools]") {
  const TempDir dir;
  CHECK(MakeRecords(dir, "a", {"--count", "2", "--value-size", "0", "--key-digits", "12"}).back() ==
        KeyValue("000000000001", ""));
  CHECK(MakeRecords(dir, "b", {"--count", "10", "--value-size", "3", "--key-digits", "1"}).back() ==
        KeyValue("9", std::string("\x09\0\0", 3)));
}

TEST_CASE("Permutation takes every position once", "[tools]") {
  const uint64_t count = GENERATE(as<uint64_t>{}, 1, 2, 3, 4, 5, 63, 64, 65, 1000, 4096, 4097);
  const tools::Permutation permutation(/*seed=*/count, count);
  std::vector<bool> is_taken(count, false);
  for (uint64_t position = 0; position < count; ++position) {
    const uint64_t place = permutation(position);
    REQUIRE(place < count);
    REQUIRE_FALSE(is_taken[place]);
    is_taken[place] = true;
  }
}

TEST_CASE("Permutation reaches numbers beyond 32 bits", "[tools]") {
  const uint64_t count = (uint64_t{1} << 62) + 12345;
  const tools::Permutation permutation(/*seed=*/1, count);
  std::set<uint64_t> places;
  for (uint64_t position = 0; position < 1000; ++position) places.insert(permutation(position));
  CHECK(places.size() == 1000);
  CHECK(*places.rbegin() < count);
  CHECK(*places.rbegin() > count / 2);
}

// Goal: an impossible command gives its reason in one line and leaves no file.
TEST_CASE("lmdbio-make synthetic refuses impossible options", "[tools]") {
  struct Case {
    std::vector<std::string> options;
    std::string message;
  };
  const std::string huge = "18446744073709551615";
  const auto [options, message] = GENERATE_COPY(values<Case>({
      {{"--count", "0", "--value-size", "1"}, "count 0 is out of range"},
      {{"--count", "-1", "--value-size", "1"},
       "the argument ('-1') for option '--count' is invalid"},
      {{"--count", "1e3", "--value-size", "1"},
       "the argument ('1e3') for option '--count' is invalid"},
      {{"--value-size", "1"}, "the option '--count' is required but missing"},
      {{"--count", "1"}, "give exactly one of --value-size, --value-size-uniform and"},
      {{"--count", "1", "--value-size", "1", "--value-size-uniform", "1:2"},
       "give exactly one of --value-size, --value-size-uniform and"},
      {{"--count", huge, "--value-size", huge}, "LMDB takes less than 2^32"},
      {{"--count", huge, "--value-size", "4000000000"}, "more than LMDB can map"},
      {{"--count", huge, "--value-size", "0"}, "more than LMDB can map"},
      {{"--count", "100000000000", "--value-size-lognormal", "1000:5"}, "more than LMDB can map"},
      {{"--count", "1", "--value-size-uniform", "5"}, "is not of the form A:B"},
      {{"--count", "1", "--value-size-uniform", "5:4"}, "MIN is above MAX"},
      {{"--count", "1", "--value-size-uniform", "a:4"}, "'a' is not a whole number"},
      {{"--count", "1", "--value-size-lognormal", "0:1"}, "the median must be at least 1"},
      {{"--count", "1", "--value-size-lognormal", "9:nan"}, "sigma 'nan' is not a number"},
      {{"--count", "1", "--value-size", "1", "--order", "sorted"},
       "--order takes sequential or random"},
      {{"--count", "1", "--value-size", "1", "--order", "random", "--append"}, "--append needs"},
      {{"--count", "100", "--value-size", "1", "--key-digits", "1"}, "need keys of 2 digits"},
      {{"--count", "1", "--value-size", "1", "--key-digits", "512"}, "LMDB takes at most 511"},
  }));
  const TempDir dir;
  std::vector<std::string> arguments = {"synthetic", (dir.path() / "db").string()};
  arguments.insert(arguments.end(), options.begin(), options.end());

  const CommandResult result = RunMake(arguments);

  INFO(result.errors);
  CHECK(result.exit_code == 2);
  CHECK(result.output.empty());
  CHECK(result.errors.starts_with("lmdbio-make: "));
  CHECK(result.errors.ends_with(" (try lmdbio-make synthetic --help)\n"));
  CHECK(result.errors.find(message) != std::string::npos);
  CHECK(std::count(result.errors.begin(), result.errors.end(), '\n') == 1);
  CHECK(NamesIn(dir.path()).empty());
}

}  // namespace
}  // namespace lmdbio::test
