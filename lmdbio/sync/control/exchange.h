// lmdbio/sync/control/exchange.h - the exchanges of a round.
//
// A coordinator sends no messages. It returns the exchange that it needs. The caller executes it
// among the ranks (over shared memory, MPI, or in a test) and passes the reply to the coordinator.
#ifndef LMDBIO_SYNC_CONTROL_EXCHANGE_H_
#define LMDBIO_SYNC_CONTROL_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lmdbio::sync {

// The ranks and hosts of a job.
struct Ranks {
  int rank = 0;
  int size = 1;
  std::vector<int>
      host_of;  // [size] 0, 1, ... in the order of each host's first rank; may be empty:
                // one host. The first rank of a host is its root; rank 0 is one
};

enum class ExchangeKind : uint8_t {
  kIntersect,  // all ranks get the bitwise AND of the words of all ranks
  kGather,     // the first rank of the scope gets the bytes of all ranks
  kBroadcast,  // all ranks get the bytes of the first rank
};

enum class ExchangeScope : uint8_t {
  kAll,    // every rank
  kHost,   // the ranks of this rank's host
  kRoots,  // the roots of all hosts; other ranks take no part
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
