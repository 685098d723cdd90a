#include "lmdbio/load/loader/reader_links.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace lmdbio::load {
namespace {

// Connects this reader with the readers of the same index on the other hosts.
Status OpenLocatorLinks(ranks::Group& readers, int job_rank, const HostMember& member,
                        LocateMethod locating, ReaderLinks& links, Notes& notes) {
  if (!member.is_reader() || readers.size() == 1) return {};
  switch (locating) {
    case LocateMethod::kHandedCursor: {
      LMDBIO_TRY(links.handoff, CursorHandoff::Create(readers, job_rank));
      return {};
    }
    case LocateMethod::kScan: {
      // The other readers of a host use the layout that its first reader finds.
      if (member.reader_index > 0) return {};
      // Each host can walk the whole tree alone, so a failure here must not end the job.
      Result<std::unique_ptr<LayoutAllGather>> gather = LayoutAllGather::Create(readers, job_rank);
      if (gather) links.gather = std::move(*gather);
      if (!gather) notes.Add(gather.error().message() + ": every host walks the whole tree");
      return {};
    }
    default: {
      // Without locations a host cannot read, so this failure ends Open.
      LMDBIO_TRY(links.broadcast, LocationBroadcast::Create(readers, job_rank));
      return {};
    }
  }
}

// Tokens are an optimisation: without them every reader reads at any time.
Status OpenStagger(ranks::Group& group, const LoaderOptions& options, const HostMember& member,
                   const OpenDecision& decision, ReaderLinks& links, Notes& notes) {
  if (!MayStagger(decision, options)) return {};
  // On one host `auto` makes no trial: its readers share one window, so none is far ahead.
  const bool is_wanted =
      options.stagger > 0 || CompositionOf(options.strategy).staggering == Staggering::kTokens;
  if (member.is_only_host && (member.reader_count == 1 || !is_wanted)) return {};
  // All ranks come here or none does: MayStagger depends on agreed values alone. The split also
  // tells each rank the number of readers, without another call.
  LMDBIO_TRY(const auto alike, group.Split(member.is_reader() ? 1 : 0));
  const int reader_count = member.is_reader() ? alike->size() : group.size() - alike->size();
  // On one host, idle_options.h has the note.
  const bool is_idle = options.stagger >= static_cast<uint32_t>(reader_count);
  if (is_idle && options.stagger > 0 && group.rank() == 0 && !member.is_only_host) {
    notes.Add(
        fmt::format("stagger {} has no effect: the job has {} reader(s); see readers_per_host",
                    options.stagger, reader_count));
  }
  StaggerOptions turns = StaggerFor(options, static_cast<uint64_t>(reader_count));
  if (turns.token_counts.empty() || !member.is_reader()) return {};
  Result<std::unique_ptr<Stagger>> stagger =
      Stagger::Create(*alike, std::move(turns), group.rank());
  if (stagger) links.stagger = std::move(*stagger);
  if (!stagger) notes.Add(stagger.error().message() + ": staggering is off");
  return {};
}

// The exchange is an optimisation: without it each host reads what it needs. A chunk has bytes for
// neighbouring hosts, so each of them exchanges with its neighbours only.
Status OpenExchange(ranks::Group& group, const HostMember& member, const OpenDecision& decision,
                    ReaderLinks& links, Notes& notes) {
  if (!decision.exchanges) return {};
  LMDBIO_TRY(const auto alike, group.Split(member.is_reader() ? 1 : 0));
  LMDBIO_TRY(const auto neighbours, alike->Split(ExchangeGroupOf(alike->rank(), alike->size())));
  if (!member.is_reader() || neighbours->size() == 1) return {};
  Result<ExchangeLinks> opened = OpenExchangeLinks(*neighbours);
  if (opened) links.exchange = std::move(*opened);
  if (!opened) notes.Add(opened.error().message() + ": each host reads what it needs");
  return {};
}

}  // namespace

int ExchangeGroupOf(int reader, int reader_count) {
  const int group_count = (reader_count + kExchangeReadersMax - 1) / kExchangeReadersMax;
  return static_cast<int>(int64_t{reader} * group_count / reader_count);
}

Result<bool> CanHandOn(ranks::Group& group, const LoaderOptions& options,
                       const HostMember& member) {
  // The list is ascending, so the ranks follow each other if its ends are size - 1 apart.
  const auto& ranks = member.ranks.local_ranks;
  const bool mine = options.share == Share::kBlock && options.reuse == 1 &&
                    ranks.back() - ranks.front() + 1 == static_cast<int>(ranks.size());
  LMDBIO_TRY(const auto all, group.AllGather(std::as_bytes(std::span(&mine, 1))));
  return std::all_of(all.begin(), all.end(), [](std::byte one) { return one != std::byte{0}; });
}

Result<ReaderLinks> OpenReaderLinks(ranks::Group& group, const LoaderOptions& options,
                                    const HostMember& member, const OpenDecision& decision,
                                    Notes& notes) {
  ReaderLinks links;
  const LocateMethod locating = decision.locating;
  const bool is_shared = locating == LocateMethod::kHandedCursor ||
                         locating == LocateMethod::kOneWalker || locating == LocateMethod::kScan;
  if (is_shared && !member.is_only_host) {
    // One group for the first readers of all hosts, one for the second readers, and one for the
    // ranks that do not read. The last group opens nothing, but takes part in the agreement.
    LMDBIO_TRY(const auto readers, group.Split(member.reader_index + 1));
    LMDBIO_TRY_VOID(ranks::Agree(
        group, OpenLocatorLinks(*readers, group.rank(), member, locating, links, notes)));
  }
  LMDBIO_TRY_VOID(OpenStagger(group, options, member, decision, links, notes));
  LMDBIO_TRY_VOID(OpenExchange(group, member, decision, links, notes));
  return links;
}

}  // namespace lmdbio::load
