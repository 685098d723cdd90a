#include "tests/campaign/kills/kills_ledger.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

namespace lmdbio::test {
namespace {

// The last state that all ranks have, by the number of batches before it.
std::optional<uint64_t> LastCommon(const std::vector<KillTimeline>& ranks) {
  std::optional<uint64_t> last;
  for (const auto& [count, state] : ranks.front().states) {
    const auto has = [&, at = count](const KillTimeline& one) { return one.states.contains(at); };
    if (std::ranges::all_of(ranks, has)) last = count;
  }
  return last;
}

}  // namespace

std::string StreamLedger::Take(const std::vector<KillTimeline>& ranks) {
  for (const KillTimeline& rank : ranks) {
    for (const auto& batch : rank.batches) {
      for (const LoggedRecord& record : batch) {
        const auto [at, is_new] = seen_.emplace(record.position, record.digest);
        if (!is_new && at->second != record.digest) {
          return fmt::format("position {} has another record than in an earlier run",
                             record.position);
        }
      }
    }
  }
  const std::optional<uint64_t> last = LastCommon(ranks);
  return last ? Keep(ranks, *last) : "";
}

std::string StreamLedger::Keep(const std::vector<KillTimeline>& ranks, uint64_t batch_count) {
  const LoggedState& state = ranks.front().states.at(batch_count);
  for (const KillTimeline& rank : ranks) {
    if (rank.states.at(batch_count).text != state.text) {
      return fmt::format("ranks have saved different states after {} batches", batch_count);
    }
    for (uint64_t batch = 0; batch < batch_count; ++batch) {
      for (const LoggedRecord& record : rank.batches[batch]) {
        if (kept_.emplace(record.position, record.digest).second) continue;
        return fmt::format("position {} came twice: batch {} of a run", record.position, batch);
      }
    }
  }
  state_ = state.text;
  is_over_ = state.is_last;
  return "";
}

std::string StreamLedger::Check() const {
  for (uint64_t epoch = 0; epoch < job_.epoch_count; ++epoch) {
    std::string finding = CheckEpoch(epoch);
    if (!finding.empty()) return finding;
  }
  return "";
}

std::string StreamLedger::CheckEpoch(uint64_t epoch) const {
  const std::vector<uint64_t>& all = job_.database->digests;
  const uint64_t batch_size = job_.options.global_batch_size;
  const bool drops = job_.options.tail == load::Tail::kDrop;
  const uint64_t wanted = drops ? all.size() / batch_size * batch_size : all.size();
  const uint64_t first = epoch * all.size();
  std::vector<uint64_t> digests;
  for (auto at = kept_.lower_bound(first); at != kept_.end(); ++at) {
    if (at->first >= first + all.size()) break;
    if (at->first != first + digests.size()) {
      return fmt::format("epoch {}: position {} is missing", epoch, first + digests.size());
    }
    digests.push_back(at->second);
  }
  std::ranges::sort(digests);
  if (digests.size() != wanted || !std::ranges::includes(all, digests)) {
    return fmt::format("epoch {}: {} records, expected {} of the database, each once", epoch,
                       digests.size(), wanted);
  }
  return "";
}

}  // namespace lmdbio::test
