// lmdbio/file/io/read_queue.h - the queue of reads: new reads in order, retries at their due time.
#ifndef LMDBIO_FILE_IO_READ_QUEUE_H_
#define LMDBIO_FILE_IO_READ_QUEUE_H_

#include <chrono>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>

#include "lmdbio/file/io/open_files.h"
#include "lmdbio/file/io/read_progress.h"

namespace lmdbio::file {

// A read that is not complete. It may go to the kernel several times.
struct PendingRead {
  ReadProgress progress;
  size_t owner = 0;  // the caller's number for the object that the read belongs to
  size_t file = 0;   // the caller's number for its file
  int fd = -1;       // of this file while the read is in flight
  OpenAs opened_as = OpenAs::kBuffered;  // of this descriptor
  bool is_direct = false;
  bool is_retry = false;
};

// Threads: one at a time.
class ReadQueue {
 public:
  using Clock = std::chrono::steady_clock;

  void Add(const PendingRead& read) { ready_.push_back(read); }

  // Adds a read that is not complete yet. It precedes new reads, but is not due before `pause`
  // ends.
  void AddAgain(const PendingRead& read, std::chrono::milliseconds pause);

  // Removes and returns the next read to perform; nullopt if no read is due.
  std::optional<PendingRead> Next();

  // The due time of the earliest retry; nullopt if no retry waits.
  std::optional<Clock::time_point> next_due() const;

  void Clear();

 private:
  std::deque<PendingRead> ready_;
  std::multimap<Clock::time_point, PendingRead> later_;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_IO_READ_QUEUE_H_
