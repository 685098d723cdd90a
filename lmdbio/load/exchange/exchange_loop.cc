#include "lmdbio/load/exchange/exchange_loop.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

namespace lmdbio::load {
namespace {

using Clock = ChunkStore::Clock;
using Kind = ExchangeFrame::Kind;

// Marks the reads of chunks. Other tags are indices of own reads.
constexpr uint64_t kChunkTag = uint64_t{1} << 63;

// A read of at least this part of a chunk is large enough for the storage.
constexpr uint64_t kLargePart = 2;

// The longest sleep while the engine may have to repeat a read, or a chunk waits for a place.
constexpr int kCheckPeriodMs = 10;

}  // namespace

ExchangeLoop::ExchangeLoop(std::unique_ptr<file::BlockEngine> engine, ExchangeLinks links,
                           MutableBytes memory, const ExchangeLimits& limits)
    : engine_(std::move(engine)),
      limits_(limits),
      rank_(links.rank),
      store_(memory, limits.chunk_bytes, links.sockets.size()),
      wants_(memory.size() / limits.chunk_bytes) {
  for (UniqueFd& socket : links.sockets) {
    const bool is_gone = !socket;
    const size_t reader = peers_.size();
    if (is_gone && reader != static_cast<size_t>(rank_)) store_.NoteGone(reader);
    peers_.push_back({ExchangeLink(std::move(socket)), is_gone, {}});
  }
}

void ExchangeLoop::Add(std::span<const file::BlockRead> reads) {
  not_begun_.insert(not_begun_.end(), reads.begin(), reads.end());
}

Status ExchangeLoop::Turn() {
  LMDBIO_TRY_VOID(TakeLoaded());
  const auto count = static_cast<int>(peers_.size());
  for (int peer = 0; peer < count; ++peer) TakeFrames(peer);
  LoadWaiting();
  BeginReads();
  for (int peer = 0; peer < count; ++peer) Send(peer);
  if (failure_) return Fail(failure_->Copy());
  return {};
}

void ExchangeLoop::Sleep(int event) {
  std::vector<pollfd> polled{{event, POLLIN, 0}};
  for (const PeerReader& peer : peers_) {
    if (peer.is_gone) continue;
    const int events = peer.link.has_waiting() ? POLLIN | POLLOUT : POLLIN;
    polled.push_back({peer.link.socket(), static_cast<short>(events), 0});
  }
  int limit_ms = waiting_.empty() ? -1 : kCheckPeriodMs;
  if (engine_->outstanding() > 0) {
    const int done_event = engine_->event();
    if (done_event >= 0) polled.push_back({done_event, POLLIN, 0});
    limit_ms = done_event >= 0 ? kCheckPeriodMs : 0;
  }
  ::poll(polled.data(), polled.size(), limit_ms);
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
  const uint64_t end = read.offset + read.destination.size();
  const bool is_large = read.destination.size() >= limits_.chunk_bytes / kLargePart;
  if (read.destination.empty() || is_large || end > limits_.file_bytes) {
    reads_[index] = {read, 0, true};
    return ReadOwn(index);
  }
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
  PeerReader& peer = peers_[static_cast<size_t>(owner)];
  if (peer.is_gone) return FinishPiece(piece.read, false);
  const uint32_t id = next_id_++;
  peer.asked[id] = piece;
  peer.link.Post({Kind::kRequest, id, piece.offset, piece.length_bytes});
}

MutableBytes ExchangeLoop::PlaceOf(const ReadPiece& piece) const {
  const file::BlockRead& read = reads_[piece.read].read;
  return read.destination.subspan(piece.offset - read.offset, piece.length_bytes);
}

void ExchangeLoop::FinishPiece(uint32_t read, bool has_come) {
  OpenRead& open = reads_[read];
  open.is_own = open.is_own || !has_come;
  --piece_count_;
  if (--open.pieces_left > 0) return;
  if (open.is_own) return ReadOwn(read);
  done_.push_back({open.read.tag, {}});
  free_reads_.push_back(read);
}

void ExchangeLoop::ReadOwn(uint32_t read) {
  file::BlockRead own = reads_[read].read;
  own.tag = read;
  StartRead(own);
}

void ExchangeLoop::StartRead(const file::BlockRead& read) {
  if (failure_) return;
  Status started = engine_->Start(std::span(&read, 1));
  if (!started) failure_.emplace(std::move(started).error());
}

// --- Chunks of this reader ---

void ExchangeLoop::Serve(const Want& want) {
  const uint64_t number = ChunkOf(want.offset);
  store_.NoteWant(static_cast<size_t>(want.from), number);
  ChunkStore::HeldChunk* const chunk = store_.Find(number);
  if (chunk != nullptr && chunk->is_ready) return Answer(want, chunk);
  if (chunk != nullptr) return wants_[store_.IndexOf(*chunk)].push_back(want);
  const auto waiting = waiting_.find(number);
  if (waiting != waiting_.end()) return waiting->second.push_back(want);
  if (!Load(number, {want})) waiting_[number] = {want};
}

// Begins to read a chunk. False: it has no place.
bool ExchangeLoop::Load(uint64_t number, std::vector<Want> wants) {
  const uint64_t offset = number * limits_.chunk_bytes;
  const uint64_t length = std::min(limits_.chunk_bytes, limits_.file_bytes - offset);
  ChunkStore::HeldChunk* const chunk = store_.Add(number, length, Clock::now());
  if (chunk == nullptr) return false;
  const size_t index = store_.IndexOf(*chunk);
  wants_[index] = std::move(wants);
  StartRead({offset, chunk->memory, kChunkTag | index});
  return true;
}

// The lowest numbers first: readers that are behind need them.
void ExchangeLoop::LoadWaiting() {
  while (!waiting_.empty() && Load(waiting_.begin()->first, waiting_.begin()->second)) {
    waiting_.erase(waiting_.begin());
  }
}

// chunk  null: it could not be read
void ExchangeLoop::Answer(const Want& want, ChunkStore::HeldChunk* chunk) {
  Bytes bytes;
  if (chunk != nullptr) {
    chunk->last_use = Clock::now();
    bytes = chunk->memory.subspan(want.offset % limits_.chunk_bytes, want.length_bytes);
  }
  if (want.from == rank_) {
    const MutableBytes place = PlaceOf({want.id, want.offset, want.length_bytes});
    if (!bytes.empty()) std::memcpy(place.data(), bytes.data(), bytes.size());
    return FinishPiece(want.id, !bytes.empty());
  }
  PeerReader& peer = peers_[static_cast<size_t>(want.from)];
  if (peer.is_gone) return;
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
  PeerReader& peer = peers_[static_cast<size_t>(from)];
  if (peer.is_gone) return;
  const auto place_of = [&](const ExchangeFrame& reply) -> MutableBytes {
    const auto asked = peer.asked.find(reply.id);
    if (asked == peer.asked.end()) return {};
    const ReadPiece& piece = asked->second;
    const bool fits = piece.offset == reply.offset && piece.length_bytes == reply.length_bytes;
    return fits ? PlaceOf(piece) : MutableBytes();
  };
  std::vector<ExchangeFrame> frames;
  bool is_well = peer.link.Receive(place_of, frames);
  for (const ExchangeFrame& frame : frames) is_well = TakeFrame(from, frame) && is_well;
  if (!is_well) Drop(from);
}

// Returns false for nonsense.
bool ExchangeLoop::TakeFrame(int from, const ExchangeFrame& frame) {
  if (frame.kind == Kind::kRequest) {
    if (!IsMine(frame)) return false;
    Serve({from, frame.id, frame.offset, frame.length_bytes});
    return true;
  }
  PeerReader& peer = peers_[static_cast<size_t>(from)];
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
  if (length == 0 || length > limits_.chunk_bytes || request.offset > limits_.file_bytes ||
      length > limits_.file_bytes - request.offset) {
    return false;
  }
  const uint64_t chunk = ChunkOf(request.offset);
  return chunk == ChunkOf(request.offset + length - 1) && OwnerOf(chunk) == rank_;
}

void ExchangeLoop::Send(int to) {
  PeerReader& peer = peers_[static_cast<size_t>(to)];
  if (peer.is_gone || !peer.link.has_waiting()) return;
  std::vector<ExchangeFrame> sent;
  const bool is_well = peer.link.Flush(sent);
  Unpin(sent);
  if (!is_well) Drop(to);
}

void ExchangeLoop::Unpin(const std::vector<ExchangeFrame>& frames) {
  for (const ExchangeFrame& frame : frames) {
    if (frame.kind == Kind::kReply) --store_.Find(ChunkOf(frame.offset))->pin_count;
  }
}

// This reader reads what the other one owes it. What the other one wants is forgotten, when its
// turn comes.
void ExchangeLoop::Drop(int peer) {
  PeerReader& gone = peers_[static_cast<size_t>(peer)];
  gone.is_gone = true;
  store_.NoteGone(static_cast<size_t>(peer));
  Unpin(gone.link.Close());
  for (const auto& [id, piece] : std::exchange(gone.asked, {})) FinishPiece(piece.read, false);
}

}  // namespace lmdbio::load
