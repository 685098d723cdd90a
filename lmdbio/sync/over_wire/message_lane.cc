#include "lmdbio/sync/over_wire/message_lane.h"

#include <algorithm>
#include <cstring>

#include "lmdbio/base/check.h"

namespace lmdbio::sync {

void MessageLane::Push(std::byte* data, size_t bytes) {
  transfers.push_back({data, bytes});
  CountDone();
}

void MessageLane::Advance(size_t bytes) {
  for (auto transfer = transfers.begin(); bytes > 0; ++transfer) {
    const size_t part = std::min(bytes, transfer->left_bytes);
    transfer->data += part;
    transfer->left_bytes -= part;
    bytes -= part;
  }
  CountDone();
}

void MessageLane::CountDone() {
  while (!transfers.empty() && transfers.front().left_bytes == 0) {
    transfers.pop_front();
    ++done_count;
  }
}

MessageLane::NextVectors MessageLane::FillVectors(std::span<iovec> vectors) const {
  NextVectors next;
  for (const PendingTransfer& transfer : transfers) {
    if (next.count == vectors.size() || next.bytes == kBytesPerTurn) break;
    const size_t part = std::min(transfer.left_bytes, kBytesPerTurn - next.bytes);
    vectors[next.count++] = {transfer.data, part};
    next.bytes += part;
  }
  return next;
}

iovec ReadAhead::Room() {
  LMDBIO_CHECK(left_.empty());
  memory_.resize(kBytesMax);
  return {memory_.data(), memory_.size()};
}

void ReadAhead::Take(size_t bytes) { left_ = Bytes(memory_).first(bytes); }

void ReadAhead::MoveTo(MessageLane& lane) {
  while (!left_.empty() && !lane.transfers.empty()) {
    const PendingTransfer& to = lane.transfers.front();
    const size_t part = std::min(to.left_bytes, left_.size());
    std::memcpy(to.data, left_.data(), part);
    left_ = left_.subspan(part);
    lane.Advance(part);
  }
}

}  // namespace lmdbio::sync
