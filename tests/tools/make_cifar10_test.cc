#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/make_tool.h"

namespace lmdbio::test {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPixelBytes = 3072;

// The six files of the binary version with a few records each, and their content.
class TinyCifar {
 public:
  explicit TinyCifar(fs::path directory) : directory_(std::move(directory)) {
    fs::create_directory(directory_);
    Random random(5);
    for (int batch = 1; batch <= 5; ++batch) {
      WriteBatch("data_batch_" + std::to_string(batch) + ".bin", 20 + batch, random, train);
    }
    WriteBatch("test_batch.bin", 7, random, test);
  }

  std::vector<std::pair<int, std::string>> train;  // label, pixels
  std::vector<std::pair<int, std::string>> test;

 private:
  void WriteBatch(const std::string& name, int record_count, Random& random,
                  std::vector<std::pair<int, std::string>>& part) {
    std::string bytes;
    for (int i = 0; i < record_count; ++i) {
      part.emplace_back(static_cast<int>(random.Below(10)), random.BytesOf(kPixelBytes));
      bytes += static_cast<char>(part.back().first) + part.back().second;
    }
    WriteWholeFile(directory_ / name, AsBytes(bytes));
  }

  fs::path directory_;
};

void CheckPart(const fs::path& data_file, const std::vector<std::pair<int, std::string>>& part) {
  const std::vector<CaffeRecord> records = CaffeRecords(data_file);
  REQUIRE(records.size() == part.size());
  for (size_t i = 0; i < records.size(); ++i) {
    const caffe::Datum& datum = records[i].datum;
    INFO("record " << i);
    REQUIRE(records[i].key.size() == 5);
    REQUIRE(std::stoul(records[i].key) == i);
    REQUIRE(records[i].value_bytes == 3083);  // the size in convert_cifar_data
    REQUIRE(datum.channels() == 3);
    REQUIRE(datum.height() == 32);
    REQUIRE(datum.width() == 32);
    REQUIRE(datum.label() == part[i].first);
    REQUIRE(datum.data() == part[i].second);
    REQUIRE_FALSE(datum.has_encoded());
  }
}

TEST_CASE("lmdbio-make cifar10 stores both parts", "[tools]") {
  const TempDir dir;
  const TinyCifar cifar(dir.path() / "in");
  const fs::path out = dir.path() / "out";

  const nlohmann::json outcome = Make({"cifar10", (dir.path() / "in").string(), out.string()});

  CHECK(outcome["train"]["records"] == 115);
  CHECK(outcome["train"]["transactions"] == 1);
  CHECK(outcome["test"]["records"] == 7);
  CheckPart(out / "cifar10_train_lmdb/data.mdb", cifar.train);
  CheckPart(out / "cifar10_test_lmdb/data.mdb", cifar.test);
}

TEST_CASE("lmdbio-make cifar10 refuses bad input before it writes a database", "[tools]") {
  const TempDir dir;
  const TinyCifar cifar(dir.path() / "in");
  const fs::path out = dir.path() / "out";
  const fs::path batch = dir.path() / "in/data_batch_3.bin";
  std::string message;
  SECTION("a missing file") {
    fs::remove(batch);
    message = "data_batch_3.bin: cannot be examined: No such file or directory";
  }
  SECTION("a short file") {
    fs::resize_file(batch, fs::file_size(batch) - 1);
    message = "data_batch_3.bin: 70678 bytes; expected a positive multiple of 3073";
  }
  SECTION("an empty file") {
    fs::resize_file(batch, 0);
    message = "data_batch_3.bin: 0 bytes";
  }
  SECTION("a folder in the place of a file") {
    fs::remove(batch);
    fs::create_directory(batch);
    message = "data_batch_3.bin: ";
  }

  const CommandResult result = RunMake({"cifar10", (dir.path() / "in").string(), out.string()});

  INFO(result.errors);
  CHECK(result.exit_code == 1);
  CHECK(result.errors.find(message) != std::string::npos);
  CHECK_FALSE(fs::exists(out));
}

TEST_CASE("lmdbio-make cifar10 names an impossible label", "[tools]") {
  const TempDir dir;
  const TinyCifar cifar(dir.path() / "in");
  const fs::path batch = dir.path() / "in/data_batch_2.bin";
  std::string bytes = ReadWholeTextFile(batch);
  bytes[2 * 3073] = 10;
  WriteWholeFile(batch, AsBytes(bytes));

  const CommandResult result =
      RunMake({"cifar10", (dir.path() / "in").string(), (dir.path() / "out").string()});

  CHECK(result.exit_code == 1);
  CHECK(result.errors.find(
            "data_batch_2.bin: record at byte 6146: label 10 is out of range; CIFAR-10 has 10") !=
        std::string::npos);
  CHECK(NamesIn(dir.path() / "out").empty());
}

TEST_CASE("lmdbio-make cifar10 does not change an existing database", "[tools]") {
  const TempDir dir;
  const TinyCifar cifar(dir.path() / "in");
  fs::create_directories(dir.path() / "out/cifar10_test_lmdb");

  const CommandResult result =
      RunMake({"cifar10", (dir.path() / "in").string(), (dir.path() / "out").string()});

  CHECK(result.exit_code == 1);
  CHECK(result.errors.find("cifar10_test_lmdb exists") != std::string::npos);
  CHECK(NamesIn(dir.path() / "out") == std::set<std::string>{"cifar10_test_lmdb"});
}

}  // namespace
}  // namespace lmdbio::test
