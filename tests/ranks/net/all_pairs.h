// tests/ranks/net/all_pairs.h - links between any two ranks of a group.
#ifndef LMDBIO_TESTS_RANKS_NET_ALL_PAIRS_H_
#define LMDBIO_TESTS_RANKS_NET_ALL_PAIRS_H_

#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/net/peer_links.h"

namespace lmdbio::test {

inline ranks::LinkSpec AllPairs(const ranks::Group& group) {
  ranks::LinkSpec spec;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank != group.rank()) spec.sends_to.push_back(rank);
  }
  spec.receives_from = spec.sends_to;
  return spec;
}

}  // namespace lmdbio::test

#endif  // LMDBIO_TESTS_RANKS_NET_ALL_PAIRS_H_
