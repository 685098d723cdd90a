#include "bench/loader/mpi_run.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include <mpi.h>

namespace lmdbio::tools {

// A closed descriptor would be given to the next file that is opened, and output would end up in
// that file. So the streams lead to /dev/null instead. The originals stay open to the end of the
// process: if the streams of several ranks end before the ranks, the launcher of Open MPI 5.0.7 may
// never return after an error (it waits for a mutex that it holds).
void SilenceStreams() {
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere < 0) return;
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    ::fcntl(stream, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    ::dup2(nowhere, stream);
  }
  ::close(nowhere);
}

MpiRun::MpiRun(int& argc, char**& argv, MpiThreads threads) {
  int provided = 0;
  // MPI may provide less than required. The program continues; lmdbio/ranks/mpi checks the level
  // where it matters.
  const int required = threads == MpiThreads::kAll ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED;
  MPI_Init_thread(&argc, &argv, required, &provided);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) return;
  SilenceStreams();
}

MpiRun::~MpiRun() { MPI_Finalize(); }

// Open MPI reports its wait mode in a control variable. It changes the mode itself if there are
// more ranks than slots, so the command line is not enough.
std::string MpiWaitMode() {
  // In Open MPI this call sets the thread level of all of MPI, so it requests the current level.
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  int provided = 0;
  if (MPI_T_init_thread(level, &provided) != MPI_SUCCESS) return "unknown";
  std::string mode = "unknown";
  int index = 0;
  if (MPI_T_cvar_get_index("mpi_yield_when_idle", &index) == MPI_SUCCESS) {
    MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
    int count = 0;
    int value = 0;
    if (MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) == MPI_SUCCESS) {
      // The variable is a bool of one byte or an int; the low byte suffices for both.
      if (count == 1 && MPI_T_cvar_read(handle, &value) == MPI_SUCCESS) {
        mode = (value & 0xFF) != 0 ? "yield" : "spin";
      }
      MPI_T_cvar_handle_free(&handle);
    }
  }
  MPI_T_finalize();
  return mode;
}

}  // namespace lmdbio::tools
