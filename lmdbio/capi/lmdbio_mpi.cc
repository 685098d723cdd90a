#include "lmdbio/capi/lmdbio_mpi.h"

#include "lmdbio/capi/handles.h"
#include "lmdbio/capi/sync_handles.h"
#include "lmdbio/mpi/mpi_collectives.h"
#include "lmdbio/mpi/mpi_group.h"
#include "lmdbio/mpi/mpi_thread.h"
#include "lmdbio/mpi/mpi_transport.h"

namespace {

using namespace lmdbio;  // NOLINT: all of this file is the border

// Collective. A rank that may not call MPI tells the others before they do.
Status MakeMpiParts(MPI_Comm communicator, comm::Group& group, const capi::SyncChoice& choice,
                    sync::SyncParts& parts) {
  Status allowed;
  if (choice.has_mpi()) allowed = mpi::CheckMpiThread(mpi::MpiCaller::kAnyThread);
  LMDBIO_TRY_VOID(comm::Agree(group, std::move(allowed)));
  if (choice.has_mpi_transport) {
    LMDBIO_TRY(parts.transport, mpi::MpiTransport(communicator));
  }
  if (choice.has_mpi_collectives()) {
    parts.collectives = [communicator](comm::Health& health) {
      return mpi::MpiCollectives(communicator, health, {});
    };
  }
  return {};
}

}  // namespace

int lmdbio_open_mpi(MPI_Comm communicator, const char* path, const lmdbio_options* options,
                    lmdbio_loader** out_loader) {
  return capi::Guarded(nullptr, [&] {
    auto group = mpi::MpiGroup(communicator);
    return capi::OpenInGroup(group, path, options, out_loader);
  });
}

int lmdbio_sync_open_mpi(MPI_Comm communicator, const lmdbio_sync_options* options,
                         lmdbio_sync** out_sync) {
  return capi::Guarded(nullptr, [&] {
    auto group = mpi::MpiGroup(communicator);
    const auto maker = [communicator](comm::Group& ranks, const capi::SyncChoice& choice,
                                      sync::SyncParts& parts) {
      return MakeMpiParts(communicator, ranks, choice, parts);
    };
    return capi::OpenSyncInGroup(group, options, maker, out_sync);
  });
}
