// lmdbio/file/layout/page_walk.h - reads the layout from the tree: branch pages first, then the
// leaves.
//
// Branch pages refer to every leaf, and a tree has about one branch page for a hundred leaves. So
// the walk has two steps. ListLeaves reads the branch pages, level by level. WalkLeaves reads any
// share of the leaves and yields their records. The shares of N workers are independent, except
// that the number of a share's first record is known only after the shares before it were counted.
// Overflow runs are not read.
//
// Source: docs/architecture.md "Page walk"; it replaces the "sequential seek" of dissertation
// 2.4.2.
#ifndef LMDBIO_FILE_LAYOUT_PAGE_WALK_H_
#define LMDBIO_FILE_LAYOUT_PAGE_WALK_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lmdbio/file/layout/database.h"
#include "lmdbio/file/layout/page_claims.h"
#include "lmdbio/file/layout/record_run.h"

namespace lmdbio::file {

// The leaf pages of the database's tree, in key order, from its branch pages alone.
//
// claims  takes a claim for every page of the tree
// Errors: kIo, kCorruption (also: a page with two references, a depth that differs from the record)
// Cost:   one batch of reads for each level; 8 bytes of memory for each leaf
Result<std::vector<PageNo>> ListLeaves(const Database& database, PageClaims& claims);

// The leaves of worker `worker` of `worker_count`. Shares are contiguous, and their sizes differ by
// at most one. Requires: worker < worker_count
std::span<const PageNo> ShareOfLeaves(std::span<const PageNo> leaves, uint32_t worker,
                                      uint32_t worker_count);

// Called once in 1024 leaves with the fraction done, 0 to 1. May be empty.
using WalkProgress = std::function<void(double)>;

// Reads `leaves`, several hundred at once, and hands their records to `sink`, numbered from
// `first_record`. Returns the number of records.
//
// claims  takes a claim for every page of overflow runs and of private duplicate trees
// Errors: kIo, kCorruption; those of `sink`
// Cost:   a few MiB of memory
Result<uint64_t> WalkLeaves(const Database& database, std::span<const PageNo> leaves,
                            RecordIndex first_record, PageClaims& claims, RecordRunSink& sink,
                            const WalkProgress& progress = {});

// Both steps, and the check that the tree holds as many records as its database record states.
// Returns the leaves. Errors: kIo, kCorruption; those of `sink`
Result<std::vector<PageNo>> WalkDatabase(const Database& database, RecordRunSink& sink,
                                         const WalkProgress& progress = {});

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_LAYOUT_PAGE_WALK_H_
