#include "bench/loader/bench_report.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "bench/spread.h"
#include "lmdbio/file/source/small_file.h"

namespace lmdbio::tools {
namespace {

constexpr double kMega = 1e6;
constexpr double kGiga = 1e9;
constexpr const char* kOfRaw = "% of raw";

using Figure = std::function<double(const BenchRun&)>;

Spread SpreadOver(const std::vector<const BenchRun*>& runs, const Figure& figure) {
  std::vector<double> values;
  for (const BenchRun* run : runs) values.push_back(figure(*run));
  return SpreadOf(std::move(values));
}

// Runs of the strategies are interleaved. The groups keep the order in which the strategies first
// appear.
std::vector<std::vector<const BenchRun*>> ByStrategy(const std::vector<BenchRun>& runs) {
  std::vector<std::vector<const BenchRun*>> groups;
  for (const BenchRun& run : runs) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      return group.front()->strategy == run.strategy;
    });
    if (same != groups.end()) {
      same->push_back(&run);
    } else {
      groups.push_back({&run});
    }
  }
  return groups;
}

struct Column {
  const char* name;
  Figure figure;
  int decimals;
};

// The columns answer these questions in this order: how fast, why, at what cost.
std::vector<Column> Columns() {
  // Costs refer to the bytes that the records need, not to those that were read, so reading too
  // much does not look cheap.
  const auto per_gb = [](const BenchRun& run, double value) {
    return run.page_bytes > 0 ? value / (static_cast<double>(run.page_bytes) / kGiga) : 0;
  };
  return {
      {"records/s", [](const auto& r) { return r.records_per_s(); }, 0},
      {"MB/s", [](const auto& r) { return r.payload_bytes_per_s() / kMega; }, 0},
      {kOfRaw, [](const auto& r) { return r.raw_fraction() * 100; }, 1},
      {"seek max s", [](const auto& r) { return r.read.times.seek_s_max; }, 3},
      {"seek mean s", [](const auto& r) { return r.read.times.seek_s_mean; }, 3},
      {"I/O max s", [](const auto& r) { return r.read.times.io_s_max; }, 3},
      {"I/O mean s", [](const auto& r) { return r.read.times.io_s_mean; }, 3},
      {"turn max s", [](const auto& r) { return r.read.times.turn_s_max; }, 3},
      {"skew max s", [](const auto& r) { return r.read.times.skew_s_max; }, 3},
      {"skew mean s", [](const auto& r) { return r.read.times.skew_s_mean; }, 3},
      {"read MB",
       [](const auto& r) { return static_cast<double>(r.read.costs.bytes_read) / kMega; }, 1},
      {"useful MB", [](const auto& r) { return static_cast<double>(r.page_bytes) / kMega; }, 1},
      {"requests", [](const auto& r) { return static_cast<double>(r.read.costs.read_requests); },
       0},
      {"ctx sw/GB",
       [=](const auto& r) { return per_gb(r, static_cast<double>(r.read.costs.context_switches)); },
       0},
      {"maj faults", [](const auto& r) { return static_cast<double>(r.read.costs.major_faults); },
       0},
      {"missed pages", [](const auto& r) { return static_cast<double>(r.read.costs.missed_pages); },
       0},
      {"redundant p.",
       [](const auto& r) { return static_cast<double>(r.read.costs.redundant_pages); }, 0},
      {"CPU s/GB", [=](const auto& r) { return per_gb(r, r.read.costs.cpu_s); }, 3},
      {"loader CPU %", [](const auto& r) { return r.read.costs.loader_cpu_share_max * 100; }, 1},
      {"p50 ms", [](const auto& r) { return Quantile(r.read.latencies_s, 0.50) * 1e3; }, 2},
      {"p95 ms", [](const auto& r) { return Quantile(r.read.latencies_s, 0.95) * 1e3; }, 2},
      {"p99 ms", [](const auto& r) { return Quantile(r.read.latencies_s, 0.99) * 1e3; }, 2},
      {"first batch ms", [](const auto& r) { return r.read.times.first_batch_s * 1e3; }, 1},
      {"busy %", [](const auto& r) { return r.read.times.utilisation() * 100; }, 1},
      {"peak MB",
       [](const auto& r) { return static_cast<double>(r.read.costs.memory_bytes_max) / kMega; }, 0},
      {"skipped", [](const auto& r) { return static_cast<double>(r.read.delivered.skipped_count); },
       0},
  };
}

// One run, or runs without a difference, need no range.
std::string Cell(const Spread& spread, int decimals) {
  if (spread.min == spread.max) return fmt::format("{:.{}f}", spread.median, decimals);
  return fmt::format("{:.{}f} ({:.{}f}..{:.{}f})", spread.median, decimals, spread.min, decimals,
                     spread.max, decimals);
}

std::string Checksums(const std::vector<const BenchRun*>& runs) {
  for (const BenchRun* run : runs) {
    // All strategies deliver the same records in the same order, and so do repeated runs of one.
    if (run->read.delivered.checksum != runs.front()->read.delivered.checksum) return "DIFFERS";
  }
  const auto checksum = runs.front()->read.delivered.checksum;
  return checksum ? fmt::format("{:016x}", *checksum) : "not computed";
}

std::string XmlText(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      default:
        // XML forbids control characters, and only ASCII is certainly valid UTF-8.
        out += c >= ' ' && c < 0x7F ? c : '?';
    }
  }
  return out;
}

nlohmann::ordered_json RanksJson(const ReadResult& read) {
  auto ranks = nlohmann::ordered_json::array();
  for (const RankTimes& rank : read.ranks) {
    ranks.push_back({{"rank", ranks.size()},
                     {"host", rank.host},
                     {"seek_s", rank.seek_s},
                     {"io_s", rank.io_s},
                     {"turn_s", rank.turn_s},
                     {"wait_s", rank.wait_s},
                     {"meet_s", rank.meet_s},
                     {"next_s", rank.next_s},
                     {"asleep_s", rank.asleep_s}});
  }
  return ranks;
}

}  // namespace

double BenchRun::records_per_s() const {
  return read.times.seconds > 0
             ? static_cast<double>(read.delivered.record_count) / read.times.seconds
             : 0;
}
double BenchRun::payload_bytes_per_s() const {
  return read.times.seconds > 0
             ? static_cast<double>(read.delivered.payload_bytes) / read.times.seconds
             : 0;
}
double BenchRun::page_bytes_per_s() const {
  return read.times.seconds > 0 ? static_cast<double>(page_bytes) / read.times.seconds : 0;
}
double BenchRun::raw_fraction() const {
  return raw_bytes_per_s > 0 ? page_bytes_per_s() / raw_bytes_per_s : 0;
}

nlohmann::ordered_json ToJson(const BenchRun& run) {
  const ReadResult& read = run.read;
  nlohmann::ordered_json out;
  out["strategy"] = run.strategy;
  out["how"] = read.how;
  out["ranks"] = run.ranks;
  out["hosts"] = read.hosts;
  out["order"] = run.order;
  out["global_batch_size"] = run.global_batch_size;
  out["options"] = nlohmann::ordered_json::parse(run.options);
  out["records"] = read.delivered.record_count;
  out["records_per_s"] = run.records_per_s();
  out["bytes_per_s"] = run.payload_bytes_per_s();
  out["page_bytes_per_s"] = run.page_bytes_per_s();
  // null means not measured
  out["raw_bytes_per_s"] = nullptr;
  out["raw_fraction"] = nullptr;
  if (run.raw_bytes_per_s > 0) {
    out["raw_bytes_per_s"] = run.raw_bytes_per_s;
    out["raw_fraction"] = run.raw_fraction();
  }
  out["seek_s"] = {{"max", read.times.seek_s_max}, {"mean", read.times.seek_s_mean}};
  out["io_s"] = {{"max", read.times.io_s_max}, {"mean", read.times.io_s_mean}};
  out["turn_s"] = {{"max", read.times.turn_s_max}};
  out["skew_s"] = {{"max", read.times.skew_s_max}, {"mean", read.times.skew_s_mean}};
  out["by_rank"] = RanksJson(read);
  out["bytes_read"] = read.costs.bytes_read;
  out["bytes_direct"] = read.costs.bytes_direct;
  out["bytes_useful"] = run.page_bytes;
  out["read_requests"] = read.costs.read_requests;
  out["retries"] = read.costs.retry_count;
  out["skipped"] = read.delivered.skipped_count;
  out["epochs"] = read.delivered.epoch_count;
  out["dropped"] = read.delivered.dropped_count;
  out["wrapped"] = read.delivered.wrapped_count;
  out["context_switches"] = read.costs.context_switches;
  out["major_faults"] = read.costs.major_faults;
  out["missed_pages"] = read.costs.missed_pages;
  out["redundant_pages"] = read.costs.redundant_pages;
  out["cpu_s"] = read.costs.cpu_s;
  out["loader_cpu_s"] = read.costs.loader_cpu_s;
  out["loader_cpu_share_max"] = read.costs.loader_cpu_share_max;
  out["latency_s"] = {{"p50", Quantile(read.latencies_s, 0.50)},
                      {"p95", Quantile(read.latencies_s, 0.95)},
                      {"p99", Quantile(read.latencies_s, 0.99)}};
  out["first_batch_s"] = read.times.first_batch_s;
  out["utilisation"] = read.times.utilisation();
  out["memory_bytes_max"] = read.costs.memory_bytes_max;
  out["began_unix_s"] = read.times.began_unix_s;  // identifies the run in a log of the storage
  out["seconds"] = read.times.seconds;
  out["checksum"] = nullptr;
  if (read.delivered.checksum) out["checksum"] = fmt::format("{:016x}", *read.delivered.checksum);
  return out;
}

double Quantile(std::vector<float> values, double q) {
  if (values.empty()) return 0;
  // The nearest-rank definition: the smallest value that at least a share q of all values does not
  // exceed. So the result is always a measured value.
  const auto index =
      static_cast<size_t>(std::ceil(q * static_cast<double>(values.size()))) - (q > 0 ? 1 : 0);
  const auto place =
      values.begin() + static_cast<std::ptrdiff_t>(std::min(index, values.size() - 1));
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

// One column for each strategy, one line for each figure, because figures outnumber strategies and
// have long names.
std::string Table(const std::vector<BenchRun>& runs) {
  const auto groups = ByStrategy(runs);
  std::vector<std::vector<std::string>> lines(1, {"strategy"});
  for (const auto& group : groups) lines[0].push_back(group.front()->strategy);
  for (const Column& column : Columns()) {
    if (std::string_view(column.name) == kOfRaw && runs.front().raw_bytes_per_s == 0) continue;
    std::vector<std::string> line = {column.name};
    for (const auto& group : groups) {
      line.push_back(Cell(SpreadOver(group, column.figure), column.decimals));
    }
    lines.push_back(std::move(line));
  }
  lines.push_back({"checksum"});
  for (const auto& group : groups) lines.back().push_back(Checksums(group));
  std::vector<size_t> widths(groups.size() + 1, 0);
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const auto& line : lines) {
    text += fmt::format("{:<{}}", line[0], widths[0]);
    for (size_t i = 1; i < line.size(); ++i) text += fmt::format("  {:>{}}", line[i], widths[i]);
    text += '\n';
  }
  return text;
}

std::string Plot(const std::vector<BenchRun>& runs, std::string_view title) {
  // Lengths in pixels. The scale leaves room for names on the left and for numbers on the right,
  // and reaches to the largest single run or raw rate.
  constexpr double kWidth = 720, kLeft = 170, kRight = 110, kBar = 26, kTop = 50;
  const auto groups = ByStrategy(runs);
  const Figure rate = [](const BenchRun& run) { return run.page_bytes_per_s() / kMega; };
  const Figure raw = [](const BenchRun& run) { return run.raw_bytes_per_s / kMega; };
  double most = 1;
  for (const BenchRun& run : runs) most = std::max({most, rate(run), raw(run)});
  const double height = kTop + kBar * static_cast<double>(groups.size()) + 30;
  const double scale = (kWidth - kLeft - kRight) / most;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n"
      "<text x=\"10\" y=\"22\" font-size=\"14\">{2}</text>\n",
      kWidth, height, XmlText(title));
  for (size_t i = 0; i < groups.size(); ++i) {
    // The bar shows the median, the black line the range from minimum to maximum.
    const Spread spread = SpreadOver(groups[i], rate);
    const double y = kTop + kBar * static_cast<double>(i);
    svg += fmt::format(
        "<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"end\">{}</text>\n"
        "<rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.1f}\" height=\"18\" fill=\"#4878a8\"/>\n"
        "<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.0f}\" y2=\"{:.0f}\" stroke=\"black\"/>\n"
        "<text x=\"{:.1f}\" y=\"{:.0f}\">{:.0f} MB/s</text>\n",
        kLeft - 8, y + 14, groups[i].front()->strategy, kLeft, y, spread.median * scale,
        kLeft + spread.min * scale, kLeft + spread.max * scale, y + 9, y + 9,
        kLeft + spread.max * scale + 6, y + 14, spread.median);
  }
  if (runs.front().raw_bytes_per_s == 0) return svg + "</svg>\n";  // not measured
  std::vector<const BenchRun*> all;
  for (const BenchRun& run : runs) all.push_back(&run);
  // The raw rate is that of the storage, so one median over the runs of all strategies is the
  // reference.
  const double raw_x = kLeft + SpreadOver(all, raw).median * scale;
  svg += fmt::format(
      "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.0f}\" y2=\"{2:.0f}\" stroke=\"#c03030\" "
      "stroke-dasharray=\"4 3\"/>\n<text x=\"{0:.1f}\" y=\"{3:.0f}\" fill=\"#c03030\" "
      "text-anchor=\"middle\">raw {4:.0f} MB/s</text>\n</svg>\n",
      raw_x, kTop - 6, height - 26, height - 10, SpreadOver(all, raw).median);
  return svg;
}

Status WriteText(const std::string& path, std::string_view text) {
  return file::WriteFileAtomically(path, std::as_bytes(std::span(text)));
}

}  // namespace lmdbio::tools
