#include "lmdbio/load/slots/slot_reader.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/load/locate/clocks.h"
#include "lmdbio/ranks/shm/anonymous_memory.h"

namespace lmdbio::load {
namespace {

using load::PlannedBlock;

// A block's tag: the slot it belongs to and its index among the slot's blocks.
constexpr uint64_t kBlockBits = 24;

// The least piece that a failed block is cut into to find what of it can be read.
constexpr uint64_t kPieceBytesMin = 4096;

// Memory that blocks with gaps are read into: what such a reader has under way.
constexpr uint64_t kStagingBlocks = 16;

// While reads are under way, how often the reader looks whether the next slot's place is free. A
// device that reports many reads at once would else have nothing left to do when it does.
constexpr auto kSpaceCheckPeriod = std::chrono::milliseconds(4);

// In place: after so many blocks in a row that were all cached, one of so many is looked at.
constexpr uint64_t kTrustedAfterBlocks = 64;
constexpr uint64_t kTrustedBlocks = 8;

}  // namespace

SlotReader::SlotReader(SlotReaderParts parts) : parts_(std::move(parts)) {
  if (parts_.engine) {
    engine_name_ = parts_.engine->Describe();
    PassNotesOn();
  }
  thread_ = std::thread([this] { Run(); });
}

SlotReader::~SlotReader() {
  stop_.store(true);
  parts_.planner->Stop();
  if (parts_.stagger) parts_.stagger->Stop();
  parts_.window->Wake();
  thread_.join();
}

void SlotReader::AddTo(LoaderCounters& counters) const {
  const auto relaxed = std::memory_order_relaxed;
  counters.locate_s += tally_.locate_s.load(relaxed);
  counters.read_s += tally_.read_s.load(relaxed);
  counters.finish_s += tally_.finish_s.load(relaxed);
  counters.space_wait_s += tally_.space_wait_s.load(relaxed);
  counters.reader_cpu_s += tally_.cpu_s.load(relaxed);
  counters.read_requests += tally_.requests.load(relaxed);
  counters.bytes_read += tally_.bytes.load(relaxed);
  counters.bytes_direct += tally_.direct_bytes.load(relaxed);
  counters.bytes_useful += tally_.useful_bytes.load(relaxed);
  counters.retry_count += tally_.retries.load(relaxed);
  const LocatorCounters located = parts_.planner->counters();
  // Planning includes these, which are no search.
  counters.locate_s -= std::min(counters.locate_s, located.fetch_s + located.turn_s);
  counters.read_s += located.fetch_s;
  counters.turn_s += located.turn_s + tally_.turn_s.load(relaxed);
  counters.missed_pages += located.missed_pages;
  counters.redundant_pages += located.redundant_pages;
}

// The description changes with the notes: an engine that was direct is buffered once a direct read
// was refused.
void SlotReader::PassNotesOn() {
  std::vector<std::string> notes = parts_.engine->TakeNotes();
  if (notes.empty()) return;
  parts_.notes->Add(std::move(notes));
  const std::lock_guard lock(engine_name_mutex_);
  engine_name_ = parts_.engine->Describe();
}

std::string SlotReader::engine_name() const {
  const std::lock_guard lock(engine_name_mutex_);
  return engine_name_;
}

void SlotReader::Run() {
  ::pthread_setname_np(::pthread_self(), "lmdbio-reader");  // for ps, top and profilers
  Status status = PinThisThread(parts_.cores);
  if (status) status = Work();
  // Whoever was stopped may have been disturbed by that.
  if (!status && !stop_.load()) {
    parts_.planner->Abandon(status.error());
    if (parts_.stagger) parts_.stagger->Abandon(status.error());
    parts_.window->Fail(status.error());
  }
  parts_.engine.reset();  // waits for what is under way
  tally_.cpu_s.store(ThreadCpuSeconds(), std::memory_order_relaxed);
}

Status SlotReader::Work() {
  while (!stop_.load()) {
    // Whoever waits for another host lets its own ranks wait for nothing that is here already.
    const bool can_plan = !planned_ && !is_ended_;
    if (can_plan && (outstanding() == 0 || parts_.planner->IsReady())) LMDBIO_TRY_VOID(Plan());
    const bool has_space = planned_ && parts_.window->HasSpace(planned_->slot.free_after);
    if (has_space && MayBegin()) {
      LMDBIO_TRY_VOID(Begin());
    } else if (outstanding() > 0) {
      LMDBIO_TRY_VOID(Collect(is_ended_ ? file::BlockEngine::kNoLimit : kSpaceCheckPeriod));
    } else if (has_space) {
      LMDBIO_TRY_VOID(AwaitTurn());
    } else if (planned_) {
      LMDBIO_TRY_VOID(AwaitSpace());
    } else {
      return parts_.planner->Drain();
    }
  }
  return {};
}

bool SlotReader::MayBegin() {
  if (!parts_.stagger) return true;
  return parts_.stagger->MayBegin(planned_->slot.number, planned_->read_bytes, outstanding());
}

Status SlotReader::AwaitTurn() {
  const auto start = Clock::now();
  Status status = parts_.stagger->Await(planned_->slot.number);
  Add(tally_.turn_s, SecondsSince(start));
  return status;
}

Status SlotReader::AwaitSpace() {
  LMDBIO_TRY_VOID(parts_.planner->Drain());
  const auto start = Clock::now();
  LMDBIO_TRY_VOID(parts_.window->AwaitSpace(planned_->slot.free_after));
  const double seconds = SecondsSince(start);
  Add(tally_.space_wait_s, seconds);
  if (parts_.stagger) parts_.stagger->Waited(seconds);
  return {};
}

std::unique_ptr<SlotReader::InFlightSlot> SlotReader::NewSlot() {
  if (spare_.empty()) return std::make_unique<InFlightSlot>(parts_.plan_options);
  std::unique_ptr<InFlightSlot> slot = std::move(spare_.back());
  spare_.pop_back();
  return slot;
}

Status SlotReader::Plan() {
  const auto start = Clock::now();
  std::unique_ptr<InFlightSlot> next = NewSlot();
  Result<bool> found = parts_.planner->Next(next->slot);
  Add(tally_.locate_s, SecondsSince(start));
  if (!found) return Fail(parts_.guard->Explain(std::move(found).error()));
  is_ended_ = !*found;
  if (*found) {
    PlanReads(*next);
    planned_ = std::move(next);
  }
  return {};
}

// What this reader has to read for the slot.
void SlotReader::PlanReads(InFlightSlot& slot) {
  slot.chunks.clear();
  if (!slot.slot.is_kept) {
    CutBlocks(slot.slot);
    slot.read_bytes = slot.slot.plan.read_bytes();
    return;
  }
  parts_.kept->TakeMissing(slot.slot.plan.blocks(), slot.chunks);
  slot.read_bytes = 0;
  for (const Extent& chunk : slot.chunks) slot.read_bytes += chunk.length_bytes;
}

// This reader's part of the plan. What a request costs is found out when a plan is first of many
// small pieces.
void SlotReader::CutBlocks(PlannedSlot& slot) {
  load::BlockCut cut;
  cut.part = static_cast<size_t>(parts_.reader_index);
  cut.part_count = static_cast<size_t>(parts_.window->shape().reader_count);
  if (parts_.map == nullptr) {
    cut.has_leaf = [this](const Extent& file) { return leaves_.Has(file); };
  }
  if (slot.is_scattered && parts_.measure_cost) {
    if (!cost_) cost_ = parts_.measure_cost();
    cut.cost = *cost_;
  }
  slot.plan.CutBlocks(cut);
}

Status SlotReader::Begin() {
  InFlightSlot& slot = *under_way_.emplace_back(std::move(planned_));
  slot.is_done = false;
  if (slot.slot.is_kept) return BeginKept(slot);
  const load::ReadPlan& plan = slot.slot.plan;
  const std::span<const PlannedBlock> blocks = plan.blocks();
  LMDBIO_CHECK(blocks.size() < uint64_t{1} << kBlockBits);
  slot.blocks_left = blocks.size();
  if (parts_.map != nullptr) return BeginInPlace(slot);
  const MutableBytes pages = parts_.window->ring().subspan(slot.slot.pages_at);
  for (const load::PlannedExtent& leaf : plan.had()) {
    const Bytes bytes = leaves_.Get(leaf.file);
    std::copy(bytes.begin(), bytes.end(), pages.begin() + static_cast<ptrdiff_t>(leaf.at));
  }
  if (blocks.empty()) return EndPart(slot);
  reads_.clear();
  if (parts_.engine->outstanding() == 0) busy_since_ = Clock::now();
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].part_count > 0) {
      waiting_.push_back({slot.slot.number, i});
      continue;
    }
    reads_.push_back({blocks[i].file.offset,
                      pages.subspan(blocks[i].at, blocks[i].file.length_bytes),
                      slot.slot.number << kBlockBits | i});
  }
  LMDBIO_TRY_VOID(parts_.engine->Start(reads_));
  return StartStaged();
}

// Reads the chunks that nobody has asked for before, to where they stay.
Status SlotReader::BeginKept(InFlightSlot& slot) {
  tally_.kept_slots.fetch_add(1, std::memory_order_relaxed);
  slot.blocks_left = slot.chunks.size();
  if (slot.chunks.empty()) return EndReady();
  reads_.clear();
  for (size_t i = 0; i < slot.chunks.size(); ++i) {
    const Extent& chunk = slot.chunks[i];
    reads_.push_back({chunk.offset, parts_.kept->memory().subspan(chunk.offset, chunk.length_bytes),
                      slot.slot.number << kBlockBits | i});
  }
  if (parts_.engine->outstanding() == 0) busy_since_ = Clock::now();
  return parts_.engine->Start(reads_);
}

// Slots that need what earlier ones have asked for end after these.
Status SlotReader::EndReady() {
  while (true) {
    const auto ready = std::find_if(under_way_.begin(), under_way_.end(),
                                    [](const auto& slot) { return !slot->is_done; });
    if (ready == under_way_.end() || !(*ready)->slot.is_kept || (*ready)->blocks_left > 0) {
      return {};
    }
    LMDBIO_TRY_VOID(EndPart(**ready));
  }
}

Status SlotReader::OpenStaging() {
  constexpr uint64_t count = kStagingBlocks;
  const uint64_t block_bytes = parts_.plan_options.block_bytes_max;
  LMDBIO_TRY(staging_, ranks::AllocateAnonymous(count * block_bytes));
  for (uint64_t i = 0; i < count; ++i) free_staging_.push_back(i);
  return {};
}

MutableBytes SlotReader::StagingOf(uint64_t buffer) const {
  const uint64_t block_bytes = parts_.plan_options.block_bytes_max;
  return staging_->bytes().subspan(buffer * block_bytes, block_bytes);
}

// Starts as many blocks with gaps as there is memory for. While one waits, another is under way.
Status SlotReader::StartStaged() {
  if (waiting_.empty()) return {};
  if (!staging_) LMDBIO_TRY_VOID(OpenStaging());
  reads_.clear();
  while (!waiting_.empty() && !free_staging_.empty()) {
    const auto [number, index] = waiting_.front();
    waiting_.pop_front();
    const PlannedBlock& block = SlotOf(number).slot.plan.blocks()[index];
    const uint64_t tag = number << kBlockBits | index;
    staging_of_[tag] = free_staging_.back();
    reads_.push_back(
        {block.file.offset, StagingOf(free_staging_.back()).first(block.file.length_bytes), tag});
    free_staging_.pop_back();
  }
  return parts_.engine->Start(reads_);
}

// What was evicted meanwhile is fetched before somebody touches it. To look costs more than to
// plan, so while nothing is missing only some blocks are looked at.
Status SlotReader::BeginInPlace(InFlightSlot& slot) {
  for (const PlannedBlock& block : slot.slot.plan.blocks()) {
    const bool is_trusted = cached_blocks_ >= kTrustedAfterBlocks;
    if (is_trusted && ++unseen_blocks_ % kTrustedBlocks != 0) continue;
    cached_blocks_ = parts_.map->Expect(block.file) ? cached_blocks_ + 1 : 0;
  }
  LMDBIO_TRY_VOID(
      parts_.map->CheckNotShrunk(parts_.guard->environment().snapshot().file_size_bytes));
  slot.blocks_left = 0;
  return EndPart(slot);
}

Status SlotReader::Collect(std::chrono::milliseconds limit) {
  Result<std::span<file::BlockDone>> done = parts_.engine->WaitSome(limit);
  PassNotesOn();
  if (!done) return Fail(std::move(done).error());
  if (parts_.engine->outstanding() == 0) Add(tally_.read_s, SecondsSince(busy_since_));
  CountReads();
  for (file::BlockDone& block : *done) LMDBIO_TRY_VOID(Take(block));
  return StartStaged();
}

void SlotReader::CountReads() {
  const file::EngineCounters counters = parts_.engine->counters();
  const auto relaxed = std::memory_order_relaxed;
  tally_.requests.store(counters.request_count, relaxed);
  tally_.bytes.store(counters.bytes, relaxed);
  tally_.direct_bytes.store(counters.direct_bytes, relaxed);
  tally_.retries.store(counters.retry_count, relaxed);
}

Status SlotReader::Take(file::BlockDone& done) {
  InFlightSlot& slot = SlotOf(done.tag >> kBlockBits);
  if (slot.slot.is_kept) return TakeKept(slot, done);
  const load::ReadPlan& plan = slot.slot.plan;
  const PlannedBlock& block = plan.blocks()[done.tag & ((uint64_t{1} << kBlockBits) - 1)];
  if (!done.status) {
    LMDBIO_TRY_VOID(Mend(slot, block, std::move(done.status).error()));
  }
  if (block.part_count > 0) {
    TakeStaged(slot, block, done);
  } else if (done.status && block.is_leaf) {
    leaves_.Keep(block.file, parts_.window->ring().subspan(slot.slot.pages_at + block.at,
                                                           block.file.length_bytes));
  }
  if (--slot.blocks_left > 0) return {};
  LMDBIO_TRY_VOID(EndPart(slot));
  return EndReady();
}

// A chunk that cannot be read is missed by every slot from here on that is under way; later ones
// ask for it again.
Status SlotReader::TakeKept(InFlightSlot& slot, const file::BlockDone& done) {
  const Extent chunk = slot.chunks[done.tag & ((uint64_t{1} << kBlockBits) - 1)];
  if (!done.status) {
    Error error = parts_.guard->Explain(done.status.error().Copy());
    if (parts_.on_error == OnError::kRaise || error.code() == ErrorCode::kStale) {
      return Fail(std::move(error));
    }
    parts_.kept->Forget(chunk);
    for (const auto& other : under_way_) {
      if (other->slot.number < slot.slot.number || !other->slot.is_kept) continue;
      LMDBIO_TRY_VOID(ReadPieces(*other, {chunk, chunk.offset}));
    }
  }
  --slot.blocks_left;
  return EndReady();
}

// Copies what is wanted of a block with gaps to its place.
void SlotReader::TakeStaged(const InFlightSlot& slot, const PlannedBlock& block,
                            const file::BlockDone& done) {
  const auto buffer = staging_of_.find(done.tag);
  const Bytes bytes = StagingOf(buffer->second);
  const MutableBytes pages = parts_.window->ring().subspan(slot.slot.pages_at);
  const auto parts = slot.slot.plan.parts().subspan(block.first_part, block.part_count);
  for (const load::PlannedExtent& part : parts) {
    if (!done.status) break;  // Mend has read the parts
    const Bytes from = bytes.subspan(part.file.offset - block.file.offset, part.file.length_bytes);
    std::copy(from.begin(), from.end(), pages.begin() + static_cast<ptrdiff_t>(part.at));
  }
  free_staging_.push_back(buffer->second);
  staging_of_.erase(buffer);
}

// A block has failed for good. Nothing helps if the file is another now.
Status SlotReader::Mend(const InFlightSlot& slot, const PlannedBlock& block, Error why) {
  Error error = parts_.guard->Explain(std::move(why));
  if (parts_.on_error == OnError::kRaise || error.code() == ErrorCode::kStale) {
    return Fail(std::move(error));
  }
  if (block.part_count == 0) return ReadPieces(slot, {block.file, block.at});
  const auto parts = slot.slot.plan.parts().subspan(block.first_part, block.part_count);
  for (const load::PlannedExtent& part : parts) LMDBIO_TRY_VOID(ReadPieces(slot, part));
  return {};
}

// Halves the piece until what cannot be read is found, and notes that.
Status SlotReader::ReadPieces(const InFlightSlot& slot, const load::PlannedExtent& piece) {
  const ByteSource& source = parts_.guard->environment().pages().source();
  const auto [offset, length_bytes] = piece.file;
  const MutableBytes all = slot.slot.is_kept ? parts_.kept->memory() : parts_.window->ring();
  const MutableBytes memory = all.subspan(slot.slot.pages_at + piece.at, length_bytes);
  const Result<Bytes> read = source.Read(piece.file, memory);
  if (read) return {};
  if (length_bytes <= kPieceBytesMin) {
    if (parts_.window->AddBadRange(slot.slot.number, {piece.at, length_bytes})) {
      return {};
    }
    return Fail(read.error().Copy().Within(fmt::format(
        "{}: too much of the file cannot be read to skip it record by record", source.name())));
  }
  const uint64_t half = (length_bytes / 2 + kPieceBytesMin - 1) / kPieceBytesMin * kPieceBytesMin;
  LMDBIO_TRY_VOID(ReadPieces(slot, {{offset, half}, piece.at}));
  return ReadPieces(slot, {{offset + half, length_bytes - half}, piece.at + half});
}

Status SlotReader::EndPart(InFlightSlot& slot) {
  if (parts_.stagger) parts_.stagger->SlotDone(slot.slot.number, slot.read_bytes);
  if (parts_.window->FinishPart(slot.slot.number)) LMDBIO_TRY_VOID(FinishSlot(slot));
  slot.is_done = true;
  while (!under_way_.empty() && under_way_.front()->is_done) {
    spare_.push_back(std::move(under_way_.front()));
    under_way_.pop_front();
  }
  tally_.cpu_s.store(ThreadCpuSeconds(), std::memory_order_relaxed);
  return {};
}

Status SlotReader::FinishSlot(InFlightSlot& slot) {
  const auto start = Clock::now();
  Window& window = *parts_.window;
  LMDBIO_TRY_VOID(parts_.guard->AfterSlot());
  Bytes bytes = window.ring();
  if (parts_.map != nullptr) bytes = parts_.map->map();
  if (slot.slot.is_kept) bytes = parts_.kept->memory();
  const auto values_are = parts_.map != nullptr ? SlotFinisher::ValueBytes::kLeftToRanks
                                                : SlotFinisher::ValueBytes::kLookedAt;
  Status finished = parts_.finisher->Finish(slot.slot, window.ring(), bytes, values_are,
                                            window.TakeBadRanges(slot.slot.number));
  if (!finished) return Fail(parts_.guard->Explain(std::move(finished).error()));
  const auto& batches = slot.slot.batches;
  if (std::any_of(batches.begin(), batches.end(), [](const auto& b) { return b.ends_epoch; })) {
    LMDBIO_TRY_VOID(parts_.guard->AfterEpoch());
  }
  Add(tally_.useful_bytes, slot.slot.plan.useful_bytes());
  Add(tally_.finish_s, SecondsSince(start));
  window.Announce(slot.slot.number, slot.slot.head);
  return {};
}

}  // namespace lmdbio::load
