// lmdbio/api/c/shared_handle.h - the state of a handle that several threads may use at once.
#ifndef LMDBIO_API_C_SHARED_HANDLE_H_
#define LMDBIO_API_C_SHARED_HANDLE_H_

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>

#include "lmdbio/base/fork_mark.h"
#include "lmdbio/base/status.h"

namespace lmdbio::api {

inline constexpr const char* kForkedWords =
    "the handle was opened before fork(), by the parent of this process; open a new one here";

// The last failure of one thread on a handle.
struct ThreadFailure {
  std::string message;
  int error_number = 0;
};

// An object that keeps results for each thread.
class ThreadResults {
 public:
  virtual ~ThreadResults() = default;

  // Releases the results of the calling thread.
  virtual void ForgetThisThread() = 0;
};

// Calls results->ForgetThisThread() when the calling thread ends, if the object still exists.
void ForgetAtThreadEnd(std::weak_ptr<ThreadResults> results);

// Each thread has its own last failure and results, so no call ends the results of another thread.
// They end with their thread.
// Results  a ThreadFailure, with the results that calls lend to their thread
template <typename Results>
class SharedHandleState : public ForkMark,
                          public ThreadResults,
                          public std::enable_shared_from_this<SharedHandleState<Results>> {
 public:
  // The results of the calling thread. Must not be called in a child of fork(): a thread of the
  // parent may have held the mutex during the fork.
  // Requires: a std::shared_ptr owns this object
  Results& lent() {
    const std::lock_guard lock(mutex_);
    const auto [mine, is_new] = lent_.try_emplace(std::this_thread::get_id());
    if (is_new) ForgetAtThreadEnd(this->weak_from_this());
    return mine->second;
  }

  int Keep(const Error& error) {
    return Keep(static_cast<int>(error.code()), error.message(), error.error_number());
  }
  int Keep(int status, std::string_view text, int number = 0) {
    if (is_forked()) return status;
    Results& mine = lent();
    mine.message = text;
    mine.error_number = number;
    return status;
  }
  // Allocates nothing: memory may have run out.
  void Forget(int number) {
    if (is_forked()) return;
    const std::lock_guard lock(mutex_);
    const auto found = lent_.find(std::this_thread::get_id());
    if (found == lent_.end()) return;
    found->second.message.clear();
    found->second.error_number = number;
  }
  const char* LastWords() { return is_forked() ? kForkedWords : lent().message.c_str(); }
  int LastErrorNumber() { return is_forked() ? 0 : lent().error_number; }

  void ForgetThisThread() final {
    if (is_forked()) return;
    // The results end after the mutex is unlocked: that may take time.
    const auto mine = [&] {
      const std::lock_guard lock(mutex_);
      return lent_.extract(std::this_thread::get_id());
    }();
  }

 protected:
  // The results of all threads, for an object that is leaked in a child of fork().
  std::unordered_map<std::thread::id, Results> TakeLent() { return std::move(lent_); }

 private:
  std::mutex mutex_;
  std::unordered_map<std::thread::id, Results> lent_;  // its elements never move
};

}  // namespace lmdbio::api
#endif  // LMDBIO_API_C_SHARED_HANDLE_H_
