#include "tools/timeline/timeline_report.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <utility>

#include <fmt/format.h>

namespace lmdbio::tools {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kMissingMax = 10;
// More than buckets of an iteration whose slices alternate.
constexpr size_t kBucketsKept = 4096;

// The quantile by the nearest-rank method; 0 without values.
double Quantile(std::vector<float> values, double share) {
  if (values.empty()) return 0;
  const auto at = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(std::max<size_t>(at, 1) - 1);
  std::ranges::nth_element(values, place);
  return *place;
}

// Rounds to one decimal.
double Rounded(double value) { return std::round(value * 10) / 10; }

double Percent(double part, double all) { return all > 0 ? Rounded(100 * part / all) : 0; }

ordered_json Describe(const std::vector<float>& durations_us) {
  return {{"count", durations_us.size()},
          {"p50_us", Rounded(Quantile(durations_us, 0.5))},
          {"p95_us", Rounded(Quantile(durations_us, 0.95))},
          {"max_us", Rounded(Quantile(durations_us, 1))}};
}

uint64_t WholeIn(const json& object, const char* name) {
  const auto member = object.find(name);
  return member != object.end() && member->is_number_unsigned() ? member->get<uint64_t>() : 0;
}

uint64_t ArgumentOf(const json& event, const char* name) {
  return event.contains("args") ? WholeIn(event["args"], name) : 0;
}

std::string NameOf(const json& event) { return event.value("name", ""); }

void Advise(ordered_json& advice, std::string text) {
  advice.push_back({{"text", std::move(text)}});
}

}  // namespace

size_t TimelineReport::TensorNamed(const std::string& name) {
  const auto [place, is_new] = tensor_of_name_.try_emplace(name, tensors_.size());
  if (is_new) tensors_.emplace_back().name = name;
  return place->second;
}

void TimelineReport::Take(const json& event) {
  const int number = event["pid"].get<int>();
  RankReport& rank = ranks_[number];
  const std::string kind = event["ph"];
  if (kind == "M") return TakeMetadata(event, rank);
  const double at = event["ts"].get<double>();
  const double end = kind == "X" ? at + event["dur"].get<double>() : at;
  // Events of all kinds count: the span shows how long the file of a rank reaches.
  rank.first = rank.has_event ? std::min(rank.first, at) : at;
  rank.last = rank.has_event ? std::max(rank.last, end) : end;
  rank.has_event = true;
  if (kind == "B") TakeBegin(event, number, rank, at);
  if (kind == "E") TakeEnd(event, rank, at);
  if (kind == "X") TakeSpan(event, rank, at);
}

void TimelineReport::TakeMetadata(const json& event, RankReport& rank) {
  const std::string name = NameOf(event);
  if (name == "lmdbio_end") rank.lost_count += ArgumentOf(event, "lost_events");
  if (name != "thread_name" || !event.contains("args")) return;
  const auto text = event["args"].find("name");
  if (text == event["args"].end() || !text->is_string()) return;
  ReportTrack& row = rank.rows[WholeIn(event, "tid")];
  // A rank names the row of a tensor before its first event there, so later events find the tensor
  // by their row.
  row.tensor = TensorNamed(*text);
  row.has_name = true;
}

void TimelineReport::TakeBegin(const json& event, int number, RankReport& rank, double at) {
  ReportTrack& row = rank.rows[WholeIn(event, "tid")];
  if (!row.has_name || NameOf(event) != "negotiate") return;
  row.is_negotiating = true;
  row.begin = at;
  row.has_begin = true;
  CountSubmission(row.tensor, ArgumentOf(event, "number"), number, at);
}

// Keeps the two latest submission times of a tensor over all ranks. Files are read one after
// another, so the times arrive in any order. The second rank sets before_last in any case, because
// it has no time until then.
void TimelineReport::CountSubmission(size_t tensor, uint64_t number, int rank, double at) {
  SubmissionTime& submission = submissions_[{number, tensor}];
  submission.ranks.push_back(rank);
  if (submission.last_rank < 0 || at > submission.last) {
    if (submission.last_rank >= 0) submission.before_last = submission.last;
    submission.last = at;
    submission.last_rank = rank;
  } else if (submission.ranks.size() == 2 || at > submission.before_last) {
    submission.before_last = at;
  }
}

void TimelineReport::CountPhase(const char* name, TensorReport& tensor, double took) {
  phases_[name].push_back(static_cast<float>(took));
  tensor.phase_us[name] += took;
}

void TimelineReport::TakeEnd(const json& event, RankReport& rank, double at) {
  ReportTrack& row = rank.rows[WholeIn(event, "tid")];
  if (!row.is_negotiating) return;
  row.is_negotiating = false;
  CountPhase("negotiate", tensors_[row.tensor], at - row.begin);
  rank.under_way.Add(row.begin, at);
  rank.negotiating.Add(row.begin, at);
}

void TimelineReport::TakeSpan(const json& event, RankReport& rank, double at) {
  const std::string name = NameOf(event);
  const double end = at + event["dur"].get<double>();
  // The spans of a bucket come before the bucket itself in the file, and the tensors of a bucket
  // after it. Slices of other buckets may come between.
  if (name == "wait") {
    rank.waiting.Add(at, end);
  } else if (name == "transfer") {
    OpenTransfers& transfers = rank.transfers;
    if (!std::exchange(transfers.has_one, true)) transfers.begin = at;
    transfers.duration += end - at;
  } else if (name == "bucket") {
    TakeBucket(event, rank, at, end);
  } else if (event.contains("args") && event["args"].contains("bucket")) {
    TakeOperation(event, rank, at, end);
  }
}

// Divides the time of a bucket, or of a slice. Packing lasts until the first transfer; the time
// after that outside transfers is unpacking. A bucket without transfers counts as one transfer.
void TimelineReport::TakeBucket(const json& event, RankReport& rank, double at, double end) {
  const OpenTransfers transfers = std::exchange(rank.transfers, {});
  BucketTimes& bucket = rank.buckets[ArgumentOf(event, "number")];
  bucket.end = end;
  if (transfers.has_one && transfers.begin >= at) {
    bucket.pack += transfers.begin - at;
    bucket.transfer += transfers.duration;
    bucket.unpack += std::max(0.0, end - transfers.begin - transfers.duration);
  } else {
    bucket.transfer += end - at;
  }
  if (rank.buckets.size() > kBucketsKept) rank.buckets.erase(rank.buckets.begin());
  rank.transferring.Add(at, end);
  rank.bucket_bytes.push_back(static_cast<double>(ArgumentOf(event, "bytes")));
}

// Counts a tensor from the time at which all ranks have submitted it. All tensors of a bucket get
// the phases of the bucket.
void TimelineReport::TakeOperation(const json& event, RankReport& rank, double at, double end) {
  ReportTrack& row = rank.rows[WholeIn(event, "tid")];
  if (!row.has_name) return;
  TensorReport& tensor = tensors_[row.tensor];
  rank.under_way.Add(at, end);
  if (NameOf(event) == "declined") return CountPhase("declined", tensor, end - at);
  const auto found = rank.buckets.find(ArgumentOf(event, "bucket"));
  if (found == rank.buckets.end()) return;  // it failed, or events were lost
  const BucketTimes& bucket = found->second;
  CountPhase("pack", tensor, bucket.pack);
  CountPhase("transfer", tensor, bucket.transfer);
  CountPhase("unpack", tensor, bucket.unpack);
  CountPhase("finish", tensor, std::max(0.0, end - bucket.end));
  if (row.has_begin) tensor.total.push_back(static_cast<float>(end - row.begin));
  row.has_begin = false;
}

ordered_json TimelineReport::DescribePhases() const {
  ordered_json phases = ordered_json::array();
  // The order in which a tensor passes through the phases; the map would sort them by name.
  for (const char* name : {"negotiate", "declined", "pack", "transfer", "unpack", "finish"}) {
    const auto phase = phases_.find(name);
    if (phase == phases_.end()) continue;
    phases.push_back({{"phase", name}});
    phases.back().update(Describe(phase->second));
  }
  return phases;
}

// The tensors with the longest 95th percentile.
ordered_json TimelineReport::DescribeTensors(size_t count_max) const {
  std::vector<std::pair<double, const TensorReport*>> slowest;
  for (const TensorReport& tensor : tensors_) {
    if (!tensor.total.empty()) slowest.emplace_back(Quantile(tensor.total, 0.95), &tensor);
  }
  std::ranges::stable_sort(slowest, std::greater(), [](const auto& one) { return one.first; });
  slowest.resize(std::min(slowest.size(), count_max));
  ordered_json tensors = ordered_json::array();
  for (const auto& [p95, tensor] : slowest) {
    ordered_json described = {{"tensor", tensor->name}};
    described.update(Describe(tensor->total));
    // Every tensor with a total time has counted phases, so there is a longest one.
    const auto longest = std::ranges::max_element(tensor->phase_us, {},
                                                  [](const auto& phase) { return phase.second; });
    described["longest_phase"] = longest->first;
    tensors.push_back(std::move(described));
  }
  return tensors;
}

// Counts for each rank how often it was the last to submit, and by how much. A rank that is last
// far more often than its fair share yields advice.
ordered_json TimelineReport::DescribeLast(ordered_json& advice) const {
  std::map<int, std::vector<float>> behind;
  size_t all_count = 0;
  for (const auto& [key, submission] : submissions_) {
    // Without all ranks the last one is unknown: the file of another rank may be truncated.
    if (submission.ranks.size() != ranks_.size() || ranks_.size() < 2) continue;
    ++all_count;
    behind[submission.last_rank].push_back(
        static_cast<float>(submission.last - submission.before_last));
  }
  ordered_json table = ordered_json::array();
  for (const auto& [rank, us] : behind) {
    ordered_json described = {{"rank", rank}, {"times", us.size()}};
    const double percent = Percent(static_cast<double>(us.size()), static_cast<double>(all_count));
    described["percent"] = percent;
    described["behind_the_next_p50_us"] = Rounded(Quantile(us, 0.5));
    described["behind_the_next_p95_us"] = Rounded(Quantile(us, 0.95));
    described["behind_the_next_max_us"] = Rounded(Quantile(us, 1));
    table.push_back(std::move(described));
    // The fair share of P ranks is 100 / P percent. Half as much again counts as far more, and
    // delays below 100 microseconds are noise.
    const double fair = 100.0 / static_cast<double>(ranks_.size());
    if (percent >= std::min(90.0, 1.5 * fair) && Quantile(us, 0.5) > 100) {
      Advise(advice,
             fmt::format("rank {} was the last to submit in {} % of the cases, by {:.1f} ms "
                         "at the median; the other ranks wait for it",
                         rank, percent, Quantile(us, 0.5) / 1000));
    }
  }
  return table;
}

// Tensors that some ranks submitted and another did not, although the other rank's file has later
// events. A file with lost events proves nothing.
ordered_json TimelineReport::DescribeMissing() const {
  ordered_json missing = ordered_json::array();
  size_t count = 0;
  for (const auto& [key, submission] : submissions_) {
    if (submission.ranks.size() >= ranks_.size()) continue;
    std::string ranks;
    for (const auto& [number, rank] : ranks_) {
      const bool is_there = std::ranges::find(submission.ranks, number) != submission.ranks.end();
      if (is_there || rank.lost_count > 0 || rank.last <= submission.last) continue;
      ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", number);
    }
    if (ranks.empty() || ++count > kMissingMax) continue;
    missing.push_back({{"tensor", tensors_[key.second].name},
                       {"number", key.first},
                       {"never_submitted_by_ranks", ranks}});
  }
  if (count > kMissingMax) {
    missing.push_back({{"tensor", fmt::format("and {} more", count - kMissingMax)}});
  }
  return missing;
}

// Exposed time is the time in which a thread of the program waited. Without recorded waits it is
// the time in which tensors were in flight, which is an upper bound.
ordered_json TimelineReport::DescribeExposed(ordered_json& advice) const {
  bool has_waits = false;
  for (const auto& [number, rank] : ranks_) has_waits |= rank.waiting.Length() > 0;
  double all = 0, exposed = 0, transfer = 0, negotiation = 0;
  for (const auto& [number, rank] : ranks_) {
    // If one rank has recorded waits, the waits count on all ranks: a rank without any was never
    // held up.
    const TimeSpans& open = has_waits ? rank.waiting : rank.under_way;
    all += rank.last - rank.first;
    exposed += open.Length();
    transfer += open.And(rank.transferring).Length();
    // Negotiation counts only while nothing is transferred, so no time counts twice.
    negotiation += open.Without(rank.transferring).And(rank.negotiating).Length();
  }
  if (negotiation > transfer && negotiation > 0.1 * all) {
    Advise(advice,
           "most of the exposed time is negotiation: check which rank submits last, and whether a "
           "plan is active");
  } else if (transfer > 0.1 * all) {
    Advise(advice, "most of the exposed time is transfer: submit earlier, or move fewer bytes");
  }
  return {{"counted", has_waits ? "while the program waited" : "while tensors were in flight"},
          {"percent_of_time", Percent(exposed, all)},
          {"negotiation_percent", Percent(negotiation, exposed)},
          {"transfer_percent", Percent(transfer, exposed)},
          {"other_percent", Percent(exposed - negotiation - transfer, exposed)}};
}

// The buckets of the first rank with buckets, because all ranks have the same.
ordered_json TimelineReport::DescribeBuckets(ordered_json& advice) const {
  const std::vector<double>* bytes = nullptr;
  for (const auto& [number, rank] : ranks_) {
    if (!rank.bucket_bytes.empty() && bytes == nullptr) bytes = &rank.bucket_bytes;
  }
  if (bytes == nullptr) return {{"count", 0}};
  const std::vector<float> sizes(bytes->begin(), bytes->end());
  const double median = Quantile(sizes, 0.5);
  ordered_json described = {{"count", bytes->size()},
                            {"bytes_p10", Quantile(sizes, 0.1)},
                            {"bytes_p50", median},
                            {"bytes_p95", Quantile(sizes, 0.95)},
                            {"bytes_max", Quantile(sizes, 1)}};
  // Counted by the power of two at or below the size.
  std::map<uint64_t, uint64_t> histogram;
  for (const double one : *bytes) ++histogram[std::bit_floor(static_cast<uint64_t>(one))];
  ordered_json by_bytes = ordered_json::object();
  for (const auto& [low, count] : histogram) {
    by_bytes[fmt::format("{} to {}", low, low == 0 ? 0 : 2 * low - 1)] = count;
  }
  described["by_bytes"] = std::move(by_bytes);
  constexpr double kSmall = 256 << 10;
  if (bytes->size() >= 10 && median < kSmall) {
    Advise(advice, fmt::format("half of the buckets have at most {:.0f} bytes: raise bucket_bytes "
                               "or fusion_threshold_bytes, or reduce num_groups",
                               median));
  }
  return described;
}

ordered_json TimelineReport::Outcome(size_t tensor_count_max) const {
  ordered_json advice = ordered_json::array();
  ordered_json outcome;
  double first = 0, last = 0;
  uint64_t lost_count = 0;
  for (const auto& [number, rank] : ranks_) {
    first = number == ranks_.begin()->first ? rank.first : std::min(first, rank.first);
    last = std::max(last, rank.last);
    lost_count += rank.lost_count;
  }
  outcome["seconds"] = std::round((last - first) / 1000) / 1000;
  if (lost_count > 0) outcome["lost_events"] = lost_count;
  outcome["phases"] = DescribePhases();
  outcome["slowest_tensors"] = DescribeTensors(tensor_count_max);
  outcome["last_to_submit"] = DescribeLast(advice);
  outcome["missing"] = DescribeMissing();
  outcome["exposed"] = DescribeExposed(advice);
  outcome["buckets"] = DescribeBuckets(advice);
  outcome["advice"] = std::move(advice);
  return outcome;
}

}  // namespace lmdbio::tools
