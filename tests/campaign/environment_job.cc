#include "tests/campaign/environment_job.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/file/writer/record_provenance.h"
#include "lmdbio/load/loader/loader.h"
#include "lmdbio/ranks/launcher/launched_group.h"
#include "lmdbio/sync/engine/synchronizer.h"
#include "tests/fixtures/lmdb_oracle.h"
#include "tests/fixtures/tiny_db.h"
#include "tests/support/random.h"
#include "tests/support/run_command.h"

namespace lmdbio::test {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kRecordCount = 1536;
constexpr uint64_t kBatchSize = 64;
constexpr uint64_t kEpochs = 2;
constexpr uint64_t kMadeCount = 500;  // records that lmdbio-make writes
constexpr int64_t kFloatCount = 100'003;
constexpr int kReduceCalls = 20;

std::string JobKey(uint64_t record) { return fmt::format("{:08}", record); }

std::string JobValue(uint64_t record) { return Random(record).BytesOf(50 + (record * 997) % 6000); }

bool IsRecord(uint64_t record, Bytes key, Bytes value) {
  const auto is = [](Bytes bytes, const std::string& text) {
    return bytes.size() == text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
  };
  return is(key, JobKey(record)) && is(value, JobValue(record));
}

[[noreturn]] void ThrowWrong(const std::string& words) { throw std::runtime_error(words); }

// The share of this rank in the next batch: its records in key order, each with its bytes.
void CheckBatch(const load::Batch& batch, uint64_t number, const ranks::Launch& launch) {
  const uint64_t share = kBatchSize / static_cast<uint64_t>(launch.size);
  const uint64_t first = number * kBatchSize + share * static_cast<uint64_t>(launch.rank);
  if (batch.record_count() != share) {
    ThrowWrong(fmt::format("batch {} has {} records", number, batch.record_count()));
  }
  for (size_t i = 0; i < share; ++i) {
    if (batch.position(i) == first + i &&
        IsRecord((first + i) % kRecordCount, batch.key(i), batch.value(i))) {
      continue;
    }
    ThrowWrong(fmt::format("batch {}: record {} is wrong", number, i));
  }
}

JobResult Load(const JobPlace& place, const ranks::Launch& launch, load::Strategy strategy) {
  LMDBIO_TRY(const auto group, ranks::LaunchedGroup(launch));
  load::LoaderOptions options;
  options.strategy = strategy;
  options.layout_cache = "off";
  options.global_batch_size = kBatchSize;
  options.max_batches = kEpochs * kRecordCount / kBatchSize;
  LMDBIO_TRY(const auto loader, load::Loader::Open(*group, place.database.string(), options));
  std::string notes;
  uint64_t number = 0;
  for (;; ++number) {
    LMDBIO_TRY(const bool found, loader->Next());
    for (const std::string& note : loader->TakeNotes()) notes += note + "; ";
    if (!found) break;
    CheckBatch(loader->batch(), number, launch);
  }
  if (number != options.max_batches) ThrowWrong(fmt::format("{} batches came", number));
  return notes;
}

JobResult Reduce(const JobPlace& /*place*/, const ranks::Launch& launch) {
  LMDBIO_TRY(const auto group, ranks::LaunchedGroup(launch));
  std::string notes;
  sync::SyncParts parts;
  parts.log = [&notes](const std::string& line) { notes += line + "; "; };
  LMDBIO_TRY(const auto synchronizer, sync::Synchronizer::Create(*group, {}, std::move(parts)));
  std::vector<float> values(kFloatCount);
  for (int call = 0; call < kReduceCalls; ++call) {
    const auto mine = static_cast<float>(launch.rank + 1);
    std::fill(values.begin(), values.end(), mine);
    LMDBIO_TRY(sync::Handle handle, synchronizer->Submit(sync::AllReduceOf(
                                        "gradient", values.data(), values.data(), kFloatCount)));
    LMDBIO_TRY_VOID(handle.Wait());
    float sum = 0;
    for (int rank = 0; rank < launch.size; ++rank) sum += static_cast<float>(rank + 1);
    if (!std::all_of(values.begin(), values.end(), [&](float one) { return one == sum; })) {
      ThrowWrong("a sum is wrong");
    }
  }
  LMDBIO_TRY_VOID(synchronizer->Shutdown());
  return notes;
}

// The output of a program of this build, whose errors are one line and an exit code of 1 or 2.
JobResult RunProgram(const JobPlace& place, std::vector<std::string> words) {
  words.front() = (place.programs / words.front()).string();
  CommandResult result;
  try {
    result = RunCommand(words);
  } catch (const std::runtime_error& failure) {
    throw NotHere(failure.what());
  }
  if (result.exit_code == 0) return std::move(result.output);
  const bool is_one_line = std::count(result.errors.begin(), result.errors.end(), '\n') == 1;
  if (result.exit_code > 2 || !is_one_line) {
    ThrowWrong(fmt::format("{} ends with {}: {}", words.front(), result.exit_code, result.errors));
  }
  result.errors.pop_back();
  return Fail(ErrorCode::kIo, result.errors);
}

// A database is whole, or it is not there.
JobResult Make(const JobPlace& place, const ranks::Launch& /*launch*/) {
  const fs::path made = place.folder / "made";
  JobResult result = RunProgram(place, {"lmdbio-make", "synthetic", made.string(), "--count",
                                        std::to_string(kMadeCount), "--value-size", "3000"});
  if (!result) return result;
  const uint64_t count = LmdbStat(made / "data.mdb").ms_entries;
  if (count != kMadeCount) ThrowWrong(fmt::format("{} records were made", count));
  fs::remove_all(made);
  return "";
}

JobResult Dump(const JobPlace& place, const ranks::Launch& /*launch*/) {
  LMDBIO_TRY(const std::string text,
             RunProgram(place, {"lmdbio-dump", "-p", place.database.string()}));
  size_t place_of_key = 0;
  for (uint64_t i = 0; i < kRecordCount; ++i) {
    place_of_key = text.find(JobKey(i), place_of_key);
    if (place_of_key == std::string::npos) ThrowWrong("a key is missing in the dump");
  }
  return "";
}

JobResult Stat(const JobPlace& place, const ranks::Launch& /*launch*/) {
  LMDBIO_TRY(const std::string text, RunProgram(place, {"lmdbio-stat", place.database.string()}));
  if (text.find(std::to_string(kRecordCount)) == std::string::npos) ThrowWrong("a wrong count");
  return "";
}

bool NeedsProvenance(load::Strategy strategy) {
  return load::CompositionOf(strategy).locating == load::LocateMethod::kProvenance;
}

EnvironmentJob LoadJob(const load::StrategyTraits& traits, int rank_count, bool has_provenance) {
  EnvironmentJob job;
  job.name = fmt::format("{}{}.np{}", traits.name, has_provenance ? ".provenance" : "", rank_count);
  job.rank_count = rank_count;
  job.has_provenance = has_provenance;
  job.is_refused_anywhere = NeedsProvenance(traits.strategy) && !has_provenance;
  job.has_bare_map = traits.strategy == load::Strategy::kLmdb;
  job.run = [strategy = traits.strategy](const JobPlace& place, const ranks::Launch& launch) {
    return Load(place, launch, strategy);
  };
  return job;
}

}  // namespace

std::vector<EnvironmentJob> EnvironmentJobs() {
  std::vector<EnvironmentJob> jobs;
  for (const load::StrategyTraits& traits : load::kStrategies) {
    for (const int rank_count : {1, 2, 8}) {
      for (const bool has_provenance : {false, true}) {
        const EnvironmentJob job = LoadJob(traits, rank_count, has_provenance);
        if (!job.is_refused_anywhere || rank_count == 2) jobs.push_back(job);
      }
    }
  }
  jobs.push_back({.name = "sync.np2", .rank_count = 2, .run = Reduce});
  jobs.push_back({.name = "lmdbio-make", .is_program = true, .run = Make});
  jobs.push_back({.name = "lmdbio-dump", .is_program = true, .run = Dump});
  jobs.push_back({.name = "lmdbio-stat", .is_program = true, .run = Stat});
  return jobs;
}

void WriteJobDatabases(const fs::path& folder) {
  for (const char* name : {"plain", "provenance"}) {
    const fs::path place = folder / name;
    fs::remove_all(place);
    fs::create_directories(place);
    TinyDb db(place);
    for (uint64_t i = 0; i < kRecordCount; ++i) db.Put(JobKey(i), JobValue(i));
    db.Commit();
  }
  const auto recorded = file::RecordProvenance({(folder / "provenance").string(), {}, {}, {}});
  if (!recorded) throw std::runtime_error(recorded.error().message());
}

}  // namespace lmdbio::test
