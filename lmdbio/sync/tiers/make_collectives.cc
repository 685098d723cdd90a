#include "lmdbio/sync/tiers/make_collectives.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "lmdbio/ranks/group/host_topology.h"
#include "lmdbio/sync/collective/solo_collectives.h"
#include "lmdbio/sync/over_memory/host_collectives.h"
#include "lmdbio/sync/over_wire/link_wire.h"
#include "lmdbio/sync/over_wire/wire_collectives.h"
#include "lmdbio/sync/tiers/tiered_collectives.h"

namespace lmdbio::sync {
namespace {

using Made = Result<std::unique_ptr<Collectives>>;

Status CheckName(const std::string& name) {
  if (name == "mpi") {
    return Fail(ErrorCode::kUnsupported,
                "collective: 'mpi' needs a communicator; use MpiCollectives from "
                "lmdbio/sync/over_mpi/mpi_collectives.h");
  }
  for (const char* const known : {"auto", "shm", "ring", "halving", "direct"}) {
    if (name == known) return {};
  }
  return Fail(
      ErrorCode::kInvalidArgument,
      fmt::format("collective: '{}' is unknown; expected one of auto, shm, ring, halving, direct, "
                  "mpi",
                  name));
}

// Every rank finds the same error, because the topology is the same on all ranks.
Status CheckRoots(const CollectiveOptions& options, const ranks::HostTopology& places) {
  for (const std::vector<int>& ranks : places.ranks) {
    if (options.host_roots <= ranks.size()) continue;
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("host_roots: {} roots on each host need as many ranks; the host of rank "
                    "{} has {}",
                    options.host_roots, ranks.front(), ranks.size()));
  }
  return {};
}

Made OverLinks(ranks::Group& group, ranks::Health& health, const CollectiveOptions& options,
               int known_as) {
  LMDBIO_TRY(auto wire,
             OpenLinkWire(group, health, {.known_as = known_as, .wait_mode = options.wait_mode}));
  WireCollectiveOptions wire_options{.table = {},
                                     .chunk_bytes = options.chunk_bytes,
                                     .chunk_depth = options.chunk_depth,
                                     .trial_time = options.trial_time};
  if (options.collective != "auto") {
    LMDBIO_TRY(wire_options.algorithm, ParseWireAlgorithm(options.collective));
  } else if (options.is_reproducible) {
    wire_options.algorithm = ReproducibleAlgorithm(group.size());
  }
  return WireCollectives(std::move(wire), wire_options);
}

Made OnHost(ranks::Group& host, ranks::Health& health, const CollectiveOptions& options) {
  // A lone rank of a host gets its registered memory from HostCollectives, too.
  if (host.size() == 1 && options.registered_bytes == 0) return SoloCollectives();
  return HostCollectives(host, health,
                         {.wait = options.wait_mode, .registered_bytes = options.registered_bytes});
}

// Collective over `group`: over all hosts.
Result<std::vector<uint64_t>> AllOf(ranks::Group& group, uint64_t mine) {
  LMDBIO_TRY(const auto bytes, group.AllGather(std::as_bytes(std::span(&mine, 1))));
  std::vector<uint64_t> all(bytes.size() / sizeof mine);
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

// Only the roots open links, but every rank takes part in each step over `group`. ForAll brings the
// failure of a root to the ranks of its host.
Made OverTiers(ranks::Group& group, ranks::Group& host, ranks::HostTopology places,
               ranks::Health& health, const CollectiveOptions& options) {
  const int root_count = static_cast<int>(options.host_roots);
  const bool is_root = host.rank() < root_count;
  LMDBIO_TRY(const auto same_tier, group.Split(std::min(host.rank(), root_count)));
  LMDBIO_TRY(auto on_host, ForAll(group, OnHost(host, health, options)));
  Made roots = nullptr;
  if (is_root) roots = OverLinks(*same_tier, health, options, group.rank());
  LMDBIO_TRY(auto between, ForAll(group, std::move(roots)));
  // A host may have had no room for registered memory. The smallest size of all ranks holds for
  // all. The roots alone know the ample size; the others contribute 0 to the maximum.
  LMDBIO_TRY(const auto registered_bytes, AllOf(group, on_host->registered().size()));
  const uint64_t known_bytes = is_root ? options.host_roots * between->ample_bytes() : 0;
  LMDBIO_TRY(const auto ample_bytes, AllOf(group, known_bytes));
  const bool is_reproducible =
      on_host->is_reproducible() && (!is_root || between->is_reproducible());
  LMDBIO_TRY(const auto reproducible, AllOf(group, is_reproducible ? 1 : 0));
  const bool are_reproducible = std::ranges::min(reproducible) == 1;
  return TieredCollectives(std::move(places), group.rank(), std::move(on_host), std::move(between),
                           {.host_roots = root_count,
                            .registered_bytes = std::ranges::min(registered_bytes),
                            .ample_bytes = std::ranges::max(ample_bytes),
                            .is_reproducible = are_reproducible});
}

}  // namespace

// The options are equal on all ranks, so all of them take the same branch. An algorithm that is
// named sends messages also within a host.
Made MakeCollectives(ranks::Group& group, ranks::Health& health, const CollectiveOptions& options) {
  LMDBIO_TRY_VOID(CheckName(options.collective));
  if (options.host_roots != 1 && options.collective != "auto") {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("host_roots: {} roots on each host need collective 'auto', not '{}'",
                            options.host_roots, options.collective));
  }
  if (group.size() == 1) return SoloCollectives();
  if (options.collective != "auto" && options.collective != "shm") {
    return ForAll(group, OverLinks(group, health, options, group.rank()));
  }
  LMDBIO_TRY(const auto host, group.SplitByHost());
  LMDBIO_TRY(ranks::HostTopology places, ranks::FindHostPlaces(group, *host));
  LMDBIO_TRY_VOID(CheckRoots(options, places));
  if (places.host_count() == 1) return ForAll(group, OnHost(*host, health, options));
  if (options.collective == "shm") {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("collective: 'shm' works on one host only, the job has {}; use 'auto'",
                            places.host_count()));
  }
  if (places.host_count() == group.size()) {
    return ForAll(group, OverLinks(group, health, options, group.rank()));
  }
  return OverTiers(group, *host, std::move(places), health, options);
}

}  // namespace lmdbio::sync
