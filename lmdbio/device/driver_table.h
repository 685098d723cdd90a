// lmdbio/device/driver_table.h - the functions of a GPU's driver that this library calls.
//
// The driver is the shared library libcuda.so.1. Its C interface is stable, so this header declares
// the part of it that lmdbio needs, and no file includes the vendor's header. The names are those
// of the driver without "cu". A test compares each declaration with the vendor's header
// (tests/device/cuda_header_test.cc).
#ifndef LMDBIO_DEVICE_DRIVER_TABLE_H_
#define LMDBIO_DEVICE_DRIVER_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "lmdbio/base/status.h"

namespace lmdbio::device {

// The result of each call of the driver; 0 is success. device_error.h makes an Error of it.
using DriverCode = int;

// The codes that this library tells apart. Any other code is reported by its name.
namespace driver_code {
inline constexpr DriverCode kSuccess = 0;
inline constexpr DriverCode kInvalidValue = 1;
inline constexpr DriverCode kOutOfMemory = 2;
inline constexpr DriverCode kNotInitialized = 3;
inline constexpr DriverCode kDeinitialized = 4;
inline constexpr DriverCode kNoDevice = 100;
inline constexpr DriverCode kInvalidDevice = 101;
inline constexpr DriverCode kInvalidImage = 200;
inline constexpr DriverCode kInvalidContext = 201;
inline constexpr DriverCode kMapFailed = 205;
inline constexpr DriverCode kNoBinaryForGpu = 209;
inline constexpr DriverCode kUncorrectableMemory = 214;
inline constexpr DriverCode kPeerAccessUnsupported = 217;
inline constexpr DriverCode kInvalidPtx = 218;
inline constexpr DriverCode kUncorrectableLink = 220;
inline constexpr DriverCode kNoPtxCompiler = 221;
inline constexpr DriverCode kUnsupportedPtxVersion = 222;
inline constexpr DriverCode kInvalidHandle = 400;
inline constexpr DriverCode kNoSuchName = 500;
inline constexpr DriverCode kNotReady = 600;
inline constexpr DriverCode kIllegalAddress = 700;
inline constexpr DriverCode kPeerAccessAlreadyEnabled = 704;
inline constexpr DriverCode kContextIsDestroyed = 709;
inline constexpr DriverCode kAssert = 710;
inline constexpr DriverCode kTooManyPeers = 711;
inline constexpr DriverCode kAlreadyPinned = 712;
inline constexpr DriverCode kHardwareStack = 714;
inline constexpr DriverCode kIllegalInstruction = 715;
inline constexpr DriverCode kMisalignedAddress = 716;
inline constexpr DriverCode kInvalidAddressSpace = 717;
inline constexpr DriverCode kInvalidProgramCounter = 718;
inline constexpr DriverCode kLaunchFailed = 719;
inline constexpr DriverCode kNotPermitted = 800;
inline constexpr DriverCode kNotSupported = 801;
inline constexpr DriverCode kCapturesImplicitly = 906;
}  // namespace driver_code

// Objects of the driver. A program that uses the CUDA runtime has the same handles: a cudaStream_t
// is a StreamHandle.
using DeviceNumber = int;
using ContextHandle = struct DriverContext*;
using StreamHandle = struct DriverStream*;
using EventHandle = struct DriverEvent*;
using ModuleHandle = struct DriverModule*;
using FunctionHandle = struct DriverFunction*;

enum class DeviceAttribute : int {
  kMultiprocessorCount = 16,
  kUnifiedAddressing = 41,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kHostRegisterSupported = 99,
  kStreamMemoryOperations64 = 122,
  kSharedEventsSupported = 125,
};

enum class PointerAttribute : int {
  kMemoryType = 2,       // unsigned, a DriverMemoryType; 0: memory that the driver does not know
  kBufferId = 7,         // unsigned long long; unique for each allocation of a process
  kIsManaged = 8,        // unsigned
  kDeviceOrdinal = 9,    // int
  kCanBeShared = 10,     // bool: cuIpcGetMemHandle takes it
  kRangeBegin = 11,      // void*
  kRangeSizeBytes = 12,  // size_t
};

// Whether work that is enqueued on a stream goes into a graph.
enum class CaptureStatus : int { kNone = 0, kActive = 1, kInvalidated = 2 };

enum class DriverMemoryType : unsigned { kUnknown = 0, kHost = 1, kDevice = 2 };

inline constexpr unsigned kStreamNonBlocking = 1;      // not ordered with the default stream
inline constexpr unsigned kEventDisableTiming = 2;     // cheaper, and needed for kEventInterprocess
inline constexpr unsigned kEventInterprocess = 4;      // can be opened by another process
inline constexpr unsigned kHostRegisterPortable = 1;   // pinned for every device
inline constexpr unsigned kHostRegisterDeviceMap = 2;  // the device has an address for it
inline constexpr unsigned kIpcLazyPeerAccess = 1;      // the only flag that IpcOpenMemHandle takes
inline constexpr unsigned kWaitUntilAtLeast = 0;       // (int64_t)(word - value) >= 0

struct DriverUuid {
  char bytes[16];
};
struct IpcMemoryHandle {
  char reserved[64];
};
struct IpcEventHandle {
  char reserved[64];
};

enum class MemoryOperationType : int { kWait64 = 4, kWrite64 = 5 };

// One of the operations of StreamBatchMemOp. The driver's type is a union of this size.
struct MemoryOperation {
  MemoryOperationType type = MemoryOperationType::kWait64;
  uint64_t address = 0;  // of 8 bytes, aligned, as the device sees them
  uint64_t value = 0;
  unsigned flags = 0;
  uint64_t alias = 0;  // used by the driver
  uint64_t padding = 0;
};
static_assert(sizeof(MemoryOperation) == 48);

// How MemcpyBatchAsync may read its sources. The driver's type has this size.
struct MemcpyAttributes {
  unsigned source_order = 1;  // in the order of the stream
  unsigned hints[4] = {};     // of places, for memory that the driver did not allocate: none
  unsigned flags = 0;
};
static_assert(sizeof(MemcpyAttributes) == 24);

// StreamBatchMemOp refuses more.
inline constexpr size_t kMemoryOperationsMax = 255;

// The driver's functions. Sizes are in bytes. Functions that begin with Ipc, FuncLoad,
// DeviceCanAccessPeer, CtxEnablePeerAccess, StreamBatchMemOp, StreamWriteValue64 and
// MemcpyBatchAsync are null if this driver lacks them; the others are there.
struct DriverTable {
  DriverCode (*Init)(unsigned flags) = nullptr;
  DriverCode (*DriverGetVersion)(int* version) = nullptr;
  DriverCode (*GetErrorName)(DriverCode code, const char** name) = nullptr;
  DriverCode (*GetErrorString)(DriverCode code, const char** text) = nullptr;

  DriverCode (*DeviceGetCount)(int* count) = nullptr;
  DriverCode (*DeviceGet)(DeviceNumber* device, int ordinal) = nullptr;
  DriverCode (*DeviceGetName)(char* name, int size, DeviceNumber device) = nullptr;
  DriverCode (*DeviceGetUuid)(DriverUuid* uuid, DeviceNumber device) = nullptr;
  DriverCode (*DeviceTotalMem)(size_t* size, DeviceNumber device) = nullptr;
  DriverCode (*DeviceGetAttribute)(int* value, DeviceAttribute attribute,
                                   DeviceNumber device) = nullptr;
  DriverCode (*DevicePrimaryCtxRetain)(ContextHandle* context, DeviceNumber device) = nullptr;
  DriverCode (*DevicePrimaryCtxRelease)(DeviceNumber device) = nullptr;
  DriverCode (*CtxGetCurrent)(ContextHandle* context) = nullptr;
  DriverCode (*CtxSetCurrent)(ContextHandle context) = nullptr;
  DriverCode (*CtxGetStreamPriorityRange)(int* least, int* greatest) = nullptr;

  DriverCode (*MemAlloc)(uint64_t* address, size_t size) = nullptr;
  DriverCode (*MemFree)(uint64_t address) = nullptr;
  DriverCode (*MemGetInfo)(size_t* free, size_t* total) = nullptr;
  DriverCode (*MemHostRegister)(void* memory, size_t size, unsigned flags) = nullptr;
  DriverCode (*MemHostUnregister)(void* memory) = nullptr;
  DriverCode (*MemHostGetDevicePointer)(uint64_t* address, void* memory, unsigned flags) = nullptr;
  DriverCode (*PointerGetAttributes)(unsigned count, PointerAttribute* attributes, void** values,
                                     uint64_t address) = nullptr;

  DriverCode (*StreamCreateWithPriority)(StreamHandle* stream, unsigned flags,
                                         int priority) = nullptr;
  DriverCode (*StreamDestroy)(StreamHandle stream) = nullptr;
  DriverCode (*StreamQuery)(StreamHandle stream) = nullptr;
  DriverCode (*StreamSynchronize)(StreamHandle stream) = nullptr;
  DriverCode (*StreamIsCapturing)(StreamHandle stream, CaptureStatus* status) = nullptr;
  DriverCode (*StreamWaitEvent)(StreamHandle stream, EventHandle event, unsigned flags) = nullptr;
  DriverCode (*MemsetD8Async)(uint64_t address, unsigned char value, size_t size,
                              StreamHandle stream) = nullptr;
  DriverCode (*MemcpyDtoDAsync)(uint64_t to, uint64_t from, size_t size,
                                StreamHandle stream) = nullptr;
  DriverCode (*MemcpyHtoDAsync)(uint64_t to, const void* from, size_t size,
                                StreamHandle stream) = nullptr;
  DriverCode (*MemcpyDtoHAsync)(void* to, uint64_t from, size_t size,
                                StreamHandle stream) = nullptr;

  DriverCode (*EventCreate)(EventHandle* event, unsigned flags) = nullptr;
  DriverCode (*EventDestroy)(EventHandle event) = nullptr;
  DriverCode (*EventRecord)(EventHandle event, StreamHandle stream) = nullptr;
  DriverCode (*EventQuery)(EventHandle event) = nullptr;
  DriverCode (*EventElapsedTime)(float* milliseconds, EventHandle begin, EventHandle end) = nullptr;

  DriverCode (*ModuleLoadData)(ModuleHandle* module, const void* image) = nullptr;
  DriverCode (*ModuleUnload)(ModuleHandle module) = nullptr;
  DriverCode (*ModuleGetFunction)(FunctionHandle* function, ModuleHandle module,
                                  const char* name) = nullptr;
  // parameters  one pointer for each parameter of the kernel, whose value the driver copies
  DriverCode (*LaunchKernel)(FunctionHandle function, unsigned blocks_x, unsigned blocks_y,
                             unsigned blocks_z, unsigned threads_x, unsigned threads_y,
                             unsigned threads_z, unsigned shared_bytes, StreamHandle stream,
                             void** parameters, void** extra) = nullptr;
  DriverCode (*FuncLoad)(FunctionHandle function) = nullptr;  // since CUDA 12.4

  DriverCode (*DeviceCanAccessPeer)(int* can, DeviceNumber device, DeviceNumber peer) = nullptr;
  // Lets work of the current context use all memory of `peer`; not the other way round.
  DriverCode (*CtxEnablePeerAccess)(ContextHandle peer, unsigned flags) = nullptr;
  DriverCode (*IpcGetMemHandle)(IpcMemoryHandle* handle, uint64_t address) = nullptr;
  DriverCode (*IpcOpenMemHandle)(uint64_t* address, IpcMemoryHandle handle,
                                 unsigned flags) = nullptr;
  DriverCode (*IpcCloseMemHandle)(uint64_t address) = nullptr;
  DriverCode (*IpcGetEventHandle)(IpcEventHandle* handle, EventHandle event) = nullptr;
  DriverCode (*IpcOpenEventHandle)(EventHandle* event, IpcEventHandle handle) = nullptr;
  DriverCode (*StreamWriteValue64)(StreamHandle stream, uint64_t address, uint64_t value,
                                   unsigned flags) = nullptr;
  DriverCode (*StreamBatchMemOp)(StreamHandle stream, unsigned count, MemoryOperation* operations,
                                 unsigned flags) = nullptr;
  // Since CUDA 12.8. Copies without an order among them. attributes [attributes_count] hold from
  // the copies of `first_copies` on; failed gets the number of a copy that is refused.
  DriverCode (*MemcpyBatchAsync)(uint64_t* to, uint64_t* from, size_t* sizes, size_t count,
                                 MemcpyAttributes* attributes, size_t* first_copies,
                                 size_t attributes_count, size_t* failed,
                                 StreamHandle stream) = nullptr;
};

enum class FunctionNeed { kRequired, kOptional };

// Calls `visit("cuInit", FunctionNeed::kRequired, table.Init)` and so on for each function.
// Table  DriverTable, or const DriverTable
template <typename Table, typename Visit>
void ForEachFunction(Table& table, Visit&& visit) {
  constexpr auto kRequired = FunctionNeed::kRequired;
  constexpr auto kOptional = FunctionNeed::kOptional;
  visit("cuInit", kRequired, table.Init);
  visit("cuDriverGetVersion", kRequired, table.DriverGetVersion);
  visit("cuGetErrorName", kRequired, table.GetErrorName);
  visit("cuGetErrorString", kRequired, table.GetErrorString);
  visit("cuDeviceGetCount", kRequired, table.DeviceGetCount);
  visit("cuDeviceGet", kRequired, table.DeviceGet);
  visit("cuDeviceGetName", kRequired, table.DeviceGetName);
  visit("cuDeviceGetUuid", kRequired, table.DeviceGetUuid);
  visit("cuDeviceTotalMem", kRequired, table.DeviceTotalMem);
  visit("cuDeviceGetAttribute", kRequired, table.DeviceGetAttribute);
  visit("cuDevicePrimaryCtxRetain", kRequired, table.DevicePrimaryCtxRetain);
  visit("cuDevicePrimaryCtxRelease", kRequired, table.DevicePrimaryCtxRelease);
  visit("cuCtxGetCurrent", kRequired, table.CtxGetCurrent);
  visit("cuCtxSetCurrent", kRequired, table.CtxSetCurrent);
  visit("cuCtxGetStreamPriorityRange", kRequired, table.CtxGetStreamPriorityRange);
  visit("cuMemAlloc", kRequired, table.MemAlloc);
  visit("cuMemFree", kRequired, table.MemFree);
  visit("cuMemGetInfo", kRequired, table.MemGetInfo);
  visit("cuMemHostRegister", kRequired, table.MemHostRegister);
  visit("cuMemHostUnregister", kRequired, table.MemHostUnregister);
  visit("cuMemHostGetDevicePointer", kRequired, table.MemHostGetDevicePointer);
  visit("cuPointerGetAttributes", kRequired, table.PointerGetAttributes);
  visit("cuStreamCreateWithPriority", kRequired, table.StreamCreateWithPriority);
  visit("cuStreamDestroy", kRequired, table.StreamDestroy);
  visit("cuStreamQuery", kRequired, table.StreamQuery);
  visit("cuStreamSynchronize", kRequired, table.StreamSynchronize);
  visit("cuStreamIsCapturing", kRequired, table.StreamIsCapturing);
  visit("cuStreamWaitEvent", kRequired, table.StreamWaitEvent);
  visit("cuMemsetD8Async", kRequired, table.MemsetD8Async);
  visit("cuMemcpyDtoDAsync", kRequired, table.MemcpyDtoDAsync);
  visit("cuMemcpyHtoDAsync", kRequired, table.MemcpyHtoDAsync);
  visit("cuMemcpyDtoHAsync", kRequired, table.MemcpyDtoHAsync);
  visit("cuEventCreate", kRequired, table.EventCreate);
  visit("cuEventDestroy", kRequired, table.EventDestroy);
  visit("cuEventRecord", kRequired, table.EventRecord);
  visit("cuEventQuery", kRequired, table.EventQuery);
  visit("cuEventElapsedTime", kRequired, table.EventElapsedTime);
  visit("cuModuleLoadData", kRequired, table.ModuleLoadData);
  visit("cuModuleUnload", kRequired, table.ModuleUnload);
  visit("cuModuleGetFunction", kRequired, table.ModuleGetFunction);
  visit("cuLaunchKernel", kRequired, table.LaunchKernel);
  visit("cuFuncLoad", kOptional, table.FuncLoad);
  visit("cuDeviceCanAccessPeer", kOptional, table.DeviceCanAccessPeer);
  visit("cuCtxEnablePeerAccess", kOptional, table.CtxEnablePeerAccess);
  visit("cuIpcGetMemHandle", kOptional, table.IpcGetMemHandle);
  visit("cuIpcOpenMemHandle", kOptional, table.IpcOpenMemHandle);
  visit("cuIpcCloseMemHandle", kOptional, table.IpcCloseMemHandle);
  visit("cuIpcGetEventHandle", kOptional, table.IpcGetEventHandle);
  visit("cuIpcOpenEventHandle", kOptional, table.IpcOpenEventHandle);
  visit("cuStreamWriteValue64", kOptional, table.StreamWriteValue64);
  visit("cuStreamBatchMemOp", kOptional, table.StreamBatchMemOp);
  visit("cuMemcpyBatchAsync", kOptional, table.MemcpyBatchAsync);
}

// The interface of the driver that this table declares: that of CUDA 12.0, which driver 525 has and
// each later one keeps. MemcpyBatchAsync is that of CUDA 12.8.
inline constexpr int kDriverInterface = 12000;
inline constexpr int kBatchCopyInterface = 12080;

// A version of CUDA, as the driver tells it: "12.8" for 12080.
std::string VersionText(int version);

// Opens a driver, looks up its functions, and initialises it. The library stays open until the
// process ends.
// library  a name for dlopen
// Errors: kNotFound     there is no such library, or it has no GPU
//         kUnsupported  it is older than 525, or lacks a required function; names it
//         kInternal     the driver fails, with its own name of the reason
// Threads: any
Result<DriverTable> LoadDriver(const char* library);

// The driver of this system, libcuda.so.1. It is opened by the first call, so a program that uses
// no GPU pays nothing. After a failure the next call tries again.
// Returns: a table that lives until the process ends
// Errors: as LoadDriver; kUnsupported, too, in a child of fork() whose parent has opened the
//         driver, because a driver does not survive fork()
// Threads: any
Result<const DriverTable*> SystemDriver();

}  // namespace lmdbio::device
#endif  // LMDBIO_DEVICE_DRIVER_TABLE_H_
