// lmdbio/api/c/c_sync_options.h - structs of lmdbio_sync.h as the library has them.
#ifndef LMDBIO_API_C_C_SYNC_OPTIONS_H_
#define LMDBIO_API_C_C_SYNC_OPTIONS_H_

#include <string>

#include "lmdbio/api/c/lmdbio_sync.h"
#include "lmdbio/base/status.h"
#include "lmdbio/sync/engine/sync_options.h"
#include "lmdbio/sync/engine/synchronizer.h"

namespace lmdbio::api {

// What lmdbio_sync_options mean.
struct SyncChoice {
  sync::SyncOptions options;
  bool has_mpi_transport = false;
  lmdbio_log log = nullptr;
  void* log_context = nullptr;

  bool has_mpi_collectives() const { return options.collective == "mpi"; }
  bool has_mpi() const { return has_mpi_transport || has_mpi_collectives(); }
  // What all ranks must have alike and sync::SyncOptions do not hold, in words.
  std::string TransportWords() const;
  // The options as one JSON object, by their names in C.
  std::string Json() const;
};

// options  may be null: all 0
// Errors: kInvalidArgument  a value or name that there is not; names the field
//         kUnsupported      something is set that this version does not know
Result<SyncChoice> SyncChoiceOf(const lmdbio_sync_options* options);

// request     may be null, which is refused
// rank_count  so many splits are read
// Errors: as SyncChoiceOf
Result<sync::Submission> SubmissionOf(const lmdbio_sync_request* request, int rank_count);

}  // namespace lmdbio::api
#endif  // LMDBIO_API_C_C_SYNC_OPTIONS_H_
