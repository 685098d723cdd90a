#include "bench/sync/mpi_call_count.h"

#include <atomic>

#include <mpi.h>

namespace {

// Relaxed is enough: nothing but the number itself is read, and some calls are counted late at
// most.
std::atomic<uint64_t> g_call_count{0};

}  // namespace

namespace lmdbio::bench {

uint64_t MpiCallCount() { return g_call_count.load(std::memory_order_relaxed); }

}  // namespace lmdbio::bench

// Takes the place of MPI_NAME, counts, and calls MPI under its other name. MPI permits this to
// every program (its profiling interface). The definitions also take the calls of libraries in this
// process. Calls that no variant makes are not listed, and not counted.
#define COUNTED(name, parameters, arguments)              \
  extern "C" int MPI_##name parameters {                  \
    g_call_count.fetch_add(1, std::memory_order_relaxed); \
    return PMPI_##name arguments;                         \
  }

using From = const void*;
using Kind = MPI_Datatype;
using Ints = const int[];

COUNTED(Barrier, (MPI_Comm comm), (comm))
COUNTED(Ibarrier, (MPI_Comm comm, MPI_Request* request), (comm, request))
COUNTED(Bcast, (void* data, int count, Kind kind, int root, MPI_Comm comm),
        (data, count, kind, root, comm))
COUNTED(Ibcast, (void* data, int count, Kind kind, int root, MPI_Comm comm, MPI_Request* request),
        (data, count, kind, root, comm, request))
COUNTED(Allreduce, (From from, void* to, int count, Kind kind, MPI_Op op, MPI_Comm comm),
        (from, to, count, kind, op, comm))
COUNTED(Iallreduce,
        (From from, void* to, int count, Kind kind, MPI_Op op, MPI_Comm comm, MPI_Request* request),
        (from, to, count, kind, op, comm, request))
COUNTED(Reduce, (From from, void* to, int count, Kind kind, MPI_Op op, int root, MPI_Comm comm),
        (from, to, count, kind, op, root, comm))
COUNTED(Reduce_scatter, (From from, void* to, Ints counts, Kind kind, MPI_Op op, MPI_Comm comm),
        (from, to, counts, kind, op, comm))
COUNTED(Gather,
        (From from, int sent, Kind kind, void* to, int received, Kind other, int root,
         MPI_Comm comm),
        (from, sent, kind, to, received, other, root, comm))
COUNTED(Igather,
        (From from, int sent, Kind kind, void* to, int received, Kind other, int root,
         MPI_Comm comm, MPI_Request* request),
        (from, sent, kind, to, received, other, root, comm, request))
COUNTED(Gatherv,
        (From from, int sent, Kind kind, void* to, Ints received, Ints starts, Kind other, int root,
         MPI_Comm comm),
        (from, sent, kind, to, received, starts, other, root, comm))
COUNTED(Igatherv,
        (From from, int sent, Kind kind, void* to, Ints received, Ints starts, Kind other, int root,
         MPI_Comm comm, MPI_Request* request),
        (from, sent, kind, to, received, starts, other, root, comm, request))
COUNTED(Allgather,
        (From from, int sent, Kind kind, void* to, int received, Kind other, MPI_Comm comm),
        (from, sent, kind, to, received, other, comm))
COUNTED(Iallgather,
        (From from, int sent, Kind kind, void* to, int received, Kind other, MPI_Comm comm,
         MPI_Request* request),
        (from, sent, kind, to, received, other, comm, request))
COUNTED(Allgatherv,
        (From from, int sent, Kind kind, void* to, Ints received, Ints starts, Kind other,
         MPI_Comm comm),
        (from, sent, kind, to, received, starts, other, comm))
COUNTED(Alltoall,
        (From from, int sent, Kind kind, void* to, int received, Kind other, MPI_Comm comm),
        (from, sent, kind, to, received, other, comm))
COUNTED(Alltoallv,
        (From from, Ints sent, Ints sent_starts, Kind kind, void* to, Ints received, Ints starts,
         Kind other, MPI_Comm comm),
        (from, sent, sent_starts, kind, to, received, starts, other, comm))
COUNTED(Send, (From from, int count, Kind kind, int rank, int tag, MPI_Comm comm),
        (from, count, kind, rank, tag, comm))
COUNTED(Isend,
        (From from, int count, Kind kind, int rank, int tag, MPI_Comm comm, MPI_Request* request),
        (from, count, kind, rank, tag, comm, request))
COUNTED(Recv,
        (void* to, int count, Kind kind, int rank, int tag, MPI_Comm comm, MPI_Status* status),
        (to, count, kind, rank, tag, comm, status))
COUNTED(Irecv,
        (void* to, int count, Kind kind, int rank, int tag, MPI_Comm comm, MPI_Request* request),
        (to, count, kind, rank, tag, comm, request))
