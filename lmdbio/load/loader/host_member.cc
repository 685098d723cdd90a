#include "lmdbio/load/loader/host_member.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace lmdbio::load {
namespace {

// The message that each rank sends to the other ranks of its host.
struct HostGreeting {
  uint64_t cores_digest = 0;  // of the cores that the process may use
  int64_t rank = 0;           // among the ranks of all shards
};

// Divides the cores. Ranks of a host that may use the same cores share them.
// greetings  [ranks of the host, in their order]
Status FindCores(const LoaderOptions& options, std::span<const HostGreeting> greetings,
                 HostMember& member, Notes& notes) {
  if (options.placement.empty()) return {};
  LMDBIO_TRY(const HostCores cores, ProcessTopology());
  std::vector<uint64_t> digests;
  for (const HostGreeting& greeting : greetings) digests.push_back(greeting.cores_digest);
  LMDBIO_TRY(member.placement,
             PlaceThreads(options.placement, cores, PlaceAmong(member.host->rank(), digests)));
  notes.Add(member.placement.notes);
  return {};
}

}  // namespace

Result<HostMember> HostMember::Find(ranks::Group& group, const LoaderOptions& options,
                                    Notes& notes) {
  HostMember member;
  LMDBIO_TRY(member.host, group.SplitByHost());
  // The ranks of all shards count as one job, so each shard gets its own shares of every batch.
  member.rank = options.shard_id * group.size() + group.rank();
  // Ranks with the same digest may use the same cores and must divide them. An error shows in
  // FindCores, after the collective call.
  const Result<HostCores> cores = ProcessCores();
  const HostGreeting mine = {CoresDigest(cores ? cores->allowed : CoreList()), member.rank};
  LMDBIO_TRY(const std::vector<std::byte> gathered,
             member.host->AllGather(std::as_bytes(std::span(&mine, 1))));
  std::vector<HostGreeting> greetings(static_cast<size_t>(member.host->size()));
  std::memcpy(greetings.data(), gathered.data(), gathered.size());
  std::vector<int> local_ranks;
  local_ranks.reserve(greetings.size());
  for (const HostGreeting& one : greetings) local_ranks.push_back(static_cast<int>(one.rank));
  member.ranks = {group.size() * options.num_shards, std::move(local_ranks), options.share,
                  options.reuse_among};
  member.local_index = static_cast<size_t>(member.host->rank());
  // The first ranks of a host are its readers.
  member.reader_count = static_cast<int>(
      std::min(options.readers_per_host, static_cast<uint32_t>(member.host->size())));
  if (member.host->rank() < member.reader_count) member.reader_index = member.host->rank();
  member.is_only_host = member.host->size() == group.size();
  LMDBIO_TRY_VOID(ranks::Agree(group, FindCores(options, greetings, member, notes)));
  return member;
}

}  // namespace lmdbio::load
