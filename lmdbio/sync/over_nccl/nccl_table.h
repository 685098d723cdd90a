// lmdbio/sync/over_nccl/nccl_table.h - the functions of NCCL that this library calls.
//
// NCCL is the shared library libnccl.so.2. This header declares the part of its C interface that
// lmdbio needs, and no file includes the vendor's header. The names are those of NCCL without
// "nccl". A test compares each declaration with the vendor's header
// (tests/sync/over_nccl/nccl_header_test.cc).
#ifndef LMDBIO_SYNC_OVER_NCCL_NCCL_TABLE_H_
#define LMDBIO_SYNC_OVER_NCCL_NCCL_TABLE_H_

#include <climits>
#include <cstddef>
#include <string>

#include "lmdbio/base/status.h"
#include "lmdbio/device/driver_table.h"

namespace lmdbio::sync {

// The result of each call of NCCL.
using NcclCode = int;

// The codes that this library tells apart. Any other code is reported by NCCL's text for it.
namespace nccl_code {
inline constexpr NcclCode kSuccess = 0;
inline constexpr NcclCode kSystemError = 2;
inline constexpr NcclCode kRemoteError = 6;
inline constexpr NcclCode kInProgress = 7;  // of a communicator whose calls do not wait
}  // namespace nccl_code

using NcclCommHandle = struct NcclCommObject*;

enum class NcclType : int {
  kByte = 0,
  kInt32 = 2,
  kInt64 = 4,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBFloat16 = 9,
};
enum class NcclOp : int { kSum = 0, kProduct = 1, kMax = 2, kMin = 3 };

// By which the ranks of a communicator find each other.
struct NcclId {
  char bytes[128];
};

// The first members of NCCL's type, as NCCL 2.14 has it. Later versions know from size and version
// that the others are missing.
struct NcclConfig {
  size_t size_bytes = sizeof(NcclConfig);
  unsigned magic = 0xCAFEBEEF;
  unsigned version = 21400;
  int is_blocking = 0;     // calls may return kInProgress
  int reserved = INT_MIN;  // undefined; NCCL does not read it
};
static_assert(sizeof(NcclConfig) == 24);

// NOLINTBEGIN(readability-identifier-naming): the names of NCCL
struct NcclTable {
  NcclCode (*GetVersion)(int* version) = nullptr;
  const char* (*GetErrorString)(NcclCode code) = nullptr;
  const char* (*GetLastError)(NcclCommHandle comm) = nullptr;
  NcclCode (*GetUniqueId)(NcclId* id) = nullptr;
  NcclCode (*CommInitRankConfig)(NcclCommHandle* comm, int size, NcclId id, int rank,
                                 NcclConfig* config) = nullptr;
  // The state of a communicator whose last call has returned kInProgress, or that has failed.
  NcclCode (*CommGetAsyncError)(NcclCommHandle comm, NcclCode* state) = nullptr;
  NcclCode (*AllReduce)(const void* from, void* to, size_t count, NcclType type, NcclOp op,
                        NcclCommHandle comm, device::StreamHandle stream) = nullptr;
  NcclCode (*Broadcast)(const void* from, void* to, size_t count, NcclType type, int root,
                        NcclCommHandle comm, device::StreamHandle stream) = nullptr;
  NcclCode (*CommFinalize)(NcclCommHandle comm) = nullptr;
  NcclCode (*CommDestroy)(NcclCommHandle comm) = nullptr;
  // Ends the kernels of this rank, and frees the communicator.
  NcclCode (*CommAbort)(NcclCommHandle comm) = nullptr;
};
// NOLINTEND(readability-identifier-naming)

// Calls `visit("ncclGetVersion", table.GetVersion)` and so on for each function.
// Table  NcclTable, or const NcclTable
template <typename Table, typename Visit>
void ForEachNcclFunction(Table& table, Visit&& visit) {
  visit("ncclGetVersion", table.GetVersion);
  visit("ncclGetErrorString", table.GetErrorString);
  visit("ncclGetLastError", table.GetLastError);
  visit("ncclGetUniqueId", table.GetUniqueId);
  visit("ncclCommInitRankConfig", table.CommInitRankConfig);
  visit("ncclCommGetAsyncError", table.CommGetAsyncError);
  visit("ncclAllReduce", table.AllReduce);
  visit("ncclBroadcast", table.Broadcast);
  visit("ncclCommFinalize", table.CommFinalize);
  visit("ncclCommDestroy", table.CommDestroy);
  visit("ncclCommAbort", table.CommAbort);
}

// NCCL of this system, by the name that all programs use. A process has it once.
inline constexpr const char* kNcclLibrary = "libnccl.so.2";
// The first version with communicators whose calls do not wait.
inline constexpr int kNcclVersionMin = 21400;

// A version as ncclGetVersion tells it: "2.28.9" for 22809.
std::string NcclVersionText(int version);

struct LoadedNccl {
  NcclTable table;
  int version = 0;
};

// Opens NCCL and looks up its functions. The library stays open until the process ends.
// library  a name for dlopen
// Errors: kNotFound     there is no such library
//         kUnsupported  it is older than kNcclVersionMin, or lacks a function; names it
// Threads: any
Result<LoadedNccl> LoadNccl(const char* library);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_NCCL_NCCL_TABLE_H_
