#include "lmdbio/load/reader/read_backlog.h"

namespace lmdbio::load {

Extent ReadBacklog::InMemory(const file::BlockRead& read) const {
  return {static_cast<uint64_t>(read.destination.data() - memory_.data()), read.destination.size()};
}

bool ReadBacklog::IsPrepared(const file::BlockRead& read) const {
  return pages_ == nullptr || pages_->IsPrepared(InMemory(read));
}

Status ReadBacklog::StartSome() {
  if (waiting_.empty()) return {};
  if (!IsPrepared(waiting_.front())) pages_->Prepare(InMemory(waiting_.front()));
  reads_.clear();
  do {
    reads_.push_back(waiting_.front());
    waiting_.pop_front();
  } while (!waiting_.empty() && IsPrepared(waiting_.front()));
  return engine_.Start(reads_);
}

}  // namespace lmdbio::load
