// Question: how long does it take to find the location of every record of a cold file, and how much
// of the file must be read, compared with a pass of liblmdb's cursor?
//
// State: cold. The pages of the file are dropped from the page cache before every repetition (not
// timed); the share that stayed is printed.
#include <chrono>

#include "bench/bench_support.h"
#include "lmdbio/file/layout/layout.h"
#include "lmdbio/file/layout/page_walk.h"
#include "lmdbio/file/source/file_source.h"

namespace lmdbio::bench {
namespace {

struct WalkedLayout {
  uint64_t record_count = 0;
  uint64_t requested_bytes = 0;
};

Result<WalkedLayout> Walk(const std::string& data_path) {
  LMDBIO_TRY(const auto source, file::FileSource::Open(data_path));
  // The walk skips overflow pages. Read-ahead of the kernel would fetch them from the cold storage.
  source->Advise(AccessPattern::kRandom);
  LMDBIO_TRY(const file::Environment environment, file::Environment::Open(*source));
  file::LayoutBuilder builder;
  LMDBIO_TRY_VOID(file::WalkDatabase(environment.Main(), builder));
  return WalkedLayout{builder.Finish().record_count(), source->counters().bytes};
}

// Times `work` with a cold cache, and counts the bytes that storage delivers.
template <typename Work>
void RunCold(benchmark::State& state, const std::string& data_path, Work work) {
  for (auto _ : state) {
    state.counters["warm share"] = EvictFromCache(data_path);
    // The count of the kernel includes the page faults of liblmdb's map, so both ways are
    // comparable. "MB requested" counts only what the walk asked for.
    const uint64_t before = StorageBytesRead();
    const auto begin = std::chrono::steady_clock::now();
    work(state);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    state.SetIterationTime(took.count());
    state.counters["MB from storage"] = static_cast<double>(StorageBytesRead() - before) / 1e6;
  }
}

void Register(const BenchOptions& options, const DatabaseSpec& spec) {
  const std::string path = DatabaseFor(options, spec);
  const std::string data_path = path + "/data.mdb";
  benchmark::RegisterBenchmark((spec.name + "/liblmdb cursor, touching values").c_str(),
                               [=](benchmark::State& state) {
                                 RunCold(state, data_path, [&](benchmark::State&) {
                                   benchmark::DoNotOptimize(ScanWithLmdb(path));
                                 });
                               })
      ->UseManualTime()
      ->Iterations(1);
  benchmark::RegisterBenchmark((spec.name + "/lmdbio page walk to layout").c_str(),
                               [=](benchmark::State& state) {
                                 RunCold(state, data_path, [&](benchmark::State& inner) {
                                   const Result<WalkedLayout> walked = Walk(data_path);
                                   if (!walked || walked->record_count != spec.record_count) {
                                     inner.SkipWithError("the page walk failed");
                                     return;
                                   }
                                   inner.counters["MB requested"] =
                                       static_cast<double>(walked->requested_bytes) / 1e6;
                                 });
                               })
      ->UseManualTime()
      ->Iterations(1);
}

}  // namespace
}  // namespace lmdbio::bench

int main(int argc, char** argv) {
  using namespace lmdbio::bench;
  const BenchOptions options = ParseOptions(argc, argv);
  Register(options, {"3080 B in order", options.is_tiny ? 500U : 300'000U, FixedSize(3080)});
  Register(options, {"196700 B in order", options.is_tiny ? 20U : 5'000U, FixedSize(196'700)});
  return RunAndCompare(argc, argv, options.is_tiny ? 2 : 7);
}
