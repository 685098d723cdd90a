// lmdbio/ranks/net/wake_event.h - an eventfd that wakes a thread which polls.
#ifndef LMDBIO_RANKS_NET_WAKE_EVENT_H_
#define LMDBIO_RANKS_NET_WAKE_EVENT_H_

#include <unistd.h>

#include <cstdint>

#include "lmdbio/base/unique_fd.h"

namespace lmdbio::ranks {

// Makes an eventfd readable. Any thread.
inline void Signal(const UniqueFd& event) {
  const uint64_t one = 1;
  // The write fails only if the counter is full, and then the event is set already.
  [[maybe_unused]] const ssize_t written = ::write(event.get(), &one, sizeof one);
}

// Makes an eventfd that does not block unreadable. Returns whether it was readable.
inline bool Reset(const UniqueFd& event) {
  uint64_t count = 0;
  return ::read(event.get(), &count, sizeof count) > 0;
}

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_NET_WAKE_EVENT_H_
