/* lmdbio_mpi.h - the calls of lmdbio that take a communicator (liblmdbio_mpi). */
#ifndef LMDBIO_CAPI_LMDBIO_MPI_H_
#define LMDBIO_CAPI_LMDBIO_MPI_H_

#include <mpi.h>

#include <lmdbio.h>
#include <lmdbio_sync.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As lmdbio_open, for all ranks of a communicator together: the ranks of a host share one window of
 * memory, some of them read for all, and each gets its share of every batch. Collective, as are the
 * calls that say so. lmdbio_next, lmdbio_save and the smaller ones make no MPI call and
 * may run in any thread; the collective ones run where the program calls MPI.
 * communicator  duplicated; the caller's own is not used again
 * Requires      MPI_Init before; lmdbio_close before MPI_Finalize
 * Errors        as lmdbio_open; LMDBIO_PEER_FAILED  another rank had one of these */
LMDBIO_API int lmdbio_open_mpi(MPI_Comm communicator, const char* path,
                               const lmdbio_options* options, lmdbio_loader** out_loader);

/* As lmdbio_sync_open, for all ranks of a communicator together. A process set is a communicator of
 * its own (MPI_Comm_split). Collective, as are lmdbio_sync_shutdown and, after a shutdown,
 * lmdbio_sync_close, which runs where the program calls MPI; alone, it fails the others.
 * communicator  duplicated; the caller's own is not used again
 * Requires      MPI_Init before, at any level of thread support, but for collective and transport
 *               "mpi": MPI_THREAD_MULTIPLE; lmdbio_sync_close before MPI_Finalize
 * Errors        as lmdbio_sync_open
 *               LMDBIO_INVALID_ARGUMENT  options that differ between ranks, too; names both
 *               LMDBIO_UNSUPPORTED       "mpi" at a lower level of thread support, names both
 *                                        levels; "shm" over several hosts
 *               LMDBIO_PEER_FAILED       another rank had one of these */
LMDBIO_API int lmdbio_sync_open_mpi(MPI_Comm communicator, const lmdbio_sync_options* options,
                                    lmdbio_sync** out_sync);

#ifdef __cplusplus
}
#endif
#endif /* LMDBIO_CAPI_LMDBIO_MPI_H_ */
