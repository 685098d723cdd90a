#include "bench/device_jobs/memory_wire.h"

#include <cstring>

namespace lmdbio::figures {

using Lane = MemoryExchange::Lane;

Status MemoryWire::StartSend(int to, Bytes bytes) {
  const std::scoped_lock lock(exchange_->mutex);
  exchange_->LaneOf(rank_, to).messages.push_back(bytes);
  exchange_->changed.notify_all();
  return {};
}

Status MemoryWire::StartReceive(int from, MutableBytes bytes) {
  receives_[static_cast<size_t>(from)].places.push_back(bytes);
  return {};
}

bool MemoryWire::HasArrived() const {
  for (int from = 0; from < exchange_->size; ++from) {
    const bool is_expected = !receives_[static_cast<size_t>(from)].places.empty();
    if (is_expected && !exchange_->LaneOf(from, rank_).messages.empty()) return true;
  }
  return false;
}

// The sender does not touch a message until it is taken, so others may go on meanwhile.
void MemoryWire::Progress(std::unique_lock<std::mutex>& lock) {
  for (int from = 0; from < exchange_->size; ++from) {
    Receives& receives = receives_[static_cast<size_t>(from)];
    Lane& lane = exchange_->LaneOf(from, rank_);
    while (!receives.places.empty() && !lane.messages.empty()) {
      const Bytes message = lane.messages.front();
      lane.messages.pop_front();
      lock.unlock();
      if (!message.empty()) {
        std::memcpy(receives.places.front().data(), message.data(), message.size());
      }
      receives.places.pop_front();
      ++receives.received;
      lock.lock();
      ++lane.taken;
      exchange_->changed.notify_all();
    }
  }
}

Result<bool> MemoryWire::Look(const std::function<bool()>& is_done) {
  std::unique_lock lock(exchange_->mutex);
  if (exchange_->end) return Fail(exchange_->end->Copy());
  Progress(lock);
  return is_done();
}

Status MemoryWire::Await(const std::function<bool()>& is_done) {
  std::unique_lock lock(exchange_->mutex);
  while (true) {
    if (exchange_->end) return Fail(exchange_->end->Copy());
    Progress(lock);
    if (is_done()) return {};
    exchange_->changed.wait(lock, [&] { return exchange_->end || HasArrived() || is_done(); });
  }
}

bool MemoryWire::IsTaken(int to) const {
  return exchange_->LaneOf(rank_, to).taken > sends_[static_cast<size_t>(to)];
}

Status MemoryWire::AwaitSend(int to) {
  LMDBIO_TRY_VOID(Await([&] { return IsTaken(to); }));
  ++sends_[static_cast<size_t>(to)];
  return {};
}

Status MemoryWire::AwaitReceive(int from) {
  Receives& receives = receives_[static_cast<size_t>(from)];
  LMDBIO_TRY_VOID(Await([&] { return receives.received > receives.awaited; }));
  ++receives.awaited;
  return {};
}

Result<bool> MemoryWire::IsSent(int to) {
  return Look([&] { return IsTaken(to); });
}

Result<bool> MemoryWire::IsReceived(int from) {
  const Receives& receives = receives_[static_cast<size_t>(from)];
  return Look([&] { return receives.received > receives.awaited; });
}

void MemoryWire::Stop(const Error& why) {
  const std::scoped_lock lock(exchange_->mutex);
  if (!exchange_->end) exchange_->end.emplace(ErrorCode::kPeerFailed, why.message());
  exchange_->changed.notify_all();
}

}  // namespace lmdbio::figures
