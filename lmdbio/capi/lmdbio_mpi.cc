#include "lmdbio/capi/lmdbio_mpi.h"

#include "lmdbio/capi/handles.h"
#include "lmdbio/mpi/mpi_group.h"

int lmdbio_open_mpi(MPI_Comm communicator, const char* path, const lmdbio_options* options,
                    lmdbio_loader** out_loader) {
  return lmdbio::capi::Guarded(nullptr, [&] {
    auto group = lmdbio::mpi::MpiGroup(communicator);
    return lmdbio::capi::OpenInGroup(group, path, options, out_loader);
  });
}
