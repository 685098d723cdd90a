// lmdbio/api/c/c_sync_options.h - converts the structs of lmdbio_sync.h to those of the library.
#ifndef LMDBIO_API_C_C_SYNC_OPTIONS_H_
#define LMDBIO_API_C_C_SYNC_OPTIONS_H_

#include <functional>
#include <string>

#include "lmdbio/api/c/lmdbio_sync.h"
#include "lmdbio/base/status.h"
#include "lmdbio/sync/engine/sync_options.h"
#include "lmdbio/sync/engine/synchronizer.h"

namespace lmdbio::api {

// The converted lmdbio_sync_options.
struct SyncChoice {
  sync::SyncOptions options;
  bool has_mpi_transport = false;
  lmdbio_log log = nullptr;
  void* log_context = nullptr;

  bool has_mpi_collectives() const { return options.collective == "mpi"; }
  bool has_mpi() const { return has_mpi_transport || has_mpi_collectives(); }
  // Describes the choice that sync::SyncOptions lacks. All ranks must have the same text.
  std::string TransportWords() const;
  // The options as one JSON object, by their names in C.
  std::string Json() const;
};

// options  may be null: all 0
// Errors: kInvalidArgument  an unknown value or name; names the field
//         kUnsupported      a byte is set that this version does not know
Result<SyncChoice> SyncChoiceOf(const lmdbio_sync_options* options);

// The memory behind a pointer, for LMDBIO_MEMORY_ASK.
using MemoryAsker = std::function<Result<sync::MemoryKind>(const void* pointer)>;

// request     null is an error
// rank_count  the number of splits that are read
// Errors: as SyncChoiceOf, and those of `ask`
Result<sync::Submission> SubmissionOf(const lmdbio_sync_request* request, int rank_count,
                                      const MemoryAsker& ask);

}  // namespace lmdbio::api
#endif  // LMDBIO_API_C_C_SYNC_OPTIONS_H_
