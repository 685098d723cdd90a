#include "lmdbio/base/kept_memory.h"

#include <mutex>
#include <vector>

namespace lmdbio {
namespace {

struct Kept {
  std::mutex mutex;
  std::vector<std::shared_ptr<void>> all;
};

// Allocated and never destroyed: a thread of MPI may write during the exit of the process.
Kept& TheKept() {
  static auto& kept = *new Kept();
  return kept;
}

}  // namespace

void KeepShared(std::shared_ptr<void> memory) {
  Kept& kept = TheKept();
  const std::lock_guard lock(kept.mutex);
  kept.all.push_back(std::move(memory));
}

size_t KeptCount() {
  Kept& kept = TheKept();
  const std::lock_guard lock(kept.mutex);
  return kept.all.size();
}

}  // namespace lmdbio
