// compare_lmdb PATH [ROUNDS]: compares liblmdb with lmdbio's loader, in records per second of one
// process: from storage (cold) and from the page cache (warm), in order and shuffled.
//
// Both readers touch every byte of every value. The time of a pass includes opening the database. A
// pass ends after all records or kPassSeconds. liblmdb runs with the kernel's read-ahead and
// without (MDB_NORDAHEAD). For shuffled passes it gets a list of all keys in random order; the time
// for that list does not count. The readers take turns, so that other load affects all of them.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/loader/bench_cache.h"
#include "examples/lmdb_reader.h"
#include "lmdbio/file/io/data_path.h"
#include "lmdbio/load/loader/loader.h"

namespace {

using examples::LmdbReader;
using examples::Pass;
using examples::Timed;
using lmdbio::ErrorCode;
using lmdbio::Fail;
using lmdbio::Result;
using lmdbio::Status;
using lmdbio::load::Order;
using lmdbio::tools::CacheState;

constexpr double kPassSeconds = 4;
constexpr uint64_t kBatchRecords = 256;

struct Row {
  CacheState state;
  Order order;
  const char* name;
};
constexpr std::array<Row, 4> kRows = {{{lmdbio::tools::kCold, Order::kSequential, "cold, in order"},
                                       {lmdbio::tools::kCold, Order::kShuffle, "cold, shuffled"},
                                       {lmdbio::tools::kWarm, Order::kSequential, "warm, in order"},
                                       {lmdbio::tools::kWarm, Order::kShuffle, "warm, shuffled"}}};

struct Reader {
  const char* name;
  bool is_lmdbio;
  unsigned lmdb_flags;
};
constexpr std::array<Reader, 3> kReaders = {
    {{"liblmdb", false, 0}, {"liblmdb, NORDAHEAD", false, MDB_NORDAHEAD}, {"lmdbio", true, 0}}};

class Deadline {
 public:
  // The clock is read once for each batch.
  bool IsOver(uint64_t record_count) const {
    return record_count % kBatchRecords == 0 && Clock::now() >= end_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point end_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                              std::chrono::duration<double>(kPassSeconds));
};

Result<std::vector<std::string>> Keys(const std::string& data_path) {
  LmdbReader reader(data_path);
  if (reader.has_duplicates()) {
    return Fail(ErrorCode::kUnsupported,
                data_path + ": has several values for a key; liblmdb cannot read them shuffled");
  }
  std::vector<std::string> keys;
  for (;;) {
    LMDBIO_TRY(const bool found, reader.Next());
    if (!found) return keys;
    keys.emplace_back(reinterpret_cast<const char*>(reader.key().data()), reader.key().size());
  }
}

Result<Pass> ReadWithLmdb(const std::string& data_path, unsigned flags, Order order,
                          const std::vector<std::string>& shuffled_keys) {
  const Deadline deadline;
  Pass pass;
  LmdbReader reader(data_path, flags);
  while (pass.record_count < shuffled_keys.size() && !deadline.IsOver(pass.record_count)) {
    LMDBIO_TRY(const bool found, order == Order::kShuffle
                                     ? reader.Get(shuffled_keys[pass.record_count])
                                     : reader.Next());
    if (!found) return Fail(ErrorCode::kStale, data_path + ": the database has changed");
    pass.Add(reader.value());
  }
  return pass;
}

Result<Pass> ReadWithLoader(const std::string& path, Order order, uint64_t seed) {
  const Deadline deadline;
  lmdbio::load::LoaderOptions options;
  options.global_batch_size = kBatchRecords;
  options.tail = lmdbio::load::Tail::kShort;
  options.order = order;
  options.seed = seed;
  const auto group = lmdbio::ranks::SoloGroup();
  LMDBIO_TRY(const auto loader, lmdbio::load::Loader::Open(*group, path, options));
  Pass pass;
  do {
    LMDBIO_TRY_VOID(loader->Next());
    const lmdbio::load::Batch& batch = loader->batch();
    for (size_t i = 0; i < batch.record_count(); ++i) pass.Add(batch.value(i));
  } while (!loader->batch().ends_epoch() && !deadline.IsOver(pass.record_count));
  return pass;
}

// Passes over all records must have equal checksums.
Status CheckSame(const std::vector<Pass>& passes, uint64_t record_count) {
  const Pass* whole = nullptr;
  for (const Pass& pass : passes) {
    if (pass.record_count != record_count) continue;
    if (whole != nullptr && whole->word_sum != pass.word_sum) {
      return Fail(ErrorCode::kInternal, "two passes found different records");
    }
    whole = &pass;
  }
  return {};
}

double MedianRate(const std::vector<Pass>& passes) {
  std::vector<double> rates;
  for (const Pass& pass : passes) {
    rates.push_back(static_cast<double>(pass.record_count) / pass.seconds);
  }
  std::ranges::sort(rates);
  return rates[rates.size() / 2];
}

// state  receives the description of the cache state
Result<std::array<double, kReaders.size()>> Measure(const Row& row, const std::string& path,
                                                    int rounds, std::vector<std::string>& keys,
                                                    std::string& state) {
  LMDBIO_TRY(const std::string data_path, lmdbio::file::FindDataFile(path));
  const auto group = lmdbio::ranks::SoloGroup();
  std::array<std::vector<Pass>, kReaders.size()> passes;
  std::vector<Pass> all;
  std::mt19937_64 random(1);
  for (int round = 0; round < rounds; ++round) {
    std::ranges::shuffle(keys, random);
    for (size_t i = 0; i < kReaders.size(); ++i) {
      LMDBIO_TRY(state, lmdbio::tools::PrepareCache(*group, row.state, data_path));
      LMDBIO_TRY(const Pass pass, Timed([&] {
                   return kReaders[i].is_lmdbio
                              ? ReadWithLoader(path, row.order, static_cast<uint64_t>(round))
                              : ReadWithLmdb(data_path, kReaders[i].lmdb_flags, row.order, keys);
                 }));
      passes[i].push_back(pass);
      all.push_back(pass);
    }
  }
  LMDBIO_TRY_VOID(CheckSame(all, keys.size()));
  std::array<double, kReaders.size()> rates{};
  for (size_t i = 0; i < kReaders.size(); ++i) rates[i] = MedianRate(passes[i]);
  return rates;
}

Status Run(const std::string& path, int rounds) {
  LMDBIO_TRY(const std::string data_path, lmdbio::file::FindDataFile(path));
  LMDBIO_TRY(std::vector<std::string> keys, Keys(data_path));
  fmt::print("{}: {} records; records/s, median of {} passes of at most {} s each\n", path,
             keys.size(), rounds, kPassSeconds);
  fmt::print("{:<16}", "");
  for (const Reader& reader : kReaders) fmt::print("{:>20}", reader.name);
  fmt::print("{:>24}\n", "lmdbio / best liblmdb");
  std::array<std::string, 2> states;
  for (const Row& row : kRows) {
    std::string& state = states[row.state == lmdbio::tools::kWarm ? 1 : 0];
    LMDBIO_TRY(const auto rates, Measure(row, path, rounds, keys, state));
    fmt::print("{:<16}{:>20.0f}{:>20.0f}{:>20.0f}{:>24.2f}\n", row.name, rates[0], rates[1],
               rates[2], rates[2] / std::max(rates[0], rates[1]));
  }
  for (const std::string& state : states) fmt::print("{}\n", state);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc == 3 ? std::atoi(argv[2]) : 3;
  if (argc < 2 || argc > 3 || rounds < 1) {
    std::fprintf(stderr, "usage: compare_lmdb PATH [ROUNDS]\n");
    return 2;
  }
  const Status status = Run(argv[1], rounds);
  if (status) return 0;
  std::fprintf(stderr, "compare_lmdb: %s\n", status.error().message().c_str());
  return 1;
}
