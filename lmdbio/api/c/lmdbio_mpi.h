/* lmdbio_mpi.h - the calls of lmdbio that take a communicator (liblmdbio_mpi). */
#ifndef LMDBIO_API_C_LMDBIO_MPI_H_
#define LMDBIO_API_C_LMDBIO_MPI_H_

#include <mpi.h>

#include <lmdbio.h>
#include <lmdbio_sync.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Opens a loader for all ranks of a communicator together, as lmdbio_open. The ranks of a host
 * share one window of memory, some of them read for all, and each gets its share of every batch.
 * Collective. The collective calls on the loader run in a thread that may call MPI. The other
 * calls, such as lmdbio_next and lmdbio_save, make no MPI call and may run in any thread.
 * communicator  duplicated; the library does not use the caller's communicator afterwards
 * Requires      MPI_Init before; lmdbio_close before MPI_Finalize
 * Errors        as lmdbio_open; LMDBIO_PEER_FAILED  another rank had one of these */
LMDBIO_API int lmdbio_open_mpi(MPI_Comm communicator, const char* path,
                               const lmdbio_options* options, lmdbio_loader** out_loader);

/* The same for several files as one, as lmdbio_open_files. Every rank gives the same files. */
LMDBIO_API int lmdbio_open_mpi_files(MPI_Comm communicator, const lmdbio_files* files,
                                     const lmdbio_options* options, lmdbio_loader** out_loader);

/* Opens a synchronizer for all ranks of a communicator together, as lmdbio_sync_open. A process set
 * is a communicator of its own (MPI_Comm_split). Collective, as are lmdbio_sync_shutdown and, after
 * a shutdown, lmdbio_sync_close. lmdbio_sync_close runs in a thread that may call MPI. Without a
 * shutdown, it makes the operations of the other ranks fail.
 * communicator  duplicated; the library does not use the caller's communicator afterwards
 * Requires      MPI_Init before, at any level of thread support; collective, transport and
 *               device_collective "mpi" need MPI_THREAD_MULTIPLE; lmdbio_sync_close before
 *               MPI_Finalize
 * Errors        as lmdbio_sync_open
 *               LMDBIO_INVALID_ARGUMENT  also if options differ between ranks; names both values
 *               LMDBIO_UNSUPPORTED       "mpi" at a lower level of thread support, names both
 *                                        levels; "shm" over several hosts; device_collective "mpi"
 *                                        if MPI does not say that it takes memory of GPUs
 *               LMDBIO_PEER_FAILED       another rank had one of these */
LMDBIO_API int lmdbio_sync_open_mpi(MPI_Comm communicator, const lmdbio_sync_options* options,
                                    lmdbio_sync** out_sync);

#ifdef __cplusplus
}
#endif
#endif /* LMDBIO_API_C_LMDBIO_MPI_H_ */
