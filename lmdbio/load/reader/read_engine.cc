#include "lmdbio/load/reader/read_engine.h"

#include <utility>
#include <vector>

#include "lmdbio/load/locate/clocks.h"

namespace lmdbio::load {

ReadEngine::ReadEngine(std::unique_ptr<file::BlockEngine> engine, Notes& notes, ReaderTally& tally)
    : engine_(std::move(engine)), notes_(notes), tally_(tally), name_(engine_->Describe()) {
  PassNotesOn();
}

Status ReadEngine::Start(std::span<const file::BlockRead> reads) {
  if (engine_->outstanding() == 0) busy_since_ = std::chrono::steady_clock::now();
  return engine_->Start(reads);
}

Result<std::span<file::BlockDone>> ReadEngine::Wait(std::chrono::milliseconds limit) {
  return Taken(engine_->WaitSome(limit));
}

Result<std::span<file::BlockDone>> ReadEngine::Poll() { return Taken(engine_->Poll()); }

Result<std::span<file::BlockDone>> ReadEngine::Taken(Result<std::span<file::BlockDone>> done) {
  PassNotesOn();
  if (!done) return Fail(std::move(done).error());
  // read_s is the time with at least one read in flight, not the sum over reads.
  if (engine_->outstanding() == 0) Add(tally_.read_s, SecondsSince(busy_since_));
  CountReads();
  return done;
}

// The name changes together with the notes: a direct engine becomes a buffered one after a direct
// read was refused.
void ReadEngine::PassNotesOn() {
  std::vector<std::string> notes = engine_->TakeNotes();
  if (notes.empty()) return;
  notes_.Add(std::move(notes));
  const std::lock_guard lock(name_mutex_);
  name_ = engine_->Describe();
}

void ReadEngine::CountReads() {
  const file::EngineCounters counters = engine_->counters();
  const auto relaxed = std::memory_order_relaxed;
  tally_.requests.store(counters.request_count, relaxed);
  tally_.bytes.store(counters.bytes, relaxed);
  tally_.direct_bytes.store(counters.direct_bytes, relaxed);
  tally_.retries.store(counters.retry_count, relaxed);
}

std::string ReadEngine::name() const {
  const std::lock_guard lock(name_mutex_);
  return name_;
}

}  // namespace lmdbio::load
