// lmdbio/sync/control/exchange.h - the exchanges of a round.
//
// A coordinator sends no messages. It returns the exchange that it needs. The caller executes it
// among the ranks (over shared memory, MPI, or in a test) and passes the reply to the coordinator.
#ifndef LMDBIO_SYNC_CONTROL_EXCHANGE_H_
#define LMDBIO_SYNC_CONTROL_EXCHANGE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lmdbio::sync {

// The ranks and hosts of a job.
struct Ranks {
  int rank = 0;
  int size = 1;
  std::vector<int>
      host_of;         // [size] 0, 1, ... in the order of each host's first rank; may be empty:
                       // one host. The first rank of a host is its root; rank 0 is one
  int tree_arity = 0;  // children of a host in the tree of hosts, at most; 0: all hosts are
                       // children of host 0
};

// The arity of the tree of hosts for an option of this value, in a job of `rank_count` ranks. With
// as many children as ranks the tree has one level already.
inline int LimitedArity(uint32_t tree_arity, int rank_count) {
  return static_cast<int>(std::min(tree_arity, static_cast<uint32_t>(rank_count)));
}

// The host above `host` in the tree of hosts. Host 0 is at the top. Each level is filled before the
// next one, in the order of the numbers, so a host has a larger number than the host above it.
// Requires: host > 0
inline int ParentHost(int host, int tree_arity) {
  return tree_arity == 0 ? 0 : (host - 1) / tree_arity;
}

enum class ExchangeKind : uint8_t {
  kIntersect,  // all ranks get the bitwise AND of the words of all ranks
  kGather,     // the first rank of the scope gets the bytes of all ranks
  kBroadcast,  // all ranks get the bytes of the first rank
};

enum class ExchangeScope : uint8_t {
  kAll,   // every rank
  kHost,  // the ranks of this rank's host
  // Exchanges along the tree of hosts, in which only the roots of hosts take part. A host and the
  // hosts directly below it form one scope. It has two names:
  kChildren,  // for the root of the upper host, which is the first rank of the scope
  kParent,    // for the roots of the lower hosts
};

struct Exchange {
  ExchangeKind kind = ExchangeKind::kIntersect;
  ExchangeScope scope = ExchangeScope::kAll;
  std::vector<uint64_t> words;  // kIntersect: of this rank; as many on every rank
  std::vector<std::byte>
      bytes;  // kGather: of this rank; kBroadcast: on the first rank, its message
};

struct Reply {
  std::vector<uint64_t> words;                   // kIntersect
  std::vector<std::vector<std::byte>> gathered;  // kGather, on the first rank: [ranks of the scope]
  std::vector<std::byte> bytes;                  // kBroadcast
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_CONTROL_EXCHANGE_H_
