#include "lmdbio/api/c/lmdbio_mpi.h"

#include <fmt/format.h>

#include "lmdbio/api/c/handles.h"
#include "lmdbio/api/c/sync_handles.h"
#include "lmdbio/ranks/mpi/mpi_group.h"
#include "lmdbio/ranks/mpi/mpi_thread.h"
#include "lmdbio/sync/over_mpi/fastest_over_mpi.h"
#include "lmdbio/sync/over_mpi/mpi_device_memory.h"
#include "lmdbio/sync/over_mpi/mpi_on_device.h"
#include "lmdbio/sync/over_mpi/mpi_transport.h"

namespace {

using namespace lmdbio;  // NOLINT: the whole file translates between C and C++

// Collective. The ranks agree that all of them may call MPI before any rank calls it.
Status MakeMpiParts(MPI_Comm communicator, ranks::Group& group, const api::SyncChoice& choice,
                    sync::SyncParts& parts) {
  Status allowed;
  const bool is_on_device = choice.options.device_collective == "mpi";
  const sync::MpiDeviceMemory answer = sync::QueryMpiDeviceMemory();
  if (is_on_device) allowed = sync::CheckMpiDeviceMemory(answer);
  if (allowed && (is_on_device || choice.has_mpi())) {
    allowed = ranks::CheckMpiThread(ranks::MpiCaller::kAnyThread);
  }
  LMDBIO_TRY_VOID(ranks::Agree(group, std::move(allowed)));
  parts.device_note =
      fmt::format("{}; {}", sync::TextOf(answer),
                  is_on_device ? "it reduces tensors there"
                               : "messages between GPUs of several hosts do not use it");
  if (is_on_device) {
    LMDBIO_TRY(parts.device_library, ranks::ForAll(group, sync::MpiOnDevice(communicator)));
  }
  if (choice.has_mpi_transport) {
    LMDBIO_TRY(parts.transport, sync::MpiTransport(communicator, choice.options.tree_arity));
  }
  if (choice.has_mpi_collectives()) {
    // Made later, when the health of the job exists.
    const sync::OverMpiOptions options{.chunk_bytes = choice.options.chunk_bytes,
                                       .chunk_depth = choice.options.chunk_depth};
    parts.collectives = [communicator, options](ranks::Health& health) {
      return sync::FastestOverMpi(communicator, health, options);
    };
  }
  return {};
}

}  // namespace

int lmdbio_open_mpi(MPI_Comm communicator, const char* path, const lmdbio_options* options,
                    lmdbio_loader** out_loader) {
  return api::Guarded(nullptr, [&] {
    auto group = ranks::MpiGroup(communicator);
    return api::OpenInGroup(group, path, options, out_loader);
  });
}

int lmdbio_open_mpi_files(MPI_Comm communicator, const lmdbio_files* files,
                          const lmdbio_options* options, lmdbio_loader** out_loader) {
  return api::Guarded(nullptr, [&] {
    auto group = ranks::MpiGroup(communicator);
    return api::OpenInGroup(group, files, options, out_loader);
  });
}

int lmdbio_sync_open_mpi(MPI_Comm communicator, const lmdbio_sync_options* options,
                         lmdbio_sync** out_sync) {
  return api::Guarded(nullptr, [&] {
    auto group = ranks::MpiGroup(communicator);
    const auto maker = [communicator](ranks::Group& ranks, const api::SyncChoice& choice,
                                      sync::SyncParts& parts) {
      return MakeMpiParts(communicator, ranks, choice, parts);
    };
    return api::OpenSyncInGroup(group, options, maker, out_sync);
  });
}
