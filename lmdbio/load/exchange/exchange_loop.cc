#include "lmdbio/load/exchange/exchange_loop.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include <fmt/format.h>

namespace lmdbio::load {
namespace {

using Kind = ExchangeFrame::Kind;

// Marks the reads of chunks. Other tags are indices of reads from the file.
constexpr uint64_t kChunkTag = uint64_t{1} << 63;

// A read of at least this part of a chunk is large enough for the storage.
constexpr uint64_t kLargePart = 2;

// The longest sleeps: while the engine may have to repeat a read or a chunk waits for memory, while
// another reader may have stalled, and with an engine that has no event.
constexpr int kCheckPeriodMs = 10;
constexpr int kStallPeriodMs = 500;
constexpr int kNoEventPeriodMs = 1;

uint64_t ChunkCount(const ExchangeLimits& limits) {
  return (limits.file_bytes + limits.chunk_bytes - 1) / limits.chunk_bytes;
}

}  // namespace

ExchangeLoop::ExchangeLoop(std::unique_ptr<file::BlockEngine> engine, ExchangeLinks links,
                           MutableBytes memory, const ExchangeLimits& limits)
    : engine_(std::move(engine)),
      limits_(limits),
      rank_(links.rank),
      store_(memory, limits.chunk_bytes, ChunkCount(limits), links.sockets.size()),
      wants_(memory.size() / limits.chunk_bytes) {
  for (UniqueFd& socket : links.sockets) {
    const auto reader = static_cast<int>(peers_.size());
    const bool is_gone = !socket;
    if (is_gone && reader != rank_) store_.NoteGone(peers_.size());
    peers_.push_back({ExchangeLink(std::move(socket)), is_gone, {}, 0, 0, Clock::now()});
  }
}

ExchangeLoop::~ExchangeLoop() {
  for (PeerReader& peer : peers_) peer.link.Close();
}

void ExchangeLoop::Add(std::span<const file::BlockRead> reads) {
  not_begun_.insert(not_begun_.end(), reads.begin(), reads.end());
}

// Frames are sent before chunks are begun, because that frees memory for them.
Status ExchangeLoop::Turn() {
  LMDBIO_TRY_VOID(TakeLoaded());
  const auto reader_count = static_cast<int>(peers_.size());
  for (int reader = 0; reader < reader_count; ++reader) TakeFrames(reader);
  DropStalled();
  BeginReads();
  for (int reader = 0; reader < reader_count; ++reader) Send(reader);
  LoadWaiting();
  if (failure_) return Fail(failure_->Copy());
  return {};
}

void ExchangeLoop::Sleep(int event) {
  std::vector<pollfd> polled{{event, POLLIN, 0}};
  int limit_ms = -1;
  const auto within = [&](int other_ms) {
    limit_ms = limit_ms < 0 ? other_ms : std::min(limit_ms, other_ms);
  };
  for (const PeerReader& peer : peers_) {
    if (peer.is_gone) continue;
    const int events = peer.link.has_waiting() ? POLLIN | POLLOUT : POLLIN;
    polled.push_back({peer.link.socket(), static_cast<short>(events), 0});
    if (!peer.asked.empty() || peer.link.has_waiting()) within(kStallPeriodMs);
  }
  if (!waiting_.empty()) within(kCheckPeriodMs);
  if (engine_->outstanding() > 0) {
    const int done_event = engine_->event();
    if (done_event >= 0) polled.push_back({done_event, POLLIN, 0});
    within(done_event >= 0 ? kCheckPeriodMs : kNoEventPeriodMs);
  }
  ::poll(polled.data(), polled.size(), limit_ms);
}

std::vector<std::string> ExchangeLoop::TakeNotes() {
  std::vector<std::string> notes = engine_->TakeNotes();
  std::move(notes_.begin(), notes_.end(), std::back_inserter(notes));
  notes_.clear();
  return notes;
}

// --- Reads of this reader ---

void ExchangeLoop::BeginReads() {
  while (!not_begun_.empty() && piece_count_ < limits_.pieces_max) {
    Ask(not_begun_.front());
    not_begun_.pop_front();
  }
}

void ExchangeLoop::Ask(const file::BlockRead& read) {
  if (free_reads_.empty()) {
    free_reads_.push_back(static_cast<uint32_t>(reads_.size()));
    reads_.emplace_back();
  }
  const uint32_t index = free_reads_.back();
  free_reads_.pop_back();
  const uint64_t size = read.destination.size();
  const bool is_large = size >= limits_.chunk_bytes / kLargePart;
  const bool is_alone = std::all_of(peers_.begin(), peers_.end(),
                                    [](const PeerReader& peer) { return peer.is_gone; });
  if (size == 0 || is_large || !IsInFile(read.offset, size) || is_alone) {
    reads_[index] = {read, 0, true};
    return ReadFromFile(index);
  }
  const uint64_t end = read.offset + size;
  const uint64_t pieces = ChunkOf(end - 1) - ChunkOf(read.offset) + 1;
  reads_[index] = {read, pieces, false};
  piece_count_ += pieces;
  for (uint64_t at = read.offset; at < end;) {
    const uint64_t piece_end = std::min(end, (ChunkOf(at) + 1) * limits_.chunk_bytes);
    AskFor({index, at, piece_end - at});
    at = piece_end;
  }
}

void ExchangeLoop::AskFor(const ReadPiece& piece) {
  const int owner = OwnerOf(ChunkOf(piece.offset));
  if (owner == rank_) return Serve({rank_, piece.read, piece.offset, piece.length_bytes});
  PeerReader& peer = PeerAt(owner);
  if (peer.is_gone) return FinishPiece(piece.read, false);
  if (peer.asked.empty()) peer.alive_at = Clock::now();
  const uint32_t id = next_id_++;
  peer.asked[id] = piece;
  peer.link.Post({Kind::kRequest, id, piece.offset, piece.length_bytes});
}

MutableBytes ExchangeLoop::DestinationOf(const ReadPiece& piece) const {
  const file::BlockRead& read = reads_[piece.read].read;
  return read.destination.subspan(piece.offset - read.offset, piece.length_bytes);
}

void ExchangeLoop::FinishPiece(uint32_t read, bool has_come) {
  OpenRead& open = reads_[read];
  open.is_from_file = open.is_from_file || !has_come;
  --piece_count_;
  if (--open.pieces_left > 0) return;
  if (open.is_from_file) return ReadFromFile(read);
  done_.push_back({open.read.tag, {}});
  free_reads_.push_back(read);
}

void ExchangeLoop::ReadFromFile(uint32_t read) {
  file::BlockRead from_file = reads_[read].read;
  from_file.tag = read;
  StartRead(from_file);
}

void ExchangeLoop::StartRead(const file::BlockRead& read) {
  if (failure_) return;
  Status started = engine_->Start(std::span(&read, 1));
  if (!started) failure_.emplace(std::move(started).error());
}

// --- Chunks of this reader ---

// A chunk that is not here waits for its turn in LoadWaiting, so lower ones come first.
void ExchangeLoop::Serve(const Want& want) {
  const uint64_t number = ChunkOf(want.offset);
  const uint64_t position = store_.NoteWant(static_cast<size_t>(want.from), number);
  if (ChunkStore::HeldChunk* const chunk = store_.Find(number)) {
    chunk->position = std::max(chunk->position, position);
    if (chunk->is_ready) return Answer(want, chunk);
    return wants_[store_.IndexOf(*chunk)].push_back(want);
  }
  WaitingChunk& waiting = waiting_[number];
  if (waiting.wants.empty()) waiting.since = Clock::now();
  waiting.wants.push_back(want);
  waiting.position = std::max(waiting.position, position);
}

// Begins to read chunks, the lowest numbers first: the readers that are behind need them. A chunk
// that gets no memory for long is refused, because a reader that takes no replies may have it all.
void ExchangeLoop::LoadWaiting() {
  while (!waiting_.empty() && Load(waiting_.begin()->first, waiting_.begin()->second)) {
    waiting_.erase(waiting_.begin());
  }
  const auto now = Clock::now();
  for (auto chunk = waiting_.begin(); chunk != waiting_.end();) {
    if (now - chunk->second.since < limits_.memory_limit) {
      ++chunk;
      continue;
    }
    for (const Want& want : chunk->second.wants) Answer(want, nullptr);
    chunk = waiting_.erase(chunk);
  }
}

// Begins to read a chunk. False: it has no memory.
bool ExchangeLoop::Load(uint64_t number, WaitingChunk& waiting) {
  const uint64_t offset = number * limits_.chunk_bytes;
  const uint64_t length = std::min(limits_.chunk_bytes, limits_.file_bytes - offset);
  ChunkStore::HeldChunk* const chunk = store_.Add(number, waiting.position, length, Clock::now());
  if (chunk == nullptr) return false;
  const size_t index = store_.IndexOf(*chunk);
  wants_[index] = std::move(waiting.wants);
  StartRead({offset, chunk->memory, kChunkTag | index});
  return true;
}

// chunk  null: it is refused
void ExchangeLoop::Answer(const Want& want, ChunkStore::HeldChunk* chunk) {
  Bytes bytes;
  if (chunk != nullptr) {
    chunk->last_use = Clock::now();
    bytes = chunk->memory.subspan(want.offset % limits_.chunk_bytes, want.length_bytes);
  }
  if (want.from == rank_) {
    const MutableBytes destination = DestinationOf({want.id, want.offset, want.length_bytes});
    if (!bytes.empty()) std::memcpy(destination.data(), bytes.data(), bytes.size());
    return FinishPiece(want.id, !bytes.empty());
  }
  PeerReader& peer = PeerAt(want.from);
  if (peer.is_gone) return;
  if (!peer.link.has_waiting()) peer.alive_at = Clock::now();
  if (chunk != nullptr) ++chunk->pin_count;
  peer.link.Post(
      {chunk != nullptr ? Kind::kReply : Kind::kRefusal, want.id, want.offset, want.length_bytes},
      bytes);
}

Status ExchangeLoop::TakeLoaded() {
  LMDBIO_TRY(const std::span<file::BlockDone> done, engine_->Poll());
  for (file::BlockDone& read : done) {
    if ((read.tag & kChunkTag) == 0) {
      const auto index = static_cast<uint32_t>(read.tag);
      done_.push_back({reads_[index].read.tag, std::move(read.status)});
      free_reads_.push_back(index);
      continue;
    }
    ChunkStore::HeldChunk& chunk = store_.At(read.tag & ~kChunkTag);
    chunk.is_ready = true;
    const bool is_good = read.status.has_value();
    for (const Want& want : std::exchange(wants_[store_.IndexOf(chunk)], {})) {
      Answer(want, is_good ? &chunk : nullptr);
    }
    if (!is_good) ChunkStore::Remove(chunk);
  }
  return {};
}

// --- Other readers ---

void ExchangeLoop::TakeFrames(int from) {
  PeerReader& peer = PeerAt(from);
  if (peer.is_gone) return;
  bool is_malformed = false;
  ExchangeLink::Receiver receiver;
  receiver.destination_of = [&](const ExchangeFrame& reply) {
    const MutableBytes destination = DestinationOfReply(from, reply);
    is_malformed = destination.empty();
    return destination;
  };
  receiver.take = [&](const ExchangeFrame& frame) {
    is_malformed = !TakeFrame(from, frame);
    return !is_malformed;
  };
  if (!peer.link.Receive(receiver)) Drop(from, is_malformed ? "sent a malformed message" : nullptr);
}

// Empty if the reply was not asked for.
MutableBytes ExchangeLoop::DestinationOfReply(int from, const ExchangeFrame& reply) {
  const PeerReader& peer = PeerAt(from);
  const auto asked = peer.asked.find(reply.id);
  if (asked == peer.asked.end()) return {};
  const ReadPiece& piece = asked->second;
  const bool fits = piece.offset == reply.offset && piece.length_bytes == reply.length_bytes;
  return fits ? DestinationOf(piece) : MutableBytes();
}

// Returns false for a malformed frame.
bool ExchangeLoop::TakeFrame(int from, const ExchangeFrame& frame) {
  PeerReader& peer = PeerAt(from);
  if (frame.kind == Kind::kRequest) {
    // A read that begins below the limit of pieces may exceed it by one.
    if (!IsMine(frame) || ++peer.owed_count > limits_.pieces_max + 1) return false;
    Serve({from, frame.id, frame.offset, frame.length_bytes});
    return true;
  }
  const auto asked = peer.asked.find(frame.id);
  const bool is_known = frame.kind == Kind::kReply || frame.kind == Kind::kRefusal;
  if (!is_known || asked == peer.asked.end()) return false;
  const uint32_t read = asked->second.read;
  peer.asked.erase(asked);
  FinishPiece(read, frame.kind == Kind::kReply);
  return true;
}

bool ExchangeLoop::IsMine(const ExchangeFrame& request) const {
  const uint64_t length = request.length_bytes;
  if (length == 0 || !IsInFile(request.offset, length)) return false;
  const uint64_t chunk = ChunkOf(request.offset);
  return chunk == ChunkOf(request.offset + length - 1) && OwnerOf(chunk) == rank_;
}

void ExchangeLoop::Send(int to) {
  PeerReader& peer = PeerAt(to);
  if (peer.is_gone || !peer.link.has_waiting()) return;
  std::vector<ExchangeFrame> sent;
  const bool is_well = peer.link.Flush(sent);
  NoteSent(to, sent);
  if (!is_well) Drop(to, nullptr);
}

void ExchangeLoop::NoteSent(int to, const std::vector<ExchangeFrame>& frames) {
  for (const ExchangeFrame& frame : frames) {
    if (frame.kind == Kind::kReply) --store_.Find(ChunkOf(frame.offset))->pin_count;
    if (frame.kind != Kind::kRequest) --PeerAt(to).owed_count;
  }
}

// This reader reads the missing bytes from the file. Answer skips the wants of the dropped reader.
// why  null: it has left
void ExchangeLoop::Drop(int reader, const char* why) {
  PeerReader& gone = PeerAt(reader);
  gone.is_gone = true;
  store_.NoteGone(static_cast<size_t>(reader));
  NoteSent(reader, gone.link.Close());
  for (auto chunk = waiting_.begin(); chunk != waiting_.end();) {
    std::erase_if(chunk->second.wants, [&](const Want& want) { return want.from == reader; });
    chunk = chunk->second.wants.empty() ? waiting_.erase(chunk) : std::next(chunk);
  }
  for (const auto& [id, piece] : std::exchange(gone.asked, {})) FinishPiece(piece.read, false);
  if (why == nullptr) return;
  notes_.push_back(fmt::format(
      "reader {} of the exchange {}: reader {} goes on without it and reads its chunks itself",
      reader, why, rank_));
}

void ExchangeLoop::DropStalled() {
  const auto now = Clock::now();
  for (size_t i = 0; i < peers_.size(); ++i) {
    PeerReader& peer = peers_[i];
    if (peer.is_gone) continue;
    const uint64_t moved_bytes = peer.link.moved_bytes();
    const bool is_idle = peer.asked.empty() && !peer.link.has_waiting();
    if (is_idle || moved_bytes != peer.moved_bytes) {
      peer.moved_bytes = moved_bytes;
      peer.alive_at = now;
    } else if (now - peer.alive_at >= limits_.stall_limit) {
      Drop(static_cast<int>(i), "does not answer");
    }
  }
}

}  // namespace lmdbio::load
