// Question: how fast does one thread go through all records of a file in the page cache, touching
// every value, compared with liblmdb's cursor?
//
// State: warm; a pass over the file precedes each variant. Every repetition opens the file again,
// as liblmdb does, so page faults count for both.
//
// The raw rows sum all bytes of the file in order, without records. They are the limit of a map and
// of explicit reads. A cursor may be faster, because it skips unused bytes.
#include <algorithm>
#include <memory>
#include <vector>

#include "bench/bench_support.h"
#include "lmdbio/file/layout/cursor.h"
#include "lmdbio/file/source/file_source.h"
#include "lmdbio/file/source/map_source.h"
#include "lmdbio/file/source/read_ahead_source.h"

namespace lmdbio::bench {
namespace {

using file::Cursor;
using file::Environment;

Result<uint64_t> ScanWithCursor(const ByteSource& source) {
  source.Advise(AccessPattern::kSequential);
  LMDBIO_TRY(const Environment environment, Environment::Open(source));
  Cursor cursor(environment.Main());
  uint64_t sum = 0;
  LMDBIO_TRY(bool found, cursor.First());
  while (found) {
    LMDBIO_TRY(const Bytes value, cursor.Value());
    sum += SumWords(value);
    LMDBIO_TRY(found, cursor.Next());
  }
  return sum;
}

// Large enough to make the cost of a call small, and small enough to stay in the processor's cache
// until it is summed.
constexpr uint64_t kRawReadBytes = 256 << 10;

template <typename Source>
Result<uint64_t> SumFile(const std::string& path) {
  LMDBIO_TRY(const auto source, Source::Open(path + "/data.mdb"));
  source->Advise(AccessPattern::kSequential);
  LMDBIO_TRY(const uint64_t size_bytes, source->SizeBytes());
  std::vector<std::byte> buffer(kRawReadBytes);
  uint64_t sum = 0;
  for (uint64_t at = 0; at < size_bytes; at += kRawReadBytes) {
    LMDBIO_TRY(const Bytes bytes,
               source->Read({at, std::min(kRawReadBytes, size_bytes - at)}, buffer));
    sum += SumWords(bytes);
  }
  return sum;
}

template <typename Source>
void SumFileWith(benchmark::State& state, const std::string& path) {
  Result<uint64_t> sum = SumFile<Source>(path);
  if (!sum) state.SkipWithError(sum.error().message().c_str());
  benchmark::DoNotOptimize(sum);
}

template <typename Source>
uint64_t ScanWith(benchmark::State& state, const std::string& path) {
  const auto source = Source::Open(path + "/data.mdb");
  if (!source) {
    state.SkipWithError(source.error().message().c_str());
    return 0;
  }
  const Result<uint64_t> sum = ScanWithCursor(**source);
  if (!sum) state.SkipWithError(sum.error().message().c_str());
  return sum ? *sum : 0;
}

void Register(const BenchOptions& options, const DatabaseSpec& spec, Agreement& agreement) {
  const std::string path = DatabaseFor(options, spec);
  // This pass fills the page cache, and its sum is the expected one of every variant.
  agreement.Check(spec.name, ScanWithLmdb(path));
  const auto add_work = [&](const char* way, auto work) {
    benchmark::RegisterBenchmark((spec.name + "/" + way).c_str(),
                                 [=](benchmark::State& state) {
                                   for (auto _ : state) work(state);
                                 })
        ->UseRealTime()
        ->Iterations(1);
  };
  const auto add = [&](const char* way, auto scan) {
    add_work(way, [=, &agreement](benchmark::State& state) {
      const uint64_t sum = scan(state);
      if (!state.error_occurred()) agreement.Check(way, sum);
    });
  };
  add("liblmdb cursor", [path](benchmark::State&) { return ScanWithLmdb(path); });
  add("lmdbio cursor, map",
      [path](benchmark::State& state) { return ScanWith<file::MapSource>(state, path); });
  add("lmdbio cursor, read-ahead",
      [path](benchmark::State& state) { return ScanWith<file::ReadAheadSource>(state, path); });
  add("lmdbio cursor, pread",
      [path](benchmark::State& state) { return ScanWith<file::FileSource>(state, path); });
  add_work("raw: every byte, map",
           [path](benchmark::State& state) { SumFileWith<file::MapSource>(state, path); });
  add_work("raw: every byte, pread of 256 KiB",
           [path](benchmark::State& state) { SumFileWith<file::FileSource>(state, path); });
}

}  // namespace
}  // namespace lmdbio::bench

int main(int argc, char** argv) {
  using namespace lmdbio::bench;
  const BenchOptions options = ParseOptions(argc, argv);
  Agreement small;
  Agreement in_leaves;
  Agreement in_overflow;
  Register(options, {"values in leaves, 74 B", options.is_tiny ? 500U : 5'000'000U, FixedSize(74)},
           small);
  Register(options,
           {"values in leaves, 784 B", options.is_tiny ? 500U : 1'000'000U, FixedSize(784)},
           in_leaves);
  Register(options,
           {"values in overflow pages, 3080 B", options.is_tiny ? 500U : 300'000U, FixedSize(3080)},
           in_overflow);
  return RunAndCompare(argc, argv, options.is_tiny ? 2 : 9);
}
