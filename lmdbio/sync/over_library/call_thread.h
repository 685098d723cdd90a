// lmdbio/sync/over_library/call_thread.h - makes calls that block in a thread of their own, so that
// the caller can give them up.
#ifndef LMDBIO_SYNC_OVER_LIBRARY_CALL_THREAD_H_
#define LMDBIO_SYNC_OVER_LIBRARY_CALL_THREAD_H_

#include <functional>
#include <memory>
#include <thread>

#include "lmdbio/base/fork_mark.h"
#include "lmdbio/base/status.h"

namespace lmdbio::sync {

// Threads: one at a time
class CallThread {
 public:
  CallThread();
  // Waits until the thread has ended. If a call was given up, the thread ends with that call.
  ~CallThread();
  CallThread(const CallThread&) = delete;
  CallThread& operator=(const CallThread&) = delete;

  // Makes the call in the thread, and waits, asleep, until it returns.
  // call   owns all that it uses, because it goes on if it is given up; destroyed when it returns
  // check  called about every ranks::kHealthNap; an error gives the call up
  // Errors: those of `call` and `check`; kPeerFailed  an earlier call was given up
  Status Run(std::function<Status()> call, const std::function<Status()>& check);

 private:
  struct CallSlot;
  static void Serve(CallSlot& slot);

  const ForkMark fork_mark_;
  const std::shared_ptr<CallSlot> slot_;
  bool has_given_up_ = false;
  std::thread thread_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_LIBRARY_CALL_THREAD_H_
