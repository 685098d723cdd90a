// Goal: while a writer commits, a program reports one state of the database, or that the database
// changed, but never a mixture of states. Method: a child process commits continuously. Each
// transaction changes random records and one record that describes the new state. A dump is sound
// if it agrees with that record.

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <new>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "tests/fixtures/dump_oracle.h"
#include "tests/fixtures/tiny_db.h"
#include "tests/support/catch.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/program.h"

namespace lmdbio::test {
namespace {

constexpr const char* kStateKey = "state";

// kTree: changes and deletes random records of several sizes. Pages are reused for others, so a
// mixture of states looks like damage. kValues: always changes the same last records without their
// sizes. The same leaves return to the same pages, so a mixture looks like a sound tree.
enum class Changes { kTree, kValues };

uint64_t HashOf(const std::string& key, const std::string& value) {
  return std::hash<std::string>()(key + '=' + value);
}

// The records and their description: transaction, number of records, and sum of their hashes.
class ChangingRecords {
 public:
  explicit ChangingRecords(Changes changes) : changes_(changes) {}

  // Changes records and commits them with their new description.
  void Commit(TinyDb& db, uint64_t transaction) {
    constexpr uint64_t kKeyCount = 3000;
    const bool is_all = transaction == 1;
    const uint64_t change_count = is_all ? kKeyCount : changes_ == Changes::kTree ? 20 : 300;
    for (uint64_t i = 0; i < change_count; ++i) {
      const bool is_anywhere = changes_ == Changes::kTree && !is_all;
      Change(db, is_anywhere ? random_.Below(kKeyCount) : kKeyCount - 1 - i, transaction);
    }
    db.Put(kStateKey, fmt::format("{:020} {} {:020}", transaction, records_.size(), hash_sum_));
    db.Commit();
  }

 private:
  void Change(TinyDb& db, uint64_t number, uint64_t transaction) {
    const std::string key = fmt::format("{:06}", number);
    const auto found = records_.find(key);
    if (found != records_.end()) hash_sum_ -= HashOf(key, found->second);
    if (changes_ == Changes::kTree && found != records_.end() && random_.Below(5) == 0) {
      db.Delete(key);
      records_.erase(found);
      return;
    }
    const bool is_long = changes_ == Changes::kTree && random_.Below(8) == 0;
    std::string value = fmt::format("{:0{}}", transaction, is_long ? 6000 : 300);
    db.Put(key, value);
    hash_sum_ += HashOf(key, value);
    records_[key] = std::move(value);
  }

  Changes changes_;
  Random random_{1};
  std::map<std::string, std::string> records_;
  uint64_t hash_sum_ = 0;
};

// The description that the records of a dump must have.
std::string Describe(const DumpedDatabase& dump) {
  uint64_t hash_sum = 0;
  uint64_t count = 0;
  std::string transaction;
  for (const auto& [key, value] : dump.records) {
    if (key == kStateKey) {
      transaction = value.substr(0, value.find(' '));
    } else {
      hash_sum += HashOf(key, value);
      ++count;
    }
  }
  return fmt::format("{} {} {:020}", transaction, count, hash_sum);
}

// A child process that commits until the destructor ends it.
class LiveWriter {
 public:
  LiveWriter(const std::filesystem::path& directory, Changes changes) {
    void* const shared = ::mmap(nullptr, sizeof(*pause_us_), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(shared != MAP_FAILED);
    pause_us_ = new (shared) std::atomic<int>(0);
    child_ = ::fork();
    REQUIRE(child_ >= 0);
    if (child_ == 0) Write(directory, changes);
    while (!std::filesystem::exists(directory / "ready")) std::this_thread::yield();
  }
  ~LiveWriter() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    ::munmap(pause_us_, sizeof(*pause_us_));
  }
  LiveWriter(const LiveWriter&) = delete;
  LiveWriter& operator=(const LiveWriter&) = delete;

  // The pause between two commits in microseconds.
  void set_pause_us(int pause_us) { *pause_us_ = pause_us; }

 private:
  [[noreturn]] void Write(const std::filesystem::path& directory, Changes changes) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      TinyDb db(directory);
      ChangingRecords records(changes);
      for (uint64_t transaction = 1;; ++transaction) {
        records.Commit(db, transaction);
        if (transaction == 50) std::filesystem::create_directory(directory / "ready");
        std::this_thread::sleep_for(std::chrono::microseconds(pause_us_->load()));
      }
    } catch (...) {
      ::_exit(1);
    }
  }

  std::atomic<int>* pause_us_ = nullptr;
  pid_t child_ = -1;
};

struct Outcomes {
  int told_count = 0;
  int changed_count = 0;
};

// Runs the program once. Returns: its output; "" if it reported that the database changed
std::string RunOnce(const Program& program, const std::filesystem::path& path, Outcomes& outcomes,
                    const std::vector<std::string>& options = {}) {
  CommandResult result = Run(program, path, options);
  if (result.exit_code == 0) {
    REQUIRE(result.errors.empty());
    ++outcomes.told_count;
    return result.output;
  }
  REQUIRE_FALSE(result.output.ends_with("DATA=END\n"));
  if (program.name == "lmdbio-dump") result.output.clear();
  const bool is_other_state =
      program.words.back() == "verify" &&
      FlawOfFailure(result, program, ", the provenance file was made for ") == "";
  if (!is_other_state) REQUIRE(FlawOfFailure(result, program, "changed while it was being") == "");
  ++outcomes.changed_count;
  return "";
}

// The pauses of the writer, each for a number of runs. With the shortest almost every run fails,
// with the longest almost every run succeeds, on any machine.
void ForEveryPause(LiveWriter& writer, int runs_each, const std::function<void()>& run) {
  for (const int pause_us : {0, 300, 1000, 3000, 10000, 100000, 2000000}) {
    INFO("pause " << pause_us << " us");
    writer.set_pause_us(pause_us);
    for (int i = 0; i < runs_each; ++i) run();
  }
}

// Continues until one run succeeds, because the scheduler may favour either process.
void RunUntilTold(LiveWriter& writer, const Outcomes& outcomes, const std::function<void()>& run) {
  writer.set_pause_us(2000000);
  for (int i = 0; i < 100 && outcomes.told_count == 0; ++i) run();
  CHECK(outcomes.told_count > 0);
}

// Continues until the writer disturbs one run, because otherwise the test would prove nothing.
void RunUntilChanged(LiveWriter& writer, const Outcomes& outcomes,
                     const std::function<void()>& run) {
  writer.set_pause_us(0);
  for (int i = 0; i < 1000 && outcomes.changed_count == 0; ++i) run();
  CHECK(outcomes.changed_count > 0);
}

TEST_CASE("lmdbio-dump never mixes the states of a database", "[tools][fault]") {
  const TempDir dir;
  LiveWriter writer(dir.path(), GENERATE(Changes::kTree, Changes::kValues));
  Outcomes outcomes;
  const auto run = [&] {
    const std::string text = RunOnce(DumpProgram(), dir.path(), outcomes);
    if (text.empty()) return;
    const std::vector<DumpedDatabase> dump = ParseDump(text);
    REQUIRE(dump.size() == 1);
    REQUIRE(dump[0].records.back().first == kStateKey);
    REQUIRE(dump[0].records.back().second == Describe(dump[0]));
  };
  ForEveryPause(writer, 8, run);
  RunUntilTold(writer, outcomes, run);
  RunUntilChanged(writer, outcomes, run);
}

TEST_CASE("lmdbio-stat never mixes the states of a database", "[tools][fault]") {
  const TempDir dir;
  LiveWriter writer(dir.path(), GENERATE(Changes::kTree, Changes::kValues));
  Outcomes outcomes;
  const auto run = [&] {
    const std::string text = RunOnce(StatProgram(), dir.path(), outcomes, {"--json"});
    if (text.empty()) return;
    const auto main = nlohmann::json::parse(text)["main"];
    uint64_t count = 0;
    for (const auto& bucket : main["sizes"]["records_by_value_bytes"]) {
      count += bucket.get<uint64_t>();
    }
    REQUIRE(main["entries"] == count);
  };
  ForEveryPause(writer, 8, run);
  RunUntilTold(writer, outcomes, run);
}

TEST_CASE("lmdbio-provenance never mixes the states of a database", "[tools][fault]") {
  const TempDir dir;
  LiveWriter writer(dir.path(), GENERATE(Changes::kTree, Changes::kValues));
  Outcomes created, verified;
  const auto run = [&] {
    const bool exists = !RunOnce(ProvenanceProgram("create"), dir.path(), created).empty() ||
                        std::filesystem::exists(dir.path() / "data.mdb.prov");
    if (exists) RunOnce(ProvenanceProgram("verify"), dir.path(), verified);
  };
  ForEveryPause(writer, 8, run);
  RunUntilTold(writer, created, run);
}

}  // namespace
}  // namespace lmdbio::test
