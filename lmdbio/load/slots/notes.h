// lmdbio/load/slots/notes.h - what a loader has to say beside failures.
#ifndef LMDBIO_LOAD_SLOTS_NOTES_H_
#define LMDBIO_LOAD_SLOTS_NOTES_H_

#include <mutex>
#include <string>
#include <vector>

namespace lmdbio::load {

// One line for each compromise, each said once.
// Threads: any
class Notes {
 public:
  // Does nothing for a line that was there before, said or not.
  void Add(std::string line);
  void Add(std::vector<std::string> lines);

  // The lines that were added since the last call.
  std::vector<std::string> Take();

  // Becomes a copy of `other`: with its lines, and what of them was said.
  void TakeOver(const Notes& other);

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;  // all of them, in order
  size_t taken_count_ = 0;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_SLOTS_NOTES_H_
