#include "lmdbio/ranks/mpi/mpi_thread.h"

#include <string_view>

#include <fmt/format.h>
#include <mpi.h>

#include "lmdbio/ranks/mpi/mpi_calls.h"

namespace lmdbio::ranks {
namespace {

std::string_view NameOfLevel(int level) {
  if (level == MPI_THREAD_SINGLE) return "MPI_THREAD_SINGLE";
  if (level == MPI_THREAD_FUNNELED) return "MPI_THREAD_FUNNELED";
  return level == MPI_THREAD_SERIALIZED ? "MPI_THREAD_SERIALIZED" : "MPI_THREAD_MULTIPLE";
}

}  // namespace

Status CheckMpiThread(MpiCaller caller) {
  if (!IsMpiRunning()) {
    return Fail(ErrorCode::kInvalidArgument,
                "MPI is not running: call this after MPI_Init and before MPI_Finalize");
  }
  if (caller == MpiCaller::kMainThread) {
    int is_main = 0;
    LMDBIO_TRY_VOID(MpiStatus(MPI_Is_thread_main(&is_main), "MPI_Is_thread_main"));
    if (is_main != 0) return {};
    return Fail(ErrorCode::kInvalidArgument,
                "the calling thread is not the thread that initialized MPI");
  }
  // The standard orders the four levels by their numbers.
  const int needed = caller == MpiCaller::kAnyThread ? MPI_THREAD_MULTIPLE : MPI_THREAD_SERIALIZED;
  int given = MPI_THREAD_SINGLE;
  LMDBIO_TRY_VOID(MpiStatus(MPI_Query_thread(&given), "MPI_Query_thread"));
  if (given >= needed) return {};
  return Fail(
      ErrorCode::kUnsupported,
      fmt::format(
          "a helper thread may not call MPI: MPI was initialized with {}; initialize MPI with {}",
          NameOfLevel(given), NameOfLevel(needed)));
}

}  // namespace lmdbio::ranks
