// Goal: the usual times of real transfers replace those of the trial, and those only.
#include "lmdbio/sync/schedule/transfer_log.h"

#include <vector>

#include "tests/support/catch.h"

namespace lmdbio::sync {
namespace {

using Samples = std::vector<TransferSample>;

void AddAll(TransferLog& log, uint64_t bytes, const std::vector<int64_t>& times) {
  for (const int64_t ns : times) log.Add({bytes, ns}, 0);
}

TEST_CASE("The median of a size counts, and replaces the trial near that size", "[transfer_log]") {
  TransferLog log;
  const Samples trial = {{1024, 10}, {4096, 20}, {8192, 25}, {16384, 40}, {65536, 160}};
  CHECK(log.Merge(trial) == trial);
  AddAll(log, 8192, {900, 70, 80});
  AddAll(log, 100'000, {500, 500});  // too few
  CHECK(log.Merge(trial) == Samples{{1024, 10}, {8192, 80}, {65536, 160}});
  AddAll(log, 100'000, {700});
  CHECK(log.Merge(trial) == Samples{{1024, 10}, {8192, 80}, {100'000, 500}});
  log.Clear();
  CHECK(log.Merge(trial) == trial);
}

TEST_CASE("A trial in another network is corrected by all sizes together", "[transfer_log]") {
  TransferLog log;
  const Samples trial = {{1000, 1000}, {2000, 2000}, {8000, 8000}};
  CHECK(log.Correct(trial) == trial);
  AddAll(log, 1000, {9999, 9999});  // too few
  CHECK(log.Correct(trial) == trial);
  AddAll(log, 2000, {3000, 3000, 3000});
  CHECK(log.Correct(trial) == Samples{{1000, 1500}, {2000, 3000}, {8000, 12'000}});
  // 23,000 instead of 10,000: large calls count for more.
  AddAll(log, 8000, {20'000, 20'000, 20'000});
  CHECK(log.Correct(trial) == Samples{{1000, 2300}, {2000, 4600}, {8000, 18'400}});
}

TEST_CASE("What is no model is not corrected, and no correction overflows", "[transfer_log]") {
  TransferLog log;
  AddAll(log, 1000, {3000, 3000, 3000});
  CHECK(log.Correct({{1000, 1000}}) == Samples{{1000, 1000}});
  CHECK(log.Correct({{1000, 1}, {2000, TransferModel::kPointNsMax}}) ==
        Samples{{1000, 1000}, {2000, TransferModel::kPointNsMax}});
  log.Clear();
  AddAll(log, 1000, {1, 1, 1});
  CHECK(log.Correct({{1000, 1'000'000}, {2000, 2'000'000}}) == Samples{{1000, 1}, {2000, 1}});
}

TEST_CASE("The latest times of a size count", "[transfer_log]") {
  TransferLog log;
  AddAll(log, 64, std::vector<int64_t>(100, 1));
  AddAll(log, 64, std::vector<int64_t>(TransferLog::kKeptTimes / 2 + 1, 9));
  CHECK(log.Merge({}) == Samples{{64, 9}});
}

TEST_CASE("A call counts when earlier calls have made up for the rests", "[transfer_log]") {
  constexpr int64_t kNs = 800;
  TransferLog log;
  // 100 ns are left before each call: an eighth.
  for (int i = 0; i < 3; ++i) log.Add({64, kNs}, 100);
  CHECK(log.Merge({}) == Samples{{64, kNs}});
  // 1,700 ns, then 900 and 100: only the last of three calls counts.
  for (int i = 0; i < 9; ++i) log.Add({128, kNs}, i % 3 == 0 ? 1700 : 0);
  CHECK(log.Merge({}) == Samples{{64, kNs}, {128, kNs}});
  for (int i = 0; i < 100; ++i) log.Add({256, kNs}, 101);
  CHECK(log.Merge({}).size() == 2);
  // A rest between calls that are shorter adds up, whatever was cleared.
  TransferLog other;
  for (int i = 0; i < 10; ++i) other.Add({64, 80}, 90);
  other.Clear();
  AddAll(other, 64, {100, 100, 100});
  CHECK(other.Merge({}).empty());
  AddAll(other, 64, {100});
  CHECK(other.Merge({}) == Samples{{64, 100}});
}

// 1 s of calls makes up for any rest.
TEST_CASE("A long rest counts as a second", "[transfer_log]") {
  constexpr int64_t kNs = 100'000'000;
  TransferLog log;
  for (const int64_t rest_ns : {kScheduleEndNs, TransferLog::kRestMaxNs + 1}) {
    log.Clear();
    log.Add({64, kNs}, rest_ns);
    for (int i = 0; i < 9; ++i) log.Add({64, kNs}, 0);
    CHECK(log.Merge({}).empty());
    AddAll(log, 64, {kNs, kNs});
    CHECK(log.Merge({}).empty());
    AddAll(log, 64, {kNs});
    CHECK(log.Merge({}) == Samples{{64, kNs}});
  }
}

TEST_CASE("Of too many sizes the first ones are kept", "[transfer_log]") {
  TransferLog log;
  for (uint64_t bytes = 1; bytes <= TransferLog::kKeptSizes + 10; ++bytes) {
    AddAll(log, bytes, {1, 1, 1});
  }
  CHECK(log.Merge({}).size() == TransferLog::kKeptSizes);
  AddAll(log, 1, std::vector<int64_t>(TransferLog::kKeptTimes, 5));
  CHECK(log.Merge({}).front() == TransferSample{1, 5});
}

}  // namespace
}  // namespace lmdbio::sync
