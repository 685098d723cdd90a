// first_batches: looks for options with which the first batch takes long.
//
//   first_batches [--small|--large|--huge] [--first-seed N] [--seeds N] [--limit SECONDS] FOLDER
//
// Each seed draws a database of FOLDER (written at the first run), a number of ranks and options.
// The first batch must come within --limit seconds (1) of processor time: work that grows faster
// than the records of a slot shows there, whatever the storage and other processes do. Exits with 1
// if a batch took longer, or if options do not explain an error.
//
// Method: the ranks are threads, in several hosts of one process.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/load/loader/loader.h"
#include "lmdbio/load/plan/option_text.h"
#include "lmdbio/ranks/group/thread_group.h"
#include "tests/campaign/campaign_databases.h"
#include "tests/campaign/campaign_run.h"
#include "tests/campaign/random_options.h"
#include "tests/support/random.h"

namespace lmdbio::test {
namespace {

constexpr unsigned kHangSeconds = 60;
constexpr size_t kSlowestShown = 5;

// The result of a seed.
struct FirstBatch {
  uint64_t seed = 0;
  double cpu_s = 0;  // of the process
  double wall_s = 0;
  std::string words;                      // database, ranks and options
  std::string error;                      // of the first rank that has one
  ErrorCode code = ErrorCode::kInternal;  // of the error

  std::string Words() const {
    return fmt::format("seed {}: {:.3f} s of processor time, {:.3f} s: {}; {}", seed, cpu_s, wall_s,
                       error.empty() ? "a batch" : error, words);
  }
};

double ProcessCpuSeconds() {
  timespec time = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

FirstBatch Try(uint64_t seed, const std::vector<CampaignDatabase>& databases) {
  Random random(seed);
  const CampaignDatabase& database = databases[random.Below(databases.size())];
  const auto rank_count = static_cast<int>(random.Between(1, 4));
  const auto ranks_per_host = static_cast<int>(random.Between(1, 4));
  const load::LoaderOptions options = RandomOptions(random);
  FirstBatch first;
  first.seed = seed;
  first.words = fmt::format("{}, {} ranks, {} on a host, {}", database.name, rank_count,
                            ranks_per_host, load::OptionsJson(options));
  std::vector<std::string> errors(static_cast<size_t>(rank_count));
  std::vector<ErrorCode> codes(static_cast<size_t>(rank_count), ErrorCode::kPeerFailed);
  std::vector<double> cpu_s(static_cast<size_t>(rank_count));
  const double cpu_before = ProcessCpuSeconds();
  const auto start = std::chrono::steady_clock::now();
  ranks::RunAsThreads({rank_count, ranks_per_host}, [&](ranks::Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    auto loader = load::Loader::Open(group, database.data_file.string(), options);
    Result<bool> next = loader ? (*loader)->Next() : Result<bool>(false);
    cpu_s[rank] = ProcessCpuSeconds() - cpu_before;
    const Error* const error = !loader ? &loader.error() : !next ? &next.error() : nullptr;
    if (error == nullptr) return;
    errors[rank] = error->message();
    codes[rank] = error->code();
  });
  first.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  first.cpu_s = *std::max_element(cpu_s.begin(), cpu_s.end());
  // The error of a peer says less than that of the rank itself.
  for (size_t rank = 0; rank < errors.size(); ++rank) {
    if (errors[rank].empty()) continue;
    if (!first.error.empty() && first.code != ErrorCode::kPeerFailed) continue;
    first.error = errors[rank];
    first.code = codes[rank];
  }
  return first;
}

struct FirstBatchesOptions {
  std::string folder;
  DatabaseScale scale = DatabaseScale::kLarge;
  double limit_s = 1;
};

FirstBatchesOptions OptionsOf(const std::vector<std::string_view>& words) {
  FirstBatchesOptions options;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--small") {
      options.scale = DatabaseScale::kSmall;
    } else if (words[i] == "--large") {
      options.scale = DatabaseScale::kLarge;
    } else if (words[i] == "--huge") {
      options.scale = DatabaseScale::kHuge;
    } else if (words[i] == "--limit" && i + 1 < words.size()) {
      options.limit_s = std::stod(std::string(words[++i]));
    } else {
      options.folder = words[i];
    }
  }
  return options;
}

// Keeps the slowest.
void Rank(std::vector<FirstBatch>& slowest, FirstBatch first) {
  slowest.push_back(std::move(first));
  std::sort(slowest.begin(), slowest.end(),
            [](const auto& a, const auto& b) { return a.cpu_s > b.cpu_s; });
  if (slowest.size() > kSlowestShown) slowest.pop_back();
}

int Run(const CampaignArguments& arguments) {
  const FirstBatchesOptions options = OptionsOf(arguments.rest);
  if (options.folder.empty()) {
    std::fputs("first_batches: expected a folder for the databases\n", stderr);
    return 2;
  }
  const auto databases = CampaignDatabases(options.folder, options.scale);
  std::vector<FirstBatch> slowest;
  uint64_t delivered_count = 0;
  const uint64_t finding_count =
      RunSeeds(arguments, options.folder, kHangSeconds, [&](uint64_t seed) {
        FirstBatch first = Try(seed, databases);
        if (first.error.empty()) ++delivered_count;
        const bool is_slow = first.cpu_s > options.limit_s;
        const bool is_wrong = !first.error.empty() && !IsRefusal(first.code);
        std::string finding;
        if (is_slow || is_wrong) finding = first.Words();
        Rank(slowest, std::move(first));
        return finding;
      });
  fmt::print("{} seeds from {} on: {} first batches, {} refused or failed, {} findings\n",
             arguments.seed_count, arguments.first_seed, delivered_count,
             arguments.seed_count - delivered_count, finding_count);
  for (const FirstBatch& first : slowest) fmt::print("slow: {}\n", first.Words());
  return finding_count > 0 ? 1 : 0;
}

}  // namespace
}  // namespace lmdbio::test

int main(int argc, char** argv) {
  try {
    return lmdbio::test::Run(lmdbio::test::ReadArguments(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "first_batches: %s\n", error.what());
    return 2;
  }
}
