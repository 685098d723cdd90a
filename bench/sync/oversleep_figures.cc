// Draws what the background threads do when one of them oversleeps: figures 6.8, 6.9, 6.11 and 6.12
// of the dissertation. The pacing is that of the library, and time is virtual. So each run is the
// same on every machine, and takes no time.
//
// Source: dissertation 6.2.4, 6.3.1, 6.3.2.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include "lmdbio/base/check.h"
#include "lmdbio/file/source/small_file.h"
#include "lmdbio/sync/control/coordinator.h"
#include "lmdbio/sync/rounds/round_pacer.h"
#include "tests/sync/rounds/virtual_ranks.h"

namespace lmdbio {
namespace {

namespace po = boost::program_options;
using std::chrono::microseconds;
using test::VirtualRank;
using test::VirtualSpan;
using VirtualUse = VirtualSpan::VirtualUse;

struct FigureOptions {
  int rank_count = 2;
  int cycle_count = 12;
  uint32_t gs_cycles = 10;
  microseconds cycle_time{5000};  // the default of Horovod 0.16.3
  microseconds exchange_time{100};
  microseconds oversleep{2000};  // of the last rank, once
  int columns_per_cycle = 10;
};

struct Figure {
  const char* number;
  const char* pacing;
  bool has_oversleep;
  const char* caption;
};

constexpr Figure kFigures[] = {
    {"6.8", "cycle", false, "all threads wake up in time"},
    {"6.9", "cycle", true, "one thread oversleeps once, and the others wait for it ever after"},
    {"6.11", "gs", true, "the threads agree on a common sleep and meet again"},
    {"6.12", "nbcs", true, "the threads stay apart, but test and sleep instead of waiting"},
};

std::vector<std::unique_ptr<VirtualRank>> Run(const Figure& figure, const FigureOptions& options) {
  const test::VirtualJobOptions job{
      .rank_count = options.rank_count, .exchange_time = options.exchange_time, .keeps_core = true};
  return test::RunVirtualJob(job, [&](VirtualRank& rank) {
    const auto coordinator = std::move(*sync::Coordinator::Create({}, rank.ranks()));
    sync::RoundPacer pacer(
        rank, *coordinator,
        {.pacing = figure.pacing, .cycle_time = options.cycle_time, .gs_cycles = options.gs_cycles},
        [] { return Status(); }, rank);
    const bool is_last = rank.ranks().rank + 1 == options.rank_count;
    for (int cycle = 0; cycle < options.cycle_count; ++cycle) {
      if (cycle == 1 && is_last && figure.has_oversleep) rank.OversleepOnce(options.oversleep);
      LMDBIO_CHECK(pacer.SleepToNextCycle().has_value());
      LMDBIO_CHECK(pacer.Run().has_value());
    }
  });
}

// One character for each column of time: what the thread did for most of it.
std::string LineOf(const VirtualRank& rank, const FigureOptions& options) {
  const microseconds column = options.cycle_time / options.columns_per_cycle;
  const auto count = static_cast<size_t>((options.cycle_count + 1) * options.columns_per_cycle);
  std::string line;
  for (size_t i = 0; i < count; ++i) {
    const microseconds begin = column * static_cast<int64_t>(i);
    std::array<microseconds, 3> uses = {};
    for (const VirtualSpan& span : rank.spans()) {
      const microseconds shared = std::min(span.end, begin + column) - std::max(span.begin, begin);
      if (shared.count() > 0) uses[static_cast<size_t>(span.use)] += shared;
    }
    const auto most = std::ranges::max_element(uses);
    line += most->count() == 0 ? ' ' : ".oW"[most - uses.begin()];
  }
  return line;
}

nlohmann::json JsonOf(const VirtualRank& rank) {
  constexpr const char* kUses[] = {"sleep", "oversleep", "wait"};
  nlohmann::json spans = nlohmann::json::array();
  for (const VirtualSpan& span : rank.spans()) {
    spans.push_back({{"use", kUses[static_cast<size_t>(span.use)]},
                     {"begin_us", span.begin.count()},
                     {"end_us", span.end.count()}});
  }
  return spans;
}

int Draw(const FigureOptions& options, const std::string& save) {
  nlohmann::json all = nlohmann::json::array();
  fmt::print(
      "{} threads, cycle time {} us, an exchange takes {} us, an oversleep {} us; GS each "
      "{}th cycle\n. sleeps   o oversleeps   W waits in the exchange and keeps its core\n",
      options.rank_count, options.cycle_time.count(), options.exchange_time.count(),
      options.oversleep.count(), options.gs_cycles);
  for (const Figure& figure : kFigures) {
    const auto ranks = Run(figure, options);
    fmt::print("\nFigure {}, {}: {}\n", figure.number, figure.pacing, figure.caption);
    nlohmann::json threads = nlohmann::json::array();
    for (const auto& rank : ranks) {
      fmt::print("thread {} |{}| {:.1f} ms waiting\n", rank->ranks().rank, LineOf(*rank, options),
                 static_cast<double>(rank->TotalOf(VirtualUse::kWait).count()) / 1000);
      threads.push_back(JsonOf(*rank));
    }
    all.push_back({{"figure", figure.number}, {"pacing", figure.pacing}, {"threads", threads}});
  }
  if (save.empty()) return 0;
  const std::string text = all.dump(1) + "\n";
  const Status saved = file::WriteFileAtomically(save, std::as_bytes(std::span(text)));
  if (saved) return 0;
  fmt::print(stderr, "oversleep_figures: {}\n", saved.error().message());
  return 1;
}

}  // namespace
}  // namespace lmdbio

int main(int argc, char** argv) {
  lmdbio::FigureOptions options;
  int64_t cycle_us = options.cycle_time.count();
  int64_t oversleep_us = options.oversleep.count();
  std::string save;
  lmdbio::po::options_description known("Options");
  known.add_options()("help", "show this help")(
      "ranks", lmdbio::po::value(&options.rank_count)->default_value(options.rank_count),
      "threads, one of each rank")(
      "cycles", lmdbio::po::value(&options.cycle_count)->default_value(options.cycle_count),
      "cycles")("gs-cycles",
                lmdbio::po::value(&options.gs_cycles)->default_value(options.gs_cycles),
                "cycles between two agreements of gs")(
      "cycle-us", lmdbio::po::value(&cycle_us)->default_value(cycle_us), "cycle time")(
      "oversleep-us", lmdbio::po::value(&oversleep_us)->default_value(oversleep_us),
      "the time by which the last thread oversleeps once")("save", lmdbio::po::value(&save),
                                                           "write all spans to this file, as JSON");
  try {
    lmdbio::po::variables_map given;
    lmdbio::po::store(lmdbio::po::parse_command_line(argc, argv, known), given);
    lmdbio::po::notify(given);
    if (given.contains("help")) {
      std::ostringstream text;
      text << known;
      fmt::print("{}", text.str());
      return 0;
    }
  } catch (const lmdbio::po::error& error) {
    fmt::print(stderr, "oversleep_figures: {} (try --help)\n", error.what());
    return 2;
  }
  constexpr int64_t kMost = 1'000'000'000;
  if (options.rank_count < 1 || options.rank_count > 64 || options.cycle_count < 1 ||
      options.cycle_count > 1000 || options.gs_cycles < 1 || cycle_us < 10 || cycle_us > kMost ||
      oversleep_us < 0 || oversleep_us > kMost) {
    fmt::print(stderr,
               "oversleep_figures: a number is out of range; expected 1 to 64 ranks, 1 to "
               "1000 cycles, gs-cycles from 1 on, 10 us to 1000 s a cycle\n");
    return 2;
  }
  options.cycle_time = std::chrono::microseconds(cycle_us);
  options.oversleep = std::chrono::microseconds(oversleep_us);
  return lmdbio::Draw(options, save);
}
