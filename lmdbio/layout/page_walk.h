// lmdbio/layout/page_walk.h - the layout read from the tree: branch pages first, then the leaves.
//
// Branch pages name every leaf, and there is about one of them for a hundred leaves. So the walk
// has two steps: ListLeaves reads the branch pages, level by level; WalkLeaves reads any share of
// the leaves and yields their records. The shares of N workers need nothing from each other but, in
// the end, the number of records before their first. Overflow runs are not read at all.
//
// Source: docs/architecture.md "Page walk"; dissertation 2.4.2 ("sequential seek") is what it
// replaces.
#ifndef LMDBIO_LAYOUT_PAGE_WALK_H_
#define LMDBIO_LAYOUT_PAGE_WALK_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lmdbio/layout/database.h"
#include "lmdbio/layout/page_claims.h"
#include "lmdbio/layout/record_run.h"

namespace lmdbio::layout {

// The leaf pages of the database's tree, in key order, from its branch pages alone.
//
// claims  every page of the tree is claimed there
// Errors: kIo, kCorruption (also: a page in two places, a depth that is not what the record says)
// Cost:   one batch of reads for each level; 8 bytes of memory for each leaf
Result<std::vector<PageNo>> ListLeaves(const Database& database, PageClaims& claims);

// The leaves of worker `worker` of `worker_count`: contiguous shares, sizes differing by at most
// one. Requires: worker < worker_count
std::span<const PageNo> ShareOfLeaves(std::span<const PageNo> leaves, uint32_t worker,
                                      uint32_t worker_count);

// Called now and then during a walk with the fraction done, 0 to 1. May be empty.
using WalkProgress = std::function<void(double)>;

// Reads `leaves`, several hundred at once, and hands their records to `sink`, numbered from
// `first_record`. Returns the number of records.
//
// claims  overflow runs and the private trees of duplicates are claimed there
// Errors: kIo, kCorruption; whatever `sink` returns
// Cost:   a few MiB of memory
Result<uint64_t> WalkLeaves(const Database& database, std::span<const PageNo> leaves,
                            RecordIndex first_record, PageClaims& claims, RecordRunSink& sink,
                            const WalkProgress& progress = {});

// Both steps, and the proof that the tree holds as many records as its description says.
// Errors: kIo, kCorruption; whatever `sink` returns
Result<std::vector<PageNo>> WalkDatabase(const Database& database, RecordRunSink& sink,
                                         const WalkProgress& progress = {});

}  // namespace lmdbio::layout
#endif  // LMDBIO_LAYOUT_PAGE_WALK_H_
