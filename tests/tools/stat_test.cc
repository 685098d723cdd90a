// Goal: lmdbio-stat prints the figures of mdb_stat, and the correct locations of records. Method:
// the test converts the JSON report to the text of mdb_stat and compares it with mdb_stat itself.
// For files of version 3 the oracle is the stored output of the mdb_stat of LMDB 1.0.

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "tests/fixtures/dump_oracle.h"
#include "tests/fixtures/lmdb_fixture.h"
#include "tests/fixtures/lmdb_oracle.h"
#include "tests/fixtures/v3_fixture.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/program.h"

namespace lmdbio::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// LMDB 1.0 adds the page size to every section.
enum class MdbStatVersion { k09, k10 };

std::string Section(const ordered_json& tree, const ordered_json& environment,
                    MdbStatVersion version) {
  std::string text;
  if (version == MdbStatVersion::k10) {
    text += fmt::format("  Page size: {}\n", environment["page_size_bytes"].dump());
  }
  for (const auto& [label, member] : {std::pair{"Tree depth", "tree_depth"},
                                      {"Branch pages", "branch_pages"},
                                      {"Leaf pages", "leaf_pages"},
                                      {"Overflow pages", "overflow_pages"},
                                      {"Entries", "entries"}}) {
    text += fmt::format("  {}: {}\n", label, tree.at(member).dump());
  }
  return text;
}

// The output of `mdb_stat -e -f -a`, as far as it does not depend on a map or the lock file.
std::string InWordsOfMdbStat(const ordered_json& report, MdbStatVersion version) {
  const ordered_json& environment = report["environment"];
  std::string text = "Environment Info\n";
  for (const auto& [label, member] : {std::pair{"Map size", "map_size_bytes"},
                                      {"Page size", "page_size_bytes"},
                                      {"Max pages", "max_pages"},
                                      {"Number of pages used", "pages_used"},
                                      {"Last transaction ID", "last_transaction_id"},
                                      {"Max readers", "max_readers"}}) {
    text += fmt::format("  {}: {}\n", label, environment.at(member).dump());
  }
  text += "Freelist Status\n" + Section(report["free_list"], environment, version);
  text += fmt::format("  Free pages: {}\n", report["free_list"]["free_pages"].dump());
  text += "Status of Main DB\n" + Section(report["main"], environment, version);
  if (!report.contains("named")) return text;
  for (const ordered_json& database : report["named"]) {
    text += fmt::format("Status of {}\n", database["name"].get<std::string>()) +
            Section(database, environment, version);
  }
  return text;
}

// The output of mdb_stat without figures of map and lock file, and with names as JSON writes them.
std::string Comparable(std::string_view stat) {
  std::string text;
  while (!stat.empty()) {
    const std::string_view line = stat.substr(0, stat.find('\n') + 1);
    stat.remove_prefix(line.size());
    if (line.starts_with("  Map address: ")) continue;
    if (line.starts_with("  Number of readers used: ")) continue;
    text += line;
  }
  const auto replace = ordered_json::error_handler_t::replace;
  return ordered_json::parse(ordered_json(text).dump(-1, ' ', false, replace)).get<std::string>();
}

uint64_t Sum(const ordered_json& counts) {
  uint64_t sum = 0;
  for (const ordered_json& count : counts) sum += count.get<uint64_t>();
  return sum;
}

void CheckSizes(const ordered_json& database, const fs::path& data_file, const std::string& name) {
  uint64_t key_min = ~uint64_t{0}, key_max = 0, value_min = ~uint64_t{0}, value_max = 0, total = 0;
  uint64_t count = 0;
  LmdbScan(data_file, name, [&](Bytes key, Bytes value) {
    key_min = std::min(key_min, key.size());
    key_max = std::max(key_max, key.size());
    value_min = std::min(value_min, value.size());
    value_max = std::max(value_max, value.size());
    total += value.size();
    ++count;
  });
  if (count == 0) key_min = value_min = 0;
  const ordered_json& sizes = database["sizes"];
  CHECK(database["entries"] == count);
  CHECK(sizes["key_bytes_min"] == key_min);
  CHECK(sizes["key_bytes_max"] == key_max);
  CHECK(sizes["value_bytes_min"] == value_min);
  CHECK(sizes["value_bytes_max"] == value_max);
  CHECK(sizes["value_bytes_mean"] == total / std::max<uint64_t>(count, 1));
  CHECK(Sum(sizes["records_by_value_bytes"]) == count);
}

TEST_CASE("lmdbio-stat agrees with mdb_stat", "[tools][conformance]") {
  for (const FixtureSpec& spec : FixtureCatalogue(FixtureScale::kSmall)) {
    const TempDir dir;
    const Fixture fixture = WriteFixture(spec, dir.path());
    INFO("fixture " << spec.name);
    const ordered_json report = Report(StatProgram(), fixture.data_file);
    const std::string expected = RunMdbStat(fixture.data_file).output;
    CHECK(InWordsOfMdbStat(report, MdbStatVersion::k09) == Comparable(expected));
    CHECK(report["environment"]["file_size_bytes"] == fs::file_size(fixture.data_file));
    CheckSizes(report["main"], fixture.data_file, "");
    const std::set<std::string>& names = fixture.database_names;
    REQUIRE((report.contains("named") ? report["named"].size() : 0) == names.size());
    size_t number = 0;
    for (const std::string& name : names) {
      INFO("database " << name);
      CheckSizes(report["named"][number++], fixture.data_file, name);
    }
  }
}

TEST_CASE("lmdbio-stat agrees with mdb_stat of LMDB 1.0", "[tools][conformance]") {
  for (const std::string& name : V3FixtureNames()) {
    const TempDir dir;
    WriteWholeFile(dir.path() / "file", V3FixtureBytes(name));
    INFO("fixture " << name);
    const ordered_json report = Report(StatProgram(), dir.path() / "file");
    CHECK(InWordsOfMdbStat(report, MdbStatVersion::k10) == Comparable(V3FixtureText(name, "stat")));
    CHECK(report["environment"]["data_version"] == 3);
  }
}

uint64_t LineCount(const ordered_json& report) {
  uint64_t count = report.is_array() ? 0 : report.size();
  for (const ordered_json& member : report) {
    if (member.is_structured()) count += LineCount(member);
  }
  return count;
}

TEST_CASE("lmdbio-stat without --json prints the same figures as text", "[tools]") {
  const TempDir dir;
  const Fixture fixture = WriteFixture(FindFixture("named"), dir.path());
  const CommandResult words = Run(StatProgram(), dir.path());
  const ordered_json report = Report(StatProgram(), dir.path());
  CHECK(words.exit_code == 0);
  CHECK(words.errors.empty());
  CHECK(words.output.starts_with("environment\n  data file "));
  CHECK(static_cast<uint64_t>(std::ranges::count(words.output, '\n')) == LineCount(report));
  CHECK(words.output.find(" dupsort dupfixed\n") != std::string::npos);
}

// A database with records of two pages each, put in the order of `numbers`.
ordered_json OrderOf(const std::vector<uint64_t>& numbers) {
  const TempDir dir;
  TinyDb db(dir.path());
  for (const uint64_t number : numbers)
    db.Put(fmt::format("{:06}", number), std::string(6000, 'v'));
  db.Commit();
  return Report(StatProgram(), dir.path())["main"]["steps_in_key_order_percent"];
}

TEST_CASE("lmdbio-stat distinguishes an ordered load from a random one", "[tools]") {
  std::vector<uint64_t> numbers(3000);
  for (uint64_t i = 0; i < numbers.size(); ++i) numbers[i] = i;
  const ordered_json ordered = OrderOf(numbers);
  Random(11).Shuffle(numbers);
  const ordered_json random = OrderOf(numbers);

  for (const ordered_json& steps : {ordered, random}) {
    const double sum = steps["adjacent"].get<double>() + steps["backward"].get<double>() +
                       steps["forward_farther"].get<double>() +
                       steps["forward_within_64_kib"].get<double>();
    CHECK(sum == Approx(100).margin(0.03));
  }
  // A new leaf page lies between two runs from time to time.
  CHECK(ordered["adjacent"] > 90.0);
  CHECK(ordered["forward_farther"] == 0.0);
  CHECK(ordered["backward"] == 0.0);
  // Steps go forwards and backwards with equal probability.
  CHECK(random["adjacent"] < 1.0);
  CHECK(random["forward_farther"] == Approx(50).margin(3));
  CHECK(random["backward"] == Approx(50).margin(3));
}

TEST_CASE("lmdbio-stat reports whether provenance exists and fits", "[tools]") {
  const TempDir dir;
  TinyDb db(dir.path());
  db.Put("key", "value").Commit();
  const auto provenance = [&] { return Report(StatProgram(), dir.path())["main"]["provenance"]; };

  CHECK(provenance() == ordered_json{{"state", "none"}});
  const ordered_json made = Report(ProvenanceProgram("create"), dir.path());
  CHECK(provenance() ==
        ordered_json{{"state", "fits"}, {"file_size_bytes", made["provenance_bytes"]}});
  db.Put("key", "other").Commit();
  CHECK(provenance()["state"] == "does not fit");
  CHECK(provenance()["reason"].get<std::string>().find("transaction id is 2") != std::string::npos);
  WriteWholeFile(made["provenance"].get<std::string>(), AsBytes("no provenance"));
  CHECK(provenance()["state"] == "unreadable");
}

}  // namespace
}  // namespace lmdbio::test
