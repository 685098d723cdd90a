// lmdbio/load/locate/run_joiner.h - joins locations of single records into runs.
#ifndef LMDBIO_LOAD_LOCATE_RUN_JOINER_H_
#define LMDBIO_LOAD_LOCATE_RUN_JOINER_H_

#include <cstdint>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/file/layout/record_run.h"

namespace lmdbio::load {

// Joins consecutive records of one leaf page. Threads: one at a time.
class RunJoiner {
 public:
  explicit RunJoiner(file::RecordRunSink& sink) : sink_(sink) {}

  // Errors: of the sink
  Status Add(RecordIndex record, const file::RecordLocation& location) {
    const bool node_each = run_.kind == file::RunKind::kNodes;
    const uint32_t next_node =
        run_.first_node + (node_each ? static_cast<uint32_t>(values_.size()) : 0);
    if (values_.empty() || location.leaf != run_.leaf || location.kind != run_.kind ||
        location.home != run_.home || location.node != next_node) {
      LMDBIO_TRY_VOID(Flush());
      run_ = {record, location.leaf, location.node, location.kind, location.home, {}, {}};
    }
    values_.push_back(location.value);
    return {};
  }

  // Passes the last run to the sink. Errors: of the sink
  Status Flush() {
    if (values_.empty()) return {};
    run_.values = values_;
    Status added = sink_.Add(run_);
    values_.clear();
    return added;
  }

 private:
  file::RecordRunSink& sink_;
  file::RecordRun run_;
  std::vector<Extent> values_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOCATE_RUN_JOINER_H_
