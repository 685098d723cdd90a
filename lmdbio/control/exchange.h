// lmdbio/control/exchange.h - what a coordinator asks the ranks to tell each other.
//
// A coordinator never talks. It says which exchange it needs, whoever drives it lets the ranks make
// it (over shared memory, MPI, or in a test), and hands back the reply.
#ifndef LMDBIO_CONTROL_EXCHANGE_H_
#define LMDBIO_CONTROL_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lmdbio::control {

// The ranks, as a coordinator needs to know them.
struct Ranks {
  int rank = 0;
  int size = 1;
  std::vector<int>
      host_of;  // [size] 0, 1, ... in the order of each host's first rank; may be empty:
                // one host. The first rank of a host is its root; rank 0 is one
};

enum class ExchangeKind : uint8_t {
  kIntersect,  // the words become the bitwise AND of everybody's
  kGather,     // the first rank of the scope gets everybody's bytes
  kBroadcast,  // the first rank's bytes become everybody's
};

enum class ExchangeScope : uint8_t {
  kAll,    // every rank
  kHost,   // the ranks of this rank's host
  kRoots,  // the roots of all hosts; no other rank is asked for it
};

struct Exchange {
  ExchangeKind kind = ExchangeKind::kIntersect;
  ExchangeScope scope = ExchangeScope::kAll;
  std::vector<uint64_t> words;   // kIntersect: mine; as many on every rank
  std::vector<std::byte> bytes;  // kGather: mine; kBroadcast: on the first rank, what goes out
};

struct Reply {
  std::vector<uint64_t> words;                   // kIntersect
  std::vector<std::vector<std::byte>> gathered;  // kGather, on the first rank: [ranks of the scope]
  std::vector<std::byte> bytes;                  // kBroadcast
};

}  // namespace lmdbio::control
#endif  // LMDBIO_CONTROL_EXCHANGE_H_
