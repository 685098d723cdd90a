#include "lmdbio/load/reader/slot_reader.h"

#include <pthread.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/load/locate/clocks.h"

namespace lmdbio::load {
namespace {

using Clock = std::chrono::steady_clock;

// While reads are in flight, the reader looks this often for free memory for the next slot. A
// device that reports many reads at once would otherwise be idle afterwards.
constexpr auto kSpaceCheckPeriod = std::chrono::milliseconds(4);

}  // namespace

SlotReader::SlotReader(SlotReaderParts parts)
    : parts_(std::move(parts)), queue_(parts_.plan_options) {
  OpenSources();
  if (!has_thread()) return;
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& failure) {
    Abandon(Error(ErrorCode::kResourceExhausted,
                  fmt::format("cannot start the reading thread: {}; raise ulimit -u",
                              failure.code().message()),
                  failure.code().value()));
  }
}

SlotReader::~SlotReader() {
  // Every place in which the thread may sleep is woken: locator, tokens, window. Reads in flight
  // end by themselves.
  stop_.store(true);
  parts_.planner->Stop();
  if (parts_.stagger) parts_.stagger->Stop();
  parts_.window->Wake();
  if (thread_.joinable()) thread_.join();
  // Only now, because the engine may serve readers of other hosts that are not at their end.
  engine_->Close();
}

void SlotReader::OpenSources() {
  const auto part = static_cast<size_t>(parts_.reader_index);
  const auto part_count = static_cast<size_t>(parts_.window->shape().reader_count);
  engine_ = std::make_unique<ReadEngine>(std::move(parts_.engine), *parts_.notes, tally_);
  const BlockRepair repair(parts_.files->guards(), parts_.files->source(), *parts_.window,
                           parts_.on_error);
  if (parts_.in_place.map != nullptr) {
    source_ = MakeInPlaceSource({parts_.in_place.map, parts_.files->end_bytes(), engine_.get(),
                                 parts_.in_place.reads_missing, parts_.in_place.reads_pieces,
                                 repair, part, part_count, parts_.plan_options.block_bytes_max});
    return;
  }
  source_ = MakeWindowSource({parts_.window, engine_.get(), parts_.huge.window,
                              parts_.planner.get(), repair, part, part_count,
                              parts_.plan_options.block_bytes_max, std::move(parts_.measure_cost)});
  if (parts_.kept) {
    cache_source_ = MakeCacheSource(std::move(parts_.kept), parts_.huge.cache, *engine_, repair,
                                    queue_, tally_);
  }
}

void SlotReader::AddTo(LoaderCounters& counters) const {
  tally_.AddTo(counters);
  const LocatorCounters located = parts_.planner->counters();
  // The time of planning includes waits of the locator, which are counted elsewhere.
  counters.locate_s -= std::min(counters.locate_s, located.fetch_s + located.turn_s);
  counters.read_s += located.fetch_s + located.copy_wait_s;
  counters.turn_s += located.turn_s;
  counters.read_requests += located.reads.request_count;
  counters.bytes_read += located.reads.bytes;
  counters.bytes_direct += located.reads.direct_bytes;
  counters.retry_count += located.reads.retry_count;
  counters.missed_pages += located.missed_pages;
  counters.redundant_pages += located.redundant_pages;
}

uint64_t SlotReader::huge_bytes() const {
  uint64_t bytes = 0;
  for (const ranks::HugePages* pages : {parts_.huge.window, parts_.huge.cache}) {
    if (pages != nullptr) bytes += pages->huge_bytes();
  }
  return bytes;
}

void SlotReader::Run() {
  ::pthread_setname_np(::pthread_self(), "lmdbio-reader");  // for ps, top and profilers
  Status status = PinThisThread(parts_.cores);
  if (status) status = Work();
  // An error after a stop may be an effect of the stop, so the other ranks do not get it.
  if (!status && !stop_.load()) Abandon(status.error());
  CountProcessorTime();
}

void SlotReader::Abandon(const Error& error) {
  parts_.planner->Abandon(error);
  if (parts_.stagger) parts_.stagger->Abandon(error);
  parts_.window->Fail(error);
}

// The time of a rank's own thread is counted by the rank.
void SlotReader::CountProcessorTime() {
  if (has_thread()) tally_.cpu_s.store(ThreadCpuSeconds(), std::memory_order_relaxed);
}

Result<bool> SlotReader::ReadNext() {
  LMDBIO_CHECK(!has_thread());
  if (!planned_) LMDBIO_TRY_VOID(Plan());
  if (is_ended_) return true;
  if (!parts_.window->HasSpace(planned_->slot.free_after)) return false;
  LMDBIO_TRY_VOID(Begin());
  while (outstanding() > 0 || HasWaiting()) {
    LMDBIO_TRY_VOID(HasWaiting() ? StartWaiting()
                                 : Collect(engine_->Wait(file::BlockEngine::kNoLimit)));
  }
  return true;
}

// Each turn of the loop takes the reads that are complete, because ranks may wait for their slot.
// Then it does the first of these that is possible:
//
//   1. start reads of begun slots whose memory had to be prepared
//   2. plan the next slot. If the locator would sleep for another host, reads in flight come first:
//      the ranks of this host must not wait for pages that have arrived.
//   3. begin the planned slot, if its memory is free and the reader has its turn
//   4. sleep for reads; then look for free memory again
//   5. sleep for the turn, or for free memory
//
// Without any of these the stream has ended. The other hosts may still need this reader's messages.
Status SlotReader::Work() {
  while (!stop_.load()) {
    if (outstanding() > 0) LMDBIO_TRY_VOID(Collect(engine_->Poll()));
    if (HasWaiting()) {
      LMDBIO_TRY_VOID(StartWaiting());
      continue;
    }
    const bool can_plan = !planned_ && !is_ended_;
    if (can_plan && (outstanding() == 0 || parts_.planner->IsReady())) LMDBIO_TRY_VOID(Plan());
    const bool has_space = planned_ && parts_.window->HasSpace(planned_->slot.free_after);
    if (has_space && MayBegin()) {
      LMDBIO_TRY_VOID(Begin());
    } else if (outstanding() > 0) {
      const auto limit = is_ended_ ? file::BlockEngine::kNoLimit : kSpaceCheckPeriod;
      LMDBIO_TRY_VOID(Collect(engine_->Wait(limit)));
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

Status SlotReader::Plan() {
  const auto start = Clock::now();
  std::unique_ptr<SlotInFlight> next = queue_.New();
  Result<bool> found = parts_.planner->Next(next->slot);
  Add(tally_.locate_s, SecondsSince(start));
  if (!found) return Fail(parts_.files->guards().Explain(std::move(found).error()));
  is_ended_ = !*found;
  if (*found) {
    SourceOf(*next).Plan(*next);
    planned_ = std::move(next);
  }
  return {};
}

Status SlotReader::Begin() {
  SlotInFlight& slot = queue_.Push(std::move(planned_));
  LMDBIO_TRY_VOID(SourceOf(slot).Begin(slot));
  PassNotesOn();
  return EndIfRead(slot);
}

void SlotReader::PassNotesOn() {
  for (ranks::HugePages* pages : {parts_.huge.window, parts_.huge.cache}) {
    if (pages == nullptr) continue;
    if (std::optional<std::string> note = pages->TakeNote()) parts_.notes->Add(std::move(*note));
  }
}

bool SlotReader::HasWaiting() const {
  return source_->HasWaiting() || (cache_source_ && cache_source_->HasWaiting());
}

Status SlotReader::StartWaiting() {
  if (source_->HasWaiting()) return source_->Continue();
  return cache_source_->Continue();
}

// Passes completed reads on, and starts those that waited for their memory.
Status SlotReader::Collect(Result<std::span<file::BlockDone>> done) {
  if (!done) return Fail(std::move(done).error());
  for (const file::BlockDone& read : *done) {
    const ReadTag tag = ReadTag::Unpack(read.tag);
    SlotInFlight& slot = queue_.At(tag.slot);
    LMDBIO_TRY_VOID(SourceOf(slot).Complete(slot, tag.index, read.status));
    LMDBIO_TRY_VOID(EndIfRead(slot));
  }
  return done->empty() ? Status() : source_->Continue();
}

// Ends the slot if its reads are complete. A kept slot also needs the chunks that earlier slots
// read, so it ends after all of these.
Status SlotReader::EndIfRead(SlotInFlight& slot) {
  if (slot.reads_left > 0) return {};
  if (!slot.slot.is_kept) LMDBIO_TRY_VOID(EndPart(slot));
  while (true) {
    SlotInFlight* const oldest = queue_.Oldest();
    if (oldest == nullptr || !oldest->slot.is_kept || oldest->reads_left > 0) return {};
    LMDBIO_TRY_VOID(EndPart(*oldest));
  }
}

Status SlotReader::EndPart(SlotInFlight& slot) {
  if (parts_.stagger) parts_.stagger->SlotDone(slot.slot.number, slot.read_bytes);
  if (parts_.window->FinishPart(slot.slot.number)) LMDBIO_TRY_VOID(FinishSlot(slot));
  slot.is_done = true;
  queue_.RemoveDone();
  CountProcessorTime();
  return {};
}

// The only rank of a process shares its map with the reading thread. This thread touches the pages
// first then, so that the rank does not sleep until they are mapped.
SlotFinisher::ValueBytes SlotReader::ValuesAre() const {
  if (parts_.in_place.map == nullptr) return SlotFinisher::ValueBytes::kInMemory;
  const bool maps_for_rank = has_thread() && parts_.window->shape().rank_count == 1;
  return maps_for_rank ? SlotFinisher::ValueBytes::kToBeMapped
                       : SlotFinisher::ValueBytes::kLeftToRanks;
}

// All readers have read their parts. The pages are checked after the snapshot was, because a writer
// may have reused them meanwhile.
Status SlotReader::FinishSlot(SlotInFlight& slot) {
  const auto start = Clock::now();
  Window& window = *parts_.window;
  LMDBIO_TRY_VOID(parts_.files->guards().AfterSlot());
  // Shares and entries are written beside the pages, in memory that no read has prepared.
  if (parts_.huge.window != nullptr) parts_.huge.window->Prepare(slot.slot.reserved);
  Status finished = parts_.finisher->Finish(slot.slot, window.ring(), SourceOf(slot).memory(),
                                            ValuesAre(), window.TakeBadRanges(slot.slot.number));
  // Lost pages look like damaged ones, or like other records.
  if (parts_.in_place.map != nullptr) LMDBIO_TRY_VOID(parts_.in_place.map->CheckWhole());
  if (!finished) return Fail(parts_.files->guards().Explain(std::move(finished).error()));
  const auto& batches = slot.slot.batches;
  if (std::any_of(batches.begin(), batches.end(), [](const auto& b) { return b.ends_epoch; })) {
    LMDBIO_TRY_VOID(parts_.files->guards().AfterEpoch());
  }
  Add(tally_.useful_bytes, slot.slot.plan.useful_bytes());
  Add(tally_.finish_s, SecondsSince(start));
  window.Announce(slot.slot.number, slot.slot.head);
  return {};
}

}  // namespace lmdbio::load
