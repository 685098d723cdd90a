// lmdbio/sync/graph/plan_proposal.h - the bytes by which ranks agree on a learned plan.
//
// Source: docs/coordinators.md "Learning" has the layout; docs/caramel.md "Times".
#ifndef LMDBIO_SYNC_GRAPH_PLAN_PROPOSAL_H_
#define LMDBIO_SYNC_GRAPH_PLAN_PROPOSAL_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/sync/schedule/program_times.h"
#include "lmdbio/sync/schedule/transfer_model.h"

namespace lmdbio::sync {

struct PlanProposal {
  uint64_t epoch = 0;
  uint64_t digest = 0;  // of the tensors of the iteration, in order, and of the options
  std::vector<uint32_t> needs = {};  // [tensors] needs_up_to + 1; at most the own position
  // Of plans by time; empty if the times of a rank are unknown.
  std::vector<TensorTimes> times = {};       // [tensors] or empty
  int64_t length_ns = 0;                     // of an iteration
  int64_t spread_ns = 0;                     // most iterations are longer by at most this
  std::vector<TransferSample> samples = {};  // of rank 0; empty on other ranks
};

std::vector<std::byte> WriteProposal(const PlanProposal& proposal);

// Errors: kInvalidArgument  the bytes are not what WriteProposal writes; names the difference
Result<PlanProposal> ReadProposal(Bytes bytes);

// Errors: kInvalidArgument  proposals for different plans; names the difference
Status CheckSameProposal(const PlanProposal& a, const PlanProposal& b);

// Merges the proposals of two ranks: of each tensor the larger of the two needs, the later of the
// times at which it is ready, and the earlier of those at which it is due; the longer of the two
// iterations, and the larger of their spreads. There are times if both have them. The operation is
// associative and commutative.
// Errors: kInvalidArgument  malformed bytes, proposals for different plans, or two with samples
Result<std::vector<std::byte>> MergeProposals(Bytes a, Bytes b);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_GRAPH_PLAN_PROPOSAL_H_
