/* lmdbio_mpi.h - the one call of lmdbio that takes a communicator (liblmdbio_mpi). */
#ifndef LMDBIO_CAPI_LMDBIO_MPI_H_
#define LMDBIO_CAPI_LMDBIO_MPI_H_

#include <mpi.h>

#include <lmdbio.h>

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

#ifdef __cplusplus
}
#endif
#endif /* LMDBIO_CAPI_LMDBIO_MPI_H_ */
