#include "lmdbio/load/reader/read_backlog.h"

#include <algorithm>

namespace lmdbio::load {
namespace {

// Reads of a file cache lie far apart. Memory between them is needed later, if at all.
constexpr uint64_t kBeyondBytesMax = 4 * ranks::HugePages::kPageBytes;

}  // namespace

Extent ReadBacklog::InMemory(const file::BlockRead& read) const {
  return {static_cast<uint64_t>(read.destination.data() - memory_.data()), read.destination.size()};
}

bool ReadBacklog::IsPrepared(const file::BlockRead& read) const {
  return pages_ == nullptr || pages_->IsPrepared(InMemory(read));
}

// The bytes from the first read to the last one, as far as they may be prepared in advance. The
// reads of a slot come in the order of their memory.
uint64_t ReadBacklog::BytesBehindFirst() const {
  const Extent first = InMemory(waiting_.front());
  const Extent last = InMemory(waiting_.back());
  const uint64_t begin = first.offset + first.length_bytes;
  const uint64_t end = std::max(begin, last.offset + last.length_bytes);
  return std::min(end - begin, kBeyondBytesMax);
}

Status ReadBacklog::StartSome() {
  if (waiting_.empty()) return {};
  if (!IsPrepared(waiting_.front())) {
    pages_->Prepare(InMemory(waiting_.front()), BytesBehindFirst());
  }
  reads_.clear();
  do {
    reads_.push_back(waiting_.front());
    waiting_.pop_front();
  } while (!waiting_.empty() && IsPrepared(waiting_.front()));
  return engine_.Start(reads_);
}

}  // namespace lmdbio::load
