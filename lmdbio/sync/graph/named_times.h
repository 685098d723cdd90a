// lmdbio/sync/graph/named_times.h - the times of the tensors of a learned iteration, by name.
//
// Source: Hashemi et al. 4.1; docs/caramel.md "Times".
#ifndef LMDBIO_SYNC_GRAPH_NAMED_TIMES_H_
#define LMDBIO_SYNC_GRAPH_NAMED_TIMES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lmdbio/sync/schedule/program_times.h"

namespace lmdbio::sync {

// Pure: no clock.
// Threads: one at a time.
class NamedTimes {
 public:
  // names  of the tensors of an iteration; they differ
  explicit NamedTimes(const std::vector<std::string>& names);

  // The next submission of this tensor is of an iteration that began before this object.
  void SkipNext(std::string_view name);

  // As ProgramTimes; other names are ignored.
  void OnSubmit(std::string_view name, int64_t program_ns);
  void OnWaited(std::string_view name, int64_t program_ns);

  bool is_steady() const { return times_.is_steady(); }
  // Requires: is_steady(). A name of the constructor
  TensorTimes TimesOf(std::string_view name) const;
  int64_t length_ns() const { return times_.length_ns(); }
  int64_t spread_ns() const { return times_.spread_ns(); }

 private:
  struct NamedTensor {
    size_t index = 0;
    bool skips_next = false;
    bool is_submitted = false;  // since this object was made
  };
  std::unordered_map<std::string, NamedTensor> tensors_;
  ProgramTimes times_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_GRAPH_NAMED_TIMES_H_
