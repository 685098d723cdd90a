// Compares the declarations of nccl_table.h with the vendor's nccl.h. The oracle is the compiler:
// each comparison is a static_assert. Without nccl.h this is a skip.

#include <cstdio>

#ifndef LMDBIO_TEST_NCCL_HEADER

int main() {
  std::puts("skipped: no nccl.h was found");
  return 77;
}

#else

#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "lmdbio/sync/over_nccl/nccl_table.h"
#include "tests/device/same_abi.h"

namespace lmdbio::sync {
namespace {

using test::SameCall;

int compared = 0;

#define COMPARE_CALL(name)                                                                 \
  static_assert(SameCall<decltype(NcclTable::name), decltype(&nccl##name)>::value, #name); \
  ++compared

#define COMPARE_NUMBER(ours, theirs) \
  static_assert(static_cast<int>(ours) == static_cast<int>(theirs))

COMPARE_NUMBER(nccl_code::kSuccess, ncclSuccess);
COMPARE_NUMBER(nccl_code::kSystemError, ncclSystemError);
COMPARE_NUMBER(nccl_code::kRemoteError, ncclRemoteError);
COMPARE_NUMBER(nccl_code::kInProgress, ncclInProgress);

COMPARE_NUMBER(NcclType::kByte, ncclInt8);
COMPARE_NUMBER(NcclType::kInt32, ncclInt32);
COMPARE_NUMBER(NcclType::kInt64, ncclInt64);
COMPARE_NUMBER(NcclType::kFloat16, ncclFloat16);
COMPARE_NUMBER(NcclType::kFloat32, ncclFloat32);
COMPARE_NUMBER(NcclType::kFloat64, ncclFloat64);
COMPARE_NUMBER(NcclType::kBFloat16, ncclBfloat16);

COMPARE_NUMBER(NcclOp::kSum, ncclSum);
COMPARE_NUMBER(NcclOp::kProduct, ncclProd);
COMPARE_NUMBER(NcclOp::kMax, ncclMax);
COMPARE_NUMBER(NcclOp::kMin, ncclMin);

static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));

// The vendor's type has more members.
static_assert(offsetof(NcclConfig, size_bytes) == offsetof(ncclConfig_t, size));
static_assert(offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(NcclConfig, is_blocking) == offsetof(ncclConfig_t, blocking));
static_assert(sizeof(NcclConfig) <= sizeof(ncclConfig_t));
static_assert(std::is_same_v<decltype(NcclConfig::size_bytes), decltype(ncclConfig_t::size)>);
static_assert(std::is_same_v<decltype(NcclConfig::magic), decltype(ncclConfig_t::magic)>);
static_assert(std::is_same_v<decltype(NcclConfig::version), decltype(ncclConfig_t::version)>);
static_assert(std::is_same_v<decltype(NcclConfig::is_blocking), decltype(ncclConfig_t::blocking)>);
static_assert(NcclConfig().version == NCCL_VERSION(2, 14, 0));
static_assert(kNcclVersionMin == NCCL_VERSION(2, 14, 0));
constexpr ncclConfig_t kVendors = NCCL_CONFIG_INITIALIZER;
static_assert(NcclConfig().magic == kVendors.magic);
static_assert(NcclConfig().reserved == NCCL_CONFIG_UNDEF_INT);

// The call with a configuration of either type.
template <typename Config>
using InitCall = NcclCode (*)(NcclCommHandle* comm, int size, NcclId id, int rank, Config* config);

void CompareCalls() {
  COMPARE_CALL(GetVersion);
  COMPARE_CALL(GetErrorString);
  COMPARE_CALL(GetLastError);
  COMPARE_CALL(GetUniqueId);
  static_assert(std::is_same_v<decltype(NcclTable::CommInitRankConfig), InitCall<NcclConfig>>);
  static_assert(SameCall<InitCall<ncclConfig_t>, decltype(&ncclCommInitRankConfig)>::value);
  ++compared;
  COMPARE_CALL(CommGetAsyncError);
  COMPARE_CALL(AllReduce);
  COMPARE_CALL(Broadcast);
  COMPARE_CALL(CommFinalize);
  COMPARE_CALL(CommDestroy);
  COMPARE_CALL(CommAbort);
}

}  // namespace
}  // namespace lmdbio::sync

int main() {
  using namespace lmdbio::sync;
  CompareCalls();
  int declared = 0;
  const NcclTable table;
  ForEachNcclFunction(table, [&](const char*, auto) { ++declared; });
  std::printf("compared %d of %d functions with NCCL %d\n", compared, declared, NCCL_VERSION_CODE);
  return compared == declared && sizeof(NcclTable) == sizeof(void*) * declared ? 0 : 1;
}

#endif
