// lmdbio/file/io/read_queue.h - reads that wait: for room in the order in which they came, after a
// failure for their time.
#ifndef LMDBIO_FILE_IO_READ_QUEUE_H_
#define LMDBIO_FILE_IO_READ_QUEUE_H_

#include <chrono>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>

#include "lmdbio/file/io/read_progress.h"

namespace lmdbio::file {

// A read on its way from its owner to the kernel and back, as often as it takes.
struct PendingRead {
  ReadProgress progress;
  size_t owner = 0;  // what it belongs to: the owner's number for it
  bool is_direct = false;
  bool is_retry = false;
};

// Threads: one at a time.
class ReadQueue {
 public:
  using Clock = std::chrono::steady_clock;

  void Add(const PendingRead& read) { ready_.push_back(read); }

  // A read that came back unfinished. It goes before the others, but not before `pause` is over.
  void AddAgain(const PendingRead& read, std::chrono::milliseconds pause);

  // Takes out the read to perform next; nullopt if there is none, or none whose time has come.
  std::optional<PendingRead> Next();

  // When the first of the reads that wait for their time may be performed; nullopt if none waits.
  std::optional<Clock::time_point> next_due() const;

  void Clear();

 private:
  std::deque<PendingRead> ready_;
  std::multimap<Clock::time_point, PendingRead> later_;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_IO_READ_QUEUE_H_
