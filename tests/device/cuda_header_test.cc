// Compares the declarations of driver_table.h with the vendor's cuda.h. The oracle is the compiler:
// each comparison is a static_assert. Without cuda.h this is a skip.

#include <cstdio>

#ifndef LMDBIO_TEST_CUDA_HEADER

int main() {
  std::puts("skipped: no cuda.h was found");
  return 77;
}

#else

#include <cuda.h>
#include <cudaTypedefs.h>

#include <cstddef>

#include "lmdbio/device/driver_table.h"
#include "tests/device/same_abi.h"

namespace lmdbio::device {
namespace {

using test::SameCall;

int compared = 0;

#define COMPARE_CALL(name)                                                                 \
  static_assert(SameCall<decltype(DriverTable::name), decltype(&cu##name)>::value, #name); \
  ++compared

// The comparison itself can tell types of the driver apart.
static_assert(!SameCall<int (*)(DriverUuid), int (*)(IpcMemoryHandle)>::value);
static_assert(!SameCall<int (*)(EventHandle*), int (*)(int*)>::value);

#define COMPARE_NUMBER(ours, theirs) \
  static_assert(static_cast<int>(ours) == static_cast<int>(theirs))

COMPARE_NUMBER(driver_code::kSuccess, CUDA_SUCCESS);
COMPARE_NUMBER(driver_code::kInvalidValue, CUDA_ERROR_INVALID_VALUE);
COMPARE_NUMBER(driver_code::kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
COMPARE_NUMBER(driver_code::kNotInitialized, CUDA_ERROR_NOT_INITIALIZED);
COMPARE_NUMBER(driver_code::kDeinitialized, CUDA_ERROR_DEINITIALIZED);
COMPARE_NUMBER(driver_code::kNoDevice, CUDA_ERROR_NO_DEVICE);
COMPARE_NUMBER(driver_code::kInvalidDevice, CUDA_ERROR_INVALID_DEVICE);
COMPARE_NUMBER(driver_code::kInvalidContext, CUDA_ERROR_INVALID_CONTEXT);
COMPARE_NUMBER(driver_code::kUncorrectableMemory, CUDA_ERROR_ECC_UNCORRECTABLE);
COMPARE_NUMBER(driver_code::kPeerAccessUnsupported, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
COMPARE_NUMBER(driver_code::kUncorrectableLink, CUDA_ERROR_NVLINK_UNCORRECTABLE);
COMPARE_NUMBER(driver_code::kInvalidImage, CUDA_ERROR_INVALID_IMAGE);
COMPARE_NUMBER(driver_code::kNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU);
COMPARE_NUMBER(driver_code::kInvalidPtx, CUDA_ERROR_INVALID_PTX);
COMPARE_NUMBER(driver_code::kNoPtxCompiler, CUDA_ERROR_JIT_COMPILER_NOT_FOUND);
COMPARE_NUMBER(driver_code::kUnsupportedPtxVersion, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
COMPARE_NUMBER(driver_code::kNoSuchName, CUDA_ERROR_NOT_FOUND);
COMPARE_NUMBER(driver_code::kInvalidHandle, CUDA_ERROR_INVALID_HANDLE);
COMPARE_NUMBER(driver_code::kNotReady, CUDA_ERROR_NOT_READY);
COMPARE_NUMBER(driver_code::kIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
COMPARE_NUMBER(driver_code::kPeerAccessAlreadyEnabled, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
COMPARE_NUMBER(driver_code::kContextIsDestroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED);
COMPARE_NUMBER(driver_code::kAssert, CUDA_ERROR_ASSERT);
COMPARE_NUMBER(driver_code::kTooManyPeers, CUDA_ERROR_TOO_MANY_PEERS);
COMPARE_NUMBER(driver_code::kAlreadyPinned, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
COMPARE_NUMBER(driver_code::kHardwareStack, CUDA_ERROR_HARDWARE_STACK_ERROR);
COMPARE_NUMBER(driver_code::kIllegalInstruction, CUDA_ERROR_ILLEGAL_INSTRUCTION);
COMPARE_NUMBER(driver_code::kMisalignedAddress, CUDA_ERROR_MISALIGNED_ADDRESS);
COMPARE_NUMBER(driver_code::kInvalidAddressSpace, CUDA_ERROR_INVALID_ADDRESS_SPACE);
COMPARE_NUMBER(driver_code::kInvalidProgramCounter, CUDA_ERROR_INVALID_PC);
COMPARE_NUMBER(driver_code::kLaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
COMPARE_NUMBER(driver_code::kNotPermitted, CUDA_ERROR_NOT_PERMITTED);
COMPARE_NUMBER(driver_code::kNotSupported, CUDA_ERROR_NOT_SUPPORTED);
COMPARE_NUMBER(driver_code::kCapturesImplicitly, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);

COMPARE_NUMBER(DeviceAttribute::kMultiprocessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
COMPARE_NUMBER(DeviceAttribute::kUnifiedAddressing, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
COMPARE_NUMBER(DeviceAttribute::kComputeCapabilityMajor,
               CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
COMPARE_NUMBER(DeviceAttribute::kComputeCapabilityMinor,
               CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
COMPARE_NUMBER(DeviceAttribute::kHostRegisterSupported,
               CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED);
COMPARE_NUMBER(DeviceAttribute::kStreamMemoryOperations64,
               CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
#if CUDA_VERSION >= 12000
COMPARE_NUMBER(DeviceAttribute::kSharedEventsSupported, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED);
#endif

COMPARE_NUMBER(PointerAttribute::kMemoryType, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
COMPARE_NUMBER(PointerAttribute::kBufferId, CU_POINTER_ATTRIBUTE_BUFFER_ID);
COMPARE_NUMBER(PointerAttribute::kIsManaged, CU_POINTER_ATTRIBUTE_IS_MANAGED);
COMPARE_NUMBER(PointerAttribute::kDeviceOrdinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
COMPARE_NUMBER(PointerAttribute::kCanBeShared, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
COMPARE_NUMBER(PointerAttribute::kRangeBegin, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
COMPARE_NUMBER(PointerAttribute::kRangeSizeBytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
COMPARE_NUMBER(CaptureStatus::kNone, CU_STREAM_CAPTURE_STATUS_NONE);
COMPARE_NUMBER(CaptureStatus::kActive, CU_STREAM_CAPTURE_STATUS_ACTIVE);
COMPARE_NUMBER(CaptureStatus::kInvalidated, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
COMPARE_NUMBER(DriverMemoryType::kHost, CU_MEMORYTYPE_HOST);
COMPARE_NUMBER(DriverMemoryType::kDevice, CU_MEMORYTYPE_DEVICE);

COMPARE_NUMBER(kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
COMPARE_NUMBER(kEventDisableTiming, CU_EVENT_DISABLE_TIMING);
COMPARE_NUMBER(kEventInterprocess, CU_EVENT_INTERPROCESS);
COMPARE_NUMBER(kHostRegisterPortable, CU_MEMHOSTREGISTER_PORTABLE);
COMPARE_NUMBER(kHostRegisterDeviceMap, CU_MEMHOSTREGISTER_DEVICEMAP);
COMPARE_NUMBER(kIpcLazyPeerAccess, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
COMPARE_NUMBER(kWaitUntilAtLeast, CU_STREAM_WAIT_VALUE_GEQ);
COMPARE_NUMBER(MemoryOperationType::kWait64, CU_STREAM_MEM_OP_WAIT_VALUE_64);
COMPARE_NUMBER(MemoryOperationType::kWrite64, CU_STREAM_MEM_OP_WRITE_VALUE_64);

static_assert(sizeof(DriverUuid) == sizeof(CUuuid));
static_assert(sizeof(IpcMemoryHandle) == sizeof(CUipcMemHandle));
static_assert(sizeof(IpcEventHandle) == sizeof(CUipcEventHandle));
static_assert(sizeof(MemoryOperation) == sizeof(CUstreamBatchMemOpParams));

using Wait = decltype(CUstreamBatchMemOpParams::waitValue);
static_assert(offsetof(MemoryOperation, type) == offsetof(Wait, operation));
static_assert(offsetof(MemoryOperation, address) == offsetof(Wait, address));
static_assert(offsetof(MemoryOperation, value) == offsetof(Wait, value64));
static_assert(offsetof(MemoryOperation, flags) == offsetof(Wait, flags));
static_assert(offsetof(MemoryOperation, alias) == offsetof(Wait, alias));

#if CUDA_VERSION >= 12080
static_assert(sizeof(MemcpyAttributes) == sizeof(CUmemcpyAttributes));
static_assert(offsetof(MemcpyAttributes, hints) == offsetof(CUmemcpyAttributes, srcLocHint));
static_assert(offsetof(MemcpyAttributes, flags) == offsetof(CUmemcpyAttributes, flags));
COMPARE_NUMBER(MemcpyAttributes().source_order, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
#endif

void CompareCalls() {
  COMPARE_CALL(Init);
  COMPARE_CALL(DriverGetVersion);
  COMPARE_CALL(GetErrorName);
  COMPARE_CALL(GetErrorString);
  COMPARE_CALL(DeviceGetCount);
  COMPARE_CALL(DeviceGet);
  COMPARE_CALL(DeviceGetName);
  COMPARE_CALL(DeviceGetUuid);
  COMPARE_CALL(DeviceTotalMem);
  COMPARE_CALL(DeviceGetAttribute);
  COMPARE_CALL(DevicePrimaryCtxRetain);
  COMPARE_CALL(DevicePrimaryCtxRelease);
  COMPARE_CALL(CtxGetCurrent);
  COMPARE_CALL(CtxSetCurrent);
  COMPARE_CALL(CtxGetStreamPriorityRange);
  COMPARE_CALL(MemAlloc);
  COMPARE_CALL(MemFree);
  COMPARE_CALL(MemGetInfo);
  COMPARE_CALL(MemHostRegister);
  COMPARE_CALL(MemHostUnregister);
  COMPARE_CALL(MemHostGetDevicePointer);
  COMPARE_CALL(PointerGetAttributes);
  COMPARE_CALL(StreamCreateWithPriority);
  COMPARE_CALL(StreamDestroy);
  COMPARE_CALL(StreamQuery);
  COMPARE_CALL(StreamSynchronize);
  COMPARE_CALL(StreamIsCapturing);
  COMPARE_CALL(StreamWaitEvent);
  COMPARE_CALL(MemsetD8Async);
  COMPARE_CALL(MemcpyDtoDAsync);
  COMPARE_CALL(MemcpyHtoDAsync);
  COMPARE_CALL(MemcpyDtoHAsync);
  COMPARE_CALL(EventCreate);
  COMPARE_CALL(EventDestroy);
  COMPARE_CALL(EventRecord);
  COMPARE_CALL(EventQuery);
  COMPARE_CALL(EventElapsedTime);
  COMPARE_CALL(ModuleLoadData);
  COMPARE_CALL(ModuleUnload);
  COMPARE_CALL(ModuleGetFunction);
  COMPARE_CALL(LaunchKernel);
#if CUDA_VERSION >= 12040
  COMPARE_CALL(FuncLoad);
#else
  ++compared;
#endif
  COMPARE_CALL(DeviceCanAccessPeer);
  COMPARE_CALL(CtxEnablePeerAccess);
  COMPARE_CALL(IpcGetMemHandle);
  COMPARE_CALL(IpcOpenMemHandle);
  COMPARE_CALL(IpcCloseMemHandle);
  COMPARE_CALL(IpcGetEventHandle);
  COMPARE_CALL(IpcOpenEventHandle);
  COMPARE_CALL(StreamWriteValue64);
  COMPARE_CALL(StreamBatchMemOp);
  // Headers of CUDA 13 give this name to a later interface.
#if CUDA_VERSION >= 12080
  static_assert(SameCall<decltype(DriverTable::MemcpyBatchAsync),
                         decltype(PFN_cuMemcpyBatchAsync_v12080())>::value);
#endif
  ++compared;
}

}  // namespace
}  // namespace lmdbio::device

int main() {
  using namespace lmdbio::device;
  CompareCalls();
  int declared = 0;
  const DriverTable table;
  ForEachFunction(table, [&](const char*, FunctionNeed, auto) { ++declared; });
  std::printf("compared %d of %d functions with CUDA %d\n", compared, declared, CUDA_VERSION);
  return compared == declared && sizeof(DriverTable) == sizeof(void*) * declared ? 0 : 1;
}

#endif
