// lmdbio-bench: measures how fast a file can be read, and the share that an LMDB reader gets.
//
//   lmdbio-bench raw FILE    the rate of the storage, in transfers of one size
//   lmdbio-bench read PATH   strategies on one database, each beside the raw rate of the same run
//   lmdbio-bench order PATH  how well each order mixes the records; reads no record
//   lmdbio-bench device      what a GPU, its driver and the memory can do
//
// The program runs alone, or under mpirun, torchrun or srun.
#include <array>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/device/device_probe.h"
#include "bench/loader/bench_device.h"
#include "bench/loader/bench_expectation.h"
#include "bench/loader/bench_order.h"
#include "bench/loader/bench_raw.h"
#include "bench/loader/bench_read.h"
#include "bench/loader/bench_report.h"
#include "bench/loader/job_run.h"
#include "bench/loader/loader_flags.h"
#include "bench/machine/machine_facts.h"
#include "lmdbio/file/io/cache_probe.h"
#include "lmdbio/file/io/data_path.h"
#include "lmdbio/file/source/small_file.h"
#include "lmdbio/load/loader/open_decision.h"
#include "lmdbio/load/plan/option_text.h"
#include "tools/cli/cli.h"
#include "tools/cli/sizes.h"

namespace {

using lmdbio::Result;
using lmdbio::Status;
using lmdbio::file::CachePolicy;
using lmdbio::file::EngineKind;
using lmdbio::load::LoaderOptions;
using lmdbio::load::OptionUse;
using lmdbio::tools::BenchRun;
using lmdbio::tools::CacheState;
using lmdbio::tools::Invocation;
using lmdbio::tools::Misuse;
using lmdbio::tools::ParseSize;
using lmdbio::tools::RawBenchOptions;
using lmdbio::tools::RawMemory;
using lmdbio::tools::RawResult;
using lmdbio::tools::ReadBenchOptions;
using lmdbio::tools::SetLoaderOptions;
using lmdbio::tools::Whole;
using nlohmann::ordered_json;
namespace ranks = lmdbio::ranks;
namespace po = lmdbio::tools::po;

std::string g_command_line;  // for the report

// The value of option `name` among `choices`; Misuse lists them.
template <typename T, size_t N>
T Choose(const Invocation& invocation, const char* name,
         const std::array<std::pair<const char*, T>, N>& choices) {
  const auto& word = invocation.option<std::string>(name);
  std::string known;
  for (const auto& [choice, value] : choices) {
    if (word == choice) return value;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", choice);
  }
  throw Misuse(fmt::format("--{} takes {}, not '{}'", name, known, word));
}

constexpr std::array<std::pair<const char*, EngineKind>, 3> kEngines = {
    {{"mmap", EngineKind::kMmap}, {"pread", EngineKind::kPread}, {"uring", EngineKind::kUring}}};

constexpr std::array<std::pair<const char*, RawMemory>, 3> kRawMemories = {
    {{"best", RawMemory::kBest}, {"window", RawMemory::kWindow}, {"small", RawMemory::kSmall}}};

constexpr uint64_t kTransferBytesMax = uint64_t{1} << 30;  // every transfer needs memory

// The comma-separated parts of the option `name`; at least one.
std::vector<std::string> SplitList(const Invocation& invocation, const char* name) {
  std::vector<std::string> parts;
  std::istringstream in(invocation.option<std::string>(name));
  for (std::string part; std::getline(in, part, ',');) {
    if (!part.empty()) parts.push_back(part);
  }
  if (parts.empty()) throw Misuse(fmt::format("--{} needs at least one name", name));
  return parts;
}

uint32_t Small(const Invocation& invocation, const char* name) {
  const uint64_t value = invocation.whole(name);
  if (value == 0 || value > 65536) {
    throw Misuse(fmt::format("--{} must be between 1 and 65536", name));
  }
  return static_cast<uint32_t>(value);
}

int RepeatCount(const Invocation& invocation) {
  return static_cast<int>(Small(invocation, "repeat"));
}

ordered_json DescribeRun(const ranks::Group& group, const std::string& cache_state) {
  ordered_json out = lmdbio::tools::DescribeMachine();
  out["ranks"] = group.size();
  out["mpi_wait_mode"] = lmdbio::tools::JobRun::WaitMode();
  out["cache_state"] = cache_state;
  out["command_line"] = g_command_line;
  return out;
}

std::string Headline(const ordered_json& run) {
  std::string text;
  for (const auto& [name, value] : run.items()) {
    std::string words = name;
    std::replace(words.begin(), words.end(), '_', ' ');
    text += fmt::format("# {}: {}\n", words,
                        value.is_string() ? value.get<std::string>() : value.dump());
  }
  return text;
}

// Paths may contain any bytes. Bytes that are not valid UTF-8 are replaced.
std::string JsonText(const ordered_json& outcome) {
  return outcome.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

// Collective. Finds the data file of `path`, which every rank must see.
Result<std::string> FindFile(ranks::Group& group, const std::string& path) {
  Result<std::string> found = lmdbio::file::FindDataFile(path);
  LMDBIO_TRY_VOID(ranks::Agree(group, found ? Status() : lmdbio::Fail(std::move(found).error())));
  return found;
}

CacheState CacheStateOf(const Invocation& invocation) {
  const bool drops = invocation.has("drop-caches");
  const bool warms = invocation.has("warm-caches");
  if (drops && warms) throw Misuse("--drop-caches and --warm-caches contradict each other");
  if (drops) return lmdbio::tools::kCold;
  return warms ? CacheState(lmdbio::tools::kWarm) : std::nullopt;
}

// As CacheStateOf, and --cached-percent.
CacheState SharedCacheStateOf(const Invocation& invocation) {
  const CacheState state = CacheStateOf(invocation);
  if (!invocation.has("cached-percent")) return state;
  if (state) throw Misuse("--cached-percent excludes --drop-caches and --warm-caches");
  const uint64_t percent = invocation.whole("cached-percent");
  if (percent > 100) {
    throw Misuse(fmt::format("--cached-percent {} is out of range; expected 0 to 100", percent));
  }
  return static_cast<uint32_t>(percent);
}

// --- raw ---

void DescribeRawMemory(po::options_description_easy_init options) {
  options("raw-memory",
          po::value<std::string>()->default_value("best")->value_name("best|window|small"),
          "memory of raw reads. best: private, in huge pages (2 MiB) if the system has them; "
          "window: as that of the loader, which the ranks of a host share; small: private, in "
          "pages of 4 KiB");
}

void DescribeRaw(po::options_description_easy_init options) {
  options("engine", po::value<std::string>()->default_value("all")->value_name("LIST"),
          "engines: mmap, pread, uring, several of them, or all")  //
      ("transfer-size,t", po::value<std::string>()->default_value("1M")->value_name("LIST"),
       "bytes of one read, for example 4K,1M,1G; several sizes are measured one after another")  //
      ("queue-depth,q", po::value<Whole>()->default_value({32})->value_name("N"),
       "reads in flight for each rank (threads of pread; with 1, buffered pread has none)")  //
      ("direct", po::value<std::string>()->default_value("off")->value_name("on|off|both"),
       "bypass the page cache (not with mmap)")  //
      ("random", "read in random order")         //
      ("size,s", po::value<std::string>()->default_value("0")->value_name("BYTES"),
       "read only the first BYTES of the file")                                                   //
      ("drop-caches", "drop the page cache of every host before each run")                        //
      ("warm-caches", "read the file into the page cache of every host before each run")          //
      ("repeat,i", po::value<Whole>()->default_value({3})->value_name("N"), "runs of each kind")  //
      ("json", po::value<std::string>()->value_name("FILE"), "write all runs to FILE");
  DescribeRawMemory(options);
}

struct RawRow {
  RawBenchOptions request;
  std::vector<double> rates;  // bytes/s
};

std::vector<EngineKind> RawEngines(const Invocation& invocation) {
  std::vector<EngineKind> kinds;
  for (const std::string& name : SplitList(invocation, "engine")) {
    const size_t before = kinds.size();
    for (const auto& [word, kind] : kEngines) {
      if (name == word || name == "all") kinds.push_back(kind);
    }
    if (kinds.size() == before) {
      throw Misuse(fmt::format("--engine takes mmap, pread, uring, all, not '{}'", name));
    }
  }
  return kinds;
}

std::vector<uint64_t> TransferSizes(const Invocation& invocation) {
  std::vector<uint64_t> sizes;
  for (const std::string& text : SplitList(invocation, "transfer-size")) {
    sizes.push_back(ParseSize(text, "transfer-size"));
    if (sizes.back() == 0 || sizes.back() > kTransferBytesMax) {
      throw Misuse("--transfer-size must be between 1 and 1G");
    }
  }
  return sizes;
}

// One row for each combination of engine, size and cache. A map always goes through the page cache,
// so --direct does not multiply its rows.
std::vector<RawRow> RawRows(const Invocation& invocation, const RawBenchOptions& common) {
  std::vector<RawRow> rows;
  const auto& direct = invocation.option<std::string>("direct");
  if (direct != "on" && direct != "off" && direct != "both") {
    throw Misuse(fmt::format("--direct takes on, off, both, not '{}'", direct));
  }
  const std::vector<uint64_t> sizes = TransferSizes(invocation);
  for (const EngineKind kind : RawEngines(invocation)) {
    for (const uint64_t size : sizes) {
      RawRow row{common, {}};
      row.request.engine = kind;
      row.request.transfer_bytes = size;
      if (direct != "on" || kind == EngineKind::kMmap) {
        row.request.cache = CachePolicy::kBuffered;
        rows.push_back(row);
      }
      if (direct != "off" && kind != EngineKind::kMmap) {
        row.request.cache = CachePolicy::kDirect;
        rows.push_back(row);
      }
    }
  }
  return rows;
}

std::string RawTable(const std::vector<RawRow>& rows) {
  std::string text = fmt::format("{:<7} {:<9} {:>10} {:>6} {:>11} {:>10} {:>10} {:>10}\n", "engine",
                                 "cache", "transfer", "depth", "order", "MB/s", "min", "max");
  for (const RawRow& row : rows) {
    std::vector<double> rates = row.rates;
    std::sort(rates.begin(), rates.end());
    text +=
        fmt::format("{:<7} {:<9} {:>10} {:>6} {:>11} {:>10.1f} {:>10.1f} {:>10.1f}\n",
                    lmdbio::file::EngineKindName(row.request.engine),
                    lmdbio::file::CachePolicyName(row.request.cache), row.request.transfer_bytes,
                    row.request.queue_depth, row.request.is_random ? "random" : "sequential",
                    rates[rates.size() / 2] / 1e6, rates.front() / 1e6, rates.back() / 1e6);
  }
  return text;
}

ordered_json RawJson(const std::vector<RawRow>& rows) {
  ordered_json runs = ordered_json::array();
  for (const RawRow& row : rows) {
    for (const double rate : row.rates) {
      runs.push_back({{"engine", lmdbio::file::EngineKindName(row.request.engine)},
                      {"direct", row.request.cache == CachePolicy::kDirect},
                      {"transfer_bytes", row.request.transfer_bytes},
                      {"queue_depth", row.request.queue_depth},
                      {"order", row.request.is_random ? "random" : "sequential"},
                      {"bytes_per_s", rate}});
    }
  }
  return runs;
}

Status Raw(const Invocation& invocation) {
  LMDBIO_TRY(const auto group, lmdbio::tools::JobRun::Ranks());
  RawBenchOptions common;
  common.queue_depth = Small(invocation, "queue-depth");
  common.total_bytes = ParseSize(invocation.option<std::string>("size"), "size");
  common.is_random = invocation.has("random");
  common.cache_state = CacheStateOf(invocation);
  common.memory = Choose(invocation, "raw-memory", kRawMemories);
  // No host has more ranks than the group, so every rank reads.
  common.readers_per_host = static_cast<uint32_t>(group->size());
  std::vector<RawRow> rows = RawRows(invocation, common);
  LMDBIO_TRY(const std::string data_path, FindFile(*group, invocation.operand("FILE")));
  const int repeat = RepeatCount(invocation);
  RawResult last;
  // Repetitions are the outer loop, so a slow phase of the storage affects all rows alike.
  for (int i = 0; i < repeat; ++i) {
    for (RawRow& row : rows) {
      row.request.data_path = data_path;
      LMDBIO_TRY(last, lmdbio::tools::MeasureRaw(*group, row.request));
      row.rates.push_back(last.bytes_per_s());
    }
  }
  if (group->rank() != 0) return {};
  ordered_json outcome = DescribeRun(*group, last.cache_words);
  outcome["raw_memory"] = last.memory_words;
  LMDBIO_TRY_VOID(lmdbio::tools::WriteOutput(Headline(outcome) + RawTable(rows)));
  if (!invocation.has("json")) return {};
  outcome["runs"] = RawJson(rows);
  return lmdbio::tools::WriteText(invocation.option<std::string>("json"), JsonText(outcome));
}

// --- read and order ---

// Options that decide the positions of records, whatever the order.
void DescribeStream(po::options_description_easy_init options) {
  lmdbio::tools::DescribeLoaderFlags(OptionUse::kStream, options);
  options("json", po::value<std::string>()->value_name("FILE"), "write the results to FILE");
}

// --- order ---

constexpr const char* kOrderDetails =
    "Two records are neighbours if they are adjacent in the database. Their distance d is the\n"
    "distance of their positions in the sequence; N is the number of records.\n"
    "  entropy       entropy in bits of a histogram of d / N with 1,024 equal bins, from up to\n"
    "                200,000 sampled pairs\n"
    "  % of random   the entropy as a share of that of a random order, in which d / N has the\n"
    "                density 2 (1 - x)\n"
    "  median dist.  the median of d\n"
    "  adjacent %    the share of adjacent positions with neighbouring records";

Status MixOrders(const Invocation& invocation) {
  LMDBIO_TRY(const auto group, lmdbio::tools::JobRun::Ranks());
  LoaderOptions options;
  SetLoaderOptions(OptionUse::kStream, invocation, options);
  const Status makes_sense = lmdbio::load::CheckOptions(options);
  if (!makes_sense) throw Misuse(makes_sense.error().message());
  LMDBIO_TRY(const std::string data_path, FindFile(*group, invocation.operand("PATH")));
  // The orders are computed and need no readers, so one rank suffices.
  if (group->rank() != 0) return {};
  LMDBIO_TRY(const auto mixes, lmdbio::tools::MeasureOrders(data_path, options));
  ordered_json outcome = lmdbio::tools::DescribeMachine();
  outcome["command_line"] = g_command_line;
  LMDBIO_TRY_VOID(lmdbio::tools::WriteOutput(Headline(outcome) + lmdbio::tools::OrderTable(mixes)));
  if (!invocation.has("json")) return {};
  outcome.update(lmdbio::tools::ToJson(mixes));
  return lmdbio::tools::WriteText(invocation.option<std::string>("json"), JsonText(outcome));
}

// --- read ---

void DescribeRead(po::options_description_easy_init options) {
  // A line for each name: a name that is wrapped could not be searched for.
  std::string help = "one or more, separated by commas, of";
  for (const auto& row : lmdbio::load::kStrategies) help += fmt::format("\n{}", row.name);
  help += "\nor all";
  DescribeStream(options);
  lmdbio::tools::DescribeLoaderFlags(OptionUse::kLoader, options);
  options("strategy", po::value<std::string>()->default_value("auto")->value_name("LIST"),
          help.c_str())  //
      ("state", po::value<std::string>()->value_name("FILE"),
       "continue the stream of another run; --max-batches counts from the first batch of that "
       "stream")  //
      ("layout-cache", po::value<std::string>()->default_value("off")->value_name("FOLDER"),
       "keep the layout of a walked database in FOLDER, and use one that is kept there; off, so "
       "that all runs do the same, unless told otherwise")  //
      ("save", po::value<std::string>()->value_name("FILE"),
       "write the state of the stream after the last run")  //
      ("compute-time", po::value<double>()->default_value(0)->value_name("SECONDS"),
       "time of emulated training after each batch")  //
      ("compute-kind", po::value<std::string>()->default_value("work")->value_name("work|sleep"),
       "emulate training on the processor, or on an accelerator")  //
      ("checksum", po::value<std::string>()->default_value("records")->value_name("KIND"),
       "content of the checksum. records: position, key and value of each record; values: the "
       "values in any order")                                               //
      ("no-checksum", "do not touch the delivered bytes, as in raw reads")  //
      ("meet-every", po::value<Whole>()->default_value({1})->value_name("N"),
       "ranks wait for each other after N batches, as trainers do; 0: only at the end")        //
      ("drop-caches", "drop the page cache of every host before each run, also each raw run")  //
      ("warm-caches", "read the file into the page cache of every host before each run")       //
      ("cached-percent", po::value<Whole>()->value_name("P"),
       "drop the page cache of every host before each run, then read P percent of the file into "
       "it, in random stretches of 1 MiB")                               //
      ("no-raw", "skip the raw reads of as many bytes before each run")  //
      ("repeat,i", po::value<Whole>()->default_value({3})->value_name("N"),
       "runs of each strategy, interleaved")                                              //
      ("verify", "compare the delivered records with a serial pass of liblmdb's cursor")  //
      ("plot", po::value<std::string>()->value_name("FILE"), "draw the rates as bars (SVG)");
  DescribeRawMemory(options);
}

std::vector<std::string> Strategies(const Invocation& invocation) {
  std::vector<std::string> names;
  for (const std::string& name : SplitList(invocation, "strategy")) {
    if (name == "all") {
      for (const auto& row : lmdbio::load::kStrategies) names.emplace_back(row.name);
      continue;
    }
    const auto known = lmdbio::load::ParseStrategy(name);
    if (!known) throw Misuse(known.error().message());
    names.push_back(name);
  }
  return names;
}

// A saved state is always smaller.
constexpr uint64_t kStateBytesMax = 16 << 20;

LoaderOptions OptionsOf(const Invocation& invocation) {
  LoaderOptions options;
  SetLoaderOptions(OptionUse::kStream, invocation, options);
  SetLoaderOptions(OptionUse::kLoader, invocation, options);
  options.layout_cache = invocation.option<std::string>("layout-cache");
  if (invocation.has("state")) {
    const std::string file = invocation.option<std::string>("state");
    auto text = lmdbio::file::ReadSmallFile(file, kStateBytesMax);
    if (!text) throw Misuse(text.error().message());
    options.state.assign(reinterpret_cast<const char*>(text->data()), text->size());
  }
  const Status makes_sense = lmdbio::load::CheckOptions(options);
  if (!makes_sense) throw Misuse(makes_sense.error().message());
  return options;
}

struct ReadSeries {
  ReadBenchOptions request;
  std::vector<std::string> strategies;
  std::string order;
  RawBenchOptions raw;
  int raw_reader_count = 0;             // set by the first raw run
  std::string raw_memory;               // set by the first raw run
  std::string cache_words;              // set when the first run is prepared
  std::vector<std::string> data_paths;  // of the files of a list; else one
  uint64_t page_bytes = 0;
  std::optional<uint64_t> expected_checksum;
  CacheState cache_state;
  bool measures_raw = true;
};

// Every rank finds the files. Rank 0 computes the expected outcome, which reads every page of the
// tree once.
Status LookAhead(const ranks::Group& group, const Invocation& invocation, ReadSeries& plan,
                 lmdbio::tools::ReadExpectation& expectation) {
  LMDBIO_TRY(const auto list,
             lmdbio::load::DatabasesOf(plan.request.path, plan.request.options.database_name));
  for (const auto& one : list) {
    LMDBIO_TRY(std::string data_path, lmdbio::file::FindDataFile(one.path));
    plan.data_paths.push_back(std::move(data_path));
  }
  plan.raw.data_path = plan.data_paths.front();
  if (group.rank() != 0) return {};
  LMDBIO_TRY(expectation, lmdbio::tools::Expect(list, plan.request.options));
  if (!invocation.has("verify")) return {};
  LoaderOptions options = plan.request.options;
  options.max_batches = expectation.batch_end;
  LMDBIO_TRY(plan.expected_checksum, lmdbio::tools::SerialChecksum(list, options));
  return {};
}

// A shuffled run is compared with random reads of the size of a record. Of small records only a
// sample is read, because all of them would take minutes.
void ShapeRaw(const lmdbio::tools::ReadExpectation& expectation, ReadSeries& plan) {
  using lmdbio::load::Order;
  using lmdbio::load::Shuffle;
  const LoaderOptions& options = plan.request.options;
  if (options.order != Order::kShuffle || options.shuffle != Shuffle::kGlobal) return;
  constexpr uint64_t kSampleReads = 8192;
  constexpr uint64_t kPageBytes = 4096;
  const uint64_t record_bytes = expectation.bytes_per_record;
  plan.raw.is_random = true;
  plan.raw.total_bytes = 0;
  plan.raw.transfer_bytes = std::max(kPageBytes, record_bytes / kPageBytes * kPageBytes);
  plan.raw.sample_bytes = std::min(expectation.page_bytes, kSampleReads * plan.raw.transfer_bytes);
}

// Collective. Prepares a run before its clock starts. Afterwards the tree is in the page cache of
// rank 0's host.
Status Prepare(ranks::Group& group, const Invocation& invocation, ReadSeries& plan) {
  lmdbio::tools::ReadExpectation expectation;
  LMDBIO_TRY_VOID(ranks::Agree(group, LookAhead(group, invocation, plan, expectation)));
  // ReadExpectation holds no pointers, so its bytes mean the same on every rank. The checksum stays
  // on rank 0.
  LMDBIO_TRY_VOID(group.Broadcast(0, std::as_writable_bytes(std::span(&expectation, 1))));
  // The ranks prepare the files in step.
  Status same;
  if (plan.data_paths.size() != expectation.file_count) {
    same = lmdbio::Fail(lmdbio::ErrorCode::kStale,
                        fmt::format("{}: this rank finds {} files, rank 0 {}", plan.request.path,
                                    plan.data_paths.size(), expectation.file_count));
  }
  LMDBIO_TRY_VOID(ranks::Agree(group, std::move(same)));
  // Raw reads of one of several files would be another load.
  if (expectation.file_count > 1) plan.measures_raw = false;
  plan.page_bytes = expectation.page_bytes;
  plan.request.options.max_batches = expectation.batch_end;
  // The raw run reads as many bytes as the records need, with as many readers and as deep a queue.
  plan.raw.total_bytes = expectation.page_bytes;
  plan.raw.readers_per_host = plan.request.options.readers_per_host;
  plan.raw.queue_depth = plan.request.options.queue_depth;
  ShapeRaw(expectation, plan);
  return {};
}

// Collective. Raw reads of a warm file go through the page cache. Rank 0 decides for all ranks,
// because the cached share changes while ranks look.
Status ChooseRawEngine(ranks::Group& group, ReadSeries& plan) {
  if (plan.cache_state && *plan.cache_state < lmdbio::tools::kWarm) return {};
  Result<lmdbio::file::CacheProbe> cached = lmdbio::file::CacheProbe{1, false};
  if (!plan.cache_state && group.rank() == 0) cached = lmdbio::file::ProbeCache(plan.raw.data_path);
  LMDBIO_TRY_VOID(ranks::Agree(group, cached ? Status() : lmdbio::Fail(std::move(cached).error())));
  LMDBIO_TRY_VOID(group.Broadcast(0, std::as_writable_bytes(std::span(&*cached, 1))));
  // Direct reads would measure the device, but the loader gets most of the file from memory.
  if (cached->share < 0.9) return {};
  plan.raw.engine = EngineKind::kPread;
  plan.raw.cache = CachePolicy::kBuffered;
  plan.raw.queue_depth = 2;
  return {};
}

Result<BenchRun> RunOnce(ranks::Group& group, ReadSeries& plan, const std::string& strategy) {
  BenchRun run;
  // The raw run immediately before the strategy sees the storage in the same state. Each of the two
  // prepares the cache, because the first one may fill it.
  if (plan.measures_raw) {
    LMDBIO_TRY(const RawResult raw, lmdbio::tools::MeasureRaw(group, plan.raw));
    run.raw_bytes_per_s = raw.bytes_per_s();
    plan.raw_reader_count = raw.readers;
    plan.raw_memory = raw.memory_words;
  }
  for (const std::string& data_path : plan.data_paths) {
    LMDBIO_TRY(plan.cache_words, lmdbio::tools::PrepareCache(group, plan.cache_state, data_path));
  }
  LMDBIO_TRY(plan.request.options.strategy, lmdbio::load::ParseStrategy(strategy));
  LMDBIO_TRY(run.read, lmdbio::tools::MeasureRead(group, plan.request));
  run.strategy = strategy;
  run.ranks = group.size();
  run.order = plan.order;
  run.global_batch_size = plan.request.options.global_batch_size;
  run.options = lmdbio::load::OptionsJson(plan.request.options);
  run.page_bytes = plan.page_bytes;
  // Only rank 0 has an expected checksum. The caller lets all ranks agree, so no rank goes on
  // alone. A run that skipped records must differ, so it is not compared.
  if (plan.expected_checksum && run.read.delivered.checksum != plan.expected_checksum &&
      run.read.delivered.skipped_count == 0) {
    return lmdbio::Fail(
        lmdbio::ErrorCode::kInternal,
        fmt::format("{}: strategy {} delivered checksum {:016x}; a serial pass gives {:016x}",
                    plan.raw.data_path, strategy, *run.read.delivered.checksum,
                    *plan.expected_checksum));
  }
  return run;
}

Status WriteReports(const Invocation& invocation, ordered_json outcome,
                    const std::vector<BenchRun>& runs) {
  // All runs end at the same batch, so the state of any of them would do.
  if (invocation.has("save")) {
    LMDBIO_TRY_VOID(lmdbio::tools::WriteText(invocation.option<std::string>("save"),
                                             runs.back().read.state + "\n"));
  }
  if (invocation.has("json")) {
    outcome["runs"] = ordered_json::array();
    for (const BenchRun& run : runs) outcome["runs"].push_back(lmdbio::tools::ToJson(run));
    LMDBIO_TRY_VOID(
        lmdbio::tools::WriteText(invocation.option<std::string>("json"), JsonText(outcome)));
  }
  if (invocation.has("plot")) {
    const std::string title = fmt::format(
        "{}: {} ranks, batches of {}, {}", invocation.operand("PATH"), runs.front().ranks,
        runs.front().global_batch_size, outcome["cache_state"].get<std::string>());
    LMDBIO_TRY_VOID(lmdbio::tools::WriteText(invocation.option<std::string>("plot"),
                                             lmdbio::tools::Plot(runs, title)));
  }
  return {};
}

std::string RawRemark(const ReadSeries& plan, const std::vector<BenchRun>& runs) {
  if (!plan.measures_raw) return "# raw: not measured\n";
  std::string text = fmt::format(
      "# raw: {}, {}, transfers of {}, {} deep, {} reader(s), into {}\n",
      lmdbio::file::EngineKindName(plan.raw.engine), lmdbio::file::CachePolicyName(plan.raw.cache),
      plan.raw.transfer_bytes, plan.raw.queue_depth, plan.raw_reader_count, plan.raw_memory);
  if (plan.raw.is_random) text.insert(text.size() - 1, ", in random order");
  std::vector<double> raw;
  for (const BenchRun& run : runs) raw.push_back(run.raw_bytes_per_s / 1e6);
  std::sort(raw.begin(), raw.end());
  text += fmt::format("# raw MB/s: {:.0f} ({:.0f}..{:.0f})\n", raw[raw.size() / 2], raw.front(),
                      raw.back());
  return text;
}

// Repeated runs mostly say the same. Each line is printed once.
std::string Remarks(const ReadSeries& plan, const std::vector<BenchRun>& runs) {
  std::string text = RawRemark(plan, runs);
  std::vector<std::string> said;
  for (const BenchRun& run : runs) {
    std::vector<std::string> lines = run.read.notes;
    lines.insert(lines.begin(), fmt::format("{}: {}", run.strategy, run.read.how));
    for (const std::string& line : lines) {
      if (std::find(said.begin(), said.end(), line) != said.end()) continue;
      said.push_back(line);
      text += fmt::format("# {}\n", line);
    }
  }
  if (plan.expected_checksum) text += "# every run agrees with a serial pass of liblmdb\n";
  return text;
}

void SetChecksum(const Invocation& invocation, ReadBenchOptions& request) {
  using lmdbio::tools::ChecksumKind;
  request.checksum = Choose<ChecksumKind, 2>(
      invocation, "checksum",
      {{{"records", ChecksumKind::kRecords}, {"values", ChecksumKind::kValues}}});
  if (invocation.has("no-checksum")) request.checksum = ChecksumKind::kNone;
  if (request.checksum != ChecksumKind::kRecords && invocation.has("verify")) {
    throw Misuse("--verify compares checksums of records; leave out --no-checksum and --checksum");
  }
}

Status Read(const Invocation& invocation) {
  LMDBIO_TRY(const auto group, lmdbio::tools::JobRun::Ranks());
  ReadSeries plan;
  plan.request.path = invocation.operand("PATH");
  plan.request.options = OptionsOf(invocation);
  plan.order = invocation.option<std::string>("order");
  if (plan.request.options.order == lmdbio::load::Order::kShuffle) {
    plan.order = invocation.option<std::string>("shuffle") + " shuffle";
  }
  // The negated condition below also rejects a value that is not a number.
  plan.request.compute_s = invocation.option<double>("compute-time");
  if (!(plan.request.compute_s >= 0 && plan.request.compute_s < 3600)) {
    throw Misuse("--compute-time must be between 0 and 3600");
  }
  SetChecksum(invocation, plan.request);
  if (plan.request.options.num_shards > 1 && invocation.has("verify")) {
    throw Misuse("--verify compares whole batches; leave out --num-shards");
  }
  plan.request.meet_every = invocation.whole("meet-every");
  using lmdbio::tools::ComputeKind;
  plan.request.compute_kind = Choose<ComputeKind, 2>(
      invocation, "compute-kind", {{{"work", ComputeKind::kWork}, {"sleep", ComputeKind::kSleep}}});
  plan.cache_state = SharedCacheStateOf(invocation);
  plan.raw.cache_state = plan.cache_state;
  plan.raw.memory = Choose(invocation, "raw-memory", kRawMemories);
  plan.measures_raw = !invocation.has("no-raw");
  plan.strategies = Strategies(invocation);
  const int repeat = RepeatCount(invocation);
  LMDBIO_TRY_VOID(Prepare(*group, invocation, plan));
  // Computing the expectation reads the tree, so the cache is probed afterwards.
  LMDBIO_TRY_VOID(ChooseRawEngine(*group, plan));
  std::vector<BenchRun> runs;
  // The strategies are interleaved for the same reason as the rows of `raw`.
  for (int i = 0; i < repeat; ++i) {
    for (const std::string& strategy : plan.strategies) {
      Result<BenchRun> run = RunOnce(*group, plan, strategy);
      LMDBIO_TRY_VOID(ranks::Agree(*group, run ? Status() : lmdbio::Fail(std::move(run).error())));
      runs.push_back(std::move(*run));
    }
  }
  if (group->rank() != 0) return {};
  const ordered_json outcome = DescribeRun(*group, plan.cache_words);
  LMDBIO_TRY_VOID(lmdbio::tools::WriteOutput(Headline(outcome) + Remarks(plan, runs) +
                                             lmdbio::tools::Table(runs)));
  return WriteReports(invocation, outcome, runs);
}

// --- device ---

Status Device(const Invocation& invocation) {
  LMDBIO_TRY(const auto group, lmdbio::tools::JobRun::Ranks());
  return lmdbio::tools::ProbeDevice(*group, invocation, g_command_line);
}

}  // namespace

int main(int argc, char** argv) {
  // A process of the probe is no rank of the job.
  if (const auto code = lmdbio::probe::PlayPartIfAsked(argc, argv)) return *code;
  for (int i = 0; i < argc; ++i) g_command_line += fmt::format("{}{}", i > 0 ? " " : "", argv[i]);
  const lmdbio::tools::JobRun job(argc, argv);
  const std::array commands = {
      lmdbio::tools::Command{"raw", "FILE", "Measures the rate of the storage.", &DescribeRaw, &Raw,
                             lmdbio::tools::Output::kText},
      lmdbio::tools::Command{"read", "PATH",
                             "Reads a database like a trainer, with one or more strategies.",
                             &DescribeRead, &Read, lmdbio::tools::Output::kText},
      lmdbio::tools::Command{
          "order", "PATH", "Computes how well each order mixes the records; reads no record.",
          &DescribeStream, &MixOrders, lmdbio::tools::Output::kText, kOrderDetails},
      lmdbio::tools::Command{"device", "", lmdbio::probe::kProbeSummary,
                             &lmdbio::probe::DescribeProbe, &Device, lmdbio::tools::Output::kText,
                             lmdbio::probe::kProbeDetails},
  };
  return lmdbio::tools::RunTool("lmdbio-bench", "Measures how fast databases are read.", commands,
                                argc, argv);
}
