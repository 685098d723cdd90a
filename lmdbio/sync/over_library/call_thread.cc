#include "lmdbio/sync/over_library/call_thread.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "lmdbio/ranks/health/health.h"

namespace lmdbio::sync {

// The thread owns it, too, because it may outlive the object.
struct CallThread::CallSlot {
  std::mutex mutex;  // of all members
  std::condition_variable changed;
  std::function<Status()> call;  // that the thread has not begun; empty: none
  std::optional<Status> result;  // of the last call, until it is fetched
  bool is_over = false;
};

CallThread::CallThread()
    : slot_(std::make_shared<CallSlot>()), thread_([slot = slot_] { Serve(*slot); }) {}

// A child of fork() has no such thread, and the mutex may be locked there.
CallThread::~CallThread() {
  const bool is_forked = fork_mark_.is_forked();
  if (!is_forked) {
    const std::lock_guard lock(slot_->mutex);
    slot_->is_over = true;
    slot_->changed.notify_all();
  }
  if (is_forked || has_given_up_) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void CallThread::Serve(CallSlot& slot) {
  std::unique_lock lock(slot.mutex);
  while (true) {
    slot.changed.wait(lock, [&slot] { return slot.call || slot.is_over; });
    if (!slot.call) return;
    // Destroyed before the lock is given back, and so before Run returns.
    const std::function<Status()> call = std::exchange(slot.call, nullptr);
    lock.unlock();
    Status result = call();
    lock.lock();
    slot.result = std::move(result);
    slot.changed.notify_all();
  }
}

Status CallThread::Run(std::function<Status()> call, const std::function<Status()>& check) {
  if (has_given_up_) {
    return Fail(ErrorCode::kPeerFailed, "an earlier call was given up, because a rank has failed");
  }
  std::unique_lock lock(slot_->mutex);
  slot_->call = std::move(call);
  slot_->changed.notify_all();
  const auto is_done = [this] { return slot_->result.has_value(); };
  while (!slot_->changed.wait_for(lock, ranks::kHealthNap, is_done)) {
    lock.unlock();
    Status checked = check();
    has_given_up_ = !checked;
    if (has_given_up_) return checked;
    lock.lock();
  }
  Status result = std::move(*slot_->result);
  slot_->result.reset();
  return result;
}

}  // namespace lmdbio::sync
