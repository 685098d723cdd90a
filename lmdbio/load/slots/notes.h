// lmdbio/load/slots/notes.h - remarks of a loader for the user, beside failures.
#ifndef LMDBIO_LOAD_SLOTS_NOTES_H_
#define LMDBIO_LOAD_SLOTS_NOTES_H_

#include <mutex>
#include <string>
#include <vector>

namespace lmdbio::load {

// One line for each compromise. Each line is returned once.
// Threads: any
class Notes {
 public:
  // Does nothing if the line was added before.
  void Add(std::string line);
  void Add(std::vector<std::string> lines);

  // The lines that were added since the last call.
  std::vector<std::string> Take();

  // Becomes a copy of `other`, including which lines were returned.
  void TakeOver(const Notes& other);

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;  // all lines, in order
  size_t taken_count_ = 0;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_SLOTS_NOTES_H_
