#include "lmdbio/ranks/net/job_addresses.h"

#include <sys/eventfd.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/unique_fd.h"
#include "lmdbio/ranks/shm/call_failure.h"

namespace lmdbio::ranks {
namespace {

// Collective. Rank 0 draws the key, and all ranks get it.
Result<JobKey> ShareKey(Group& group) {
  LMDBIO_TRY(JobKey key, ForAll(group, group.rank() == 0 ? DrawJobKey() : JobKey{}));
  LMDBIO_TRY_VOID(group.Broadcast(0, key));
  return key;
}

// Collective. Whether all ranks are in one network namespace.
Result<bool> AreInOneNetwork(Group& group) {
  const uint64_t mine = NetworkNamespace();
  LMDBIO_TRY(const auto all, group.AllGather(std::as_bytes(std::span(&mine, 1))));
  // The number of a namespace is unique on one host only.
  bool is_one_network = mine != 0 && group.host_name().empty();
  for (size_t at = 0; at < all.size(); at += sizeof mine) {
    is_one_network = is_one_network && std::memcmp(&all[at], &mine, sizeof mine) == 0;
  }
  return is_one_network;
}

// The addresses at which the other ranks may connect to this one: the loopback alone, if all ranks
// are in its network namespace.
Result<std::vector<PeerAddress>> UsefulAddresses(bool is_one_network) {
  LMDBIO_TRY(std::vector<PeerAddress> addresses, OwnAddresses());
  if (is_one_network && std::any_of(addresses.begin(), addresses.end(), IsLoopback)) {
    std::erase_if(addresses, [](const PeerAddress& one) { return !IsLoopback(one); });
  }
  return addresses;
}

// Opens `count` descriptors and closes them again. A rank that runs out of descriptors during the
// rendezvous would make all other ranks wait for the time limit.
Status CheckDescriptors(size_t count) {
  std::vector<UniqueFd> taken;
  while (taken.size() < count) {
    UniqueFd one(::eventfd(0, EFD_CLOEXEC));
    if (one) {
      taken.push_back(std::move(one));
      continue;
    }
    const int error_number = errno;
    const size_t room = taken.size();
    taken.clear();  // reading the limit, and the rest of the process, may need descriptors
    return CallFailed(
        ErrorCode::kResourceExhausted,
        fmt::format("{} connections to other ranks are needed, but only {} can be opened", count,
                    room),
        error_number);
  }
  return {};
}

// The own addresses and the open door of this rank.
Result<JobAddresses> OpenDoor(bool is_one_network, const AddressPlan& plan) {
  JobAddresses job;
  LMDBIO_TRY(job.own, UsefulAddresses(is_one_network));
  if (plan.listens == AddressPlan::Listens::kYes) {
    LMDBIO_TRY(job.door, PeerDoor::Open(job.own));
  }
  LMDBIO_TRY_VOID(CheckDescriptors(plan.connection_count));
  return job;
}

}  // namespace

Result<JobKey> DrawJobKey() {
  JobKey key{};
  if (::getrandom(key.data(), key.size(), 0) == static_cast<ssize_t>(key.size())) return key;
  return CallFailed(ErrorCode::kUnsupported, "getrandom", errno);
}

std::vector<PeerAddress> JobAddresses::InOrderFor(int rank) const {
  const Reachability& there = of_ranks[static_cast<size_t>(rank)];
  return InOrderOfTry(own, std::span(there.addresses).first(there.address_count));
}

Result<JobAddresses> ExchangeAddresses(Group& group, const AddressPlan& plan) {
  LMDBIO_TRY(const bool is_one_network, AreInOneNetwork(group));
  LMDBIO_TRY(JobAddresses job, ForAll(group, OpenDoor(is_one_network, plan)));
  LMDBIO_TRY(job.key, ShareKey(group));
  // A rank that does not listen contributes an entry without addresses, so that entry r belongs to
  // rank r.
  const Reachability mine = job.door.reachability();
  LMDBIO_TRY(const auto gathered, group.AllGather(std::as_bytes(std::span(&mine, 1))));
  for (int rank = 0; rank < group.size(); ++rank) {
    const Bytes theirs =
        Bytes(gathered).subspan(static_cast<size_t>(rank) * sizeof mine, sizeof mine);
    const std::optional<Reachability> there = ReachabilityIn(theirs);
    if (!there) {
      return Fail(ErrorCode::kInternal, fmt::format("rank {} has sent malformed addresses", rank));
    }
    job.of_ranks.push_back(*there);
  }
  return job;
}

}  // namespace lmdbio::ranks
