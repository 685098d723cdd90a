// tests/sync/collective/collective_checks.h - checks that every implementation of Collectives must
// pass.
//
// As in tests/ranks/group/group_checks.h, ranks may be threads or processes: a check collects
// complaints.
// Expected values are computed from rank and index alone; each rank computes those of all.
#ifndef LMDBIO_TESTS_SYNC_COLLECTIVE_COLLECTIVE_CHECKS_H_
#define LMDBIO_TESTS_SYNC_COLLECTIVE_COLLECTIVE_CHECKS_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lmdbio/ranks/group/group.h"
#include "lmdbio/sync/collective/collectives.h"
#include "tests/ranks/group/group_checks.h"

namespace lmdbio::test {

// Sizes in bytes; of whole elements as many as fit.
struct CollectiveSizes {
  std::vector<size_t> small{0, 8, 24, 40, 1000, 4104};  // for every type and reduction
  std::vector<size_t> large{65'528, 65'544, 300'008};   // for some of them
};

// Collective over the ranks.
struct CollectiveCheck {
  const char* name;
  void (*run)(sync::Collectives& all, const CollectiveSizes& sizes, Complaints& complaints);
};

// Each leaves the object as it was.
std::span<const CollectiveCheck> CollectiveChecks();

// Rank size() - 1 stops while the others wait for it; all see it, then and later. Afterwards the
// object can only be destroyed. Requires: 2 or more ranks
void CheckStop(sync::Collectives& all, Complaints& complaints);

// Runs all checks with threads as ranks, and CheckStop at the end. Returns every complaint.
using CollectivesFactory = std::function<std::unique_ptr<sync::Collectives>(ranks::Group& group)>;
std::vector<std::string> RunCollectiveChecks(int rank_count, const CollectivesFactory& make,
                                             const CollectiveSizes& sizes = {});

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SYNC_COLLECTIVE_COLLECTIVE_CHECKS_H_
