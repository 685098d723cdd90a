// bench/bundle/orphans.h - processes that a part of a run has left.
#ifndef LMDBIO_BENCH_BUNDLE_ORPHANS_H_
#define LMDBIO_BENCH_BUNDLE_ORPHANS_H_

namespace lmdbio::bundle {

// From now on a process whose parent has ended becomes a child of this one, if this one has started
// it or one of its parents.
void AdoptOrphans();

// Kills all children of this process, and the children that they leave, until there are none, or
// 2 s are over. Returns how many it has killed.
int EndOrphans();

}  // namespace lmdbio::bundle
#endif  // LMDBIO_BENCH_BUNDLE_ORPHANS_H_
