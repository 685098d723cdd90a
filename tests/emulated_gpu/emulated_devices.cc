// The functions about the driver, its devices and their contexts.

#include <cstdio>

#include "lmdbio/device/driver_table.h"
#include "tests/emulated_gpu/emulated_calls.h"
#include "tests/emulated_gpu/emulated_gpu.h"

namespace lmdbio::test {
namespace {

using namespace device;  // the declarations of the driver

DriverCode Init(unsigned) {
  return Serve("cuInit", [](EmulatedMachine& machine) -> DriverCode {
    if (machine.device_count == 0) return code::kNoDevice;
    machine.is_initialized = true;
    return code::kSuccess;
  });
}

DriverCode DriverGetVersion(int* version) {
  return Serve("cuDriverGetVersion", [&](EmulatedMachine& machine) {
    *version = machine.version;
    return code::kSuccess;
  });
}

struct KnownCode {
  DriverCode code;
  const char* name;
  const char* text;
};
constexpr KnownCode kKnownCodes[] = {
    {code::kSuccess, "CUDA_SUCCESS", "no error"},
    {code::kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {code::kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {code::kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {code::kNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {code::kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {code::kInvalidImage, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {code::kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {code::kNoBinaryForGpu, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image for this device"},
    {code::kPeerAccessUnsupported, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
     "peer access is not supported between these two devices"},
    {code::kUnsupportedPtxVersion, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "PTX of a newer version"},
    {code::kNoSuchName, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {code::kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {code::kNotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {code::kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access"},
    {code::kPeerAccessAlreadyEnabled, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
     "peer access is already enabled"},
    {code::kTooManyPeers, "CUDA_ERROR_TOO_MANY_PEERS", "peer mapping resources exhausted"},
    {code::kAlreadyPinned, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "registered already"},
    {code::kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {code::kNotPermitted, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {code::kNotSupported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {kTimedOut, "CUDA_ERROR_TIMEOUT", "wait operation timed out"},
};

template <typename Member>
DriverCode TextOf(const char* name, DriverCode of, const char** text, Member member) {
  return Serve(name, [&](EmulatedMachine&) -> DriverCode {
    *text = nullptr;
    for (const KnownCode& known : kKnownCodes) {
      if (known.code == of) *text = known.*member;
    }
    return *text != nullptr ? code::kSuccess : code::kInvalidValue;
  });
}

DriverCode GetErrorName(DriverCode of, const char** name) {
  return TextOf("cuGetErrorName", of, name, &KnownCode::name);
}

DriverCode GetErrorString(DriverCode of, const char** text) {
  return TextOf("cuGetErrorString", of, text, &KnownCode::text);
}

DriverCode DeviceGetCount(int* count) {
  return ServeDevice("cuDeviceGetCount", 0, [&](EmulatedMachine& machine) {
    *count = machine.device_count;
    return code::kSuccess;
  });
}

DriverCode DeviceGet(DeviceNumber* device, int ordinal) {
  return ServeDevice("cuDeviceGet", ordinal, [&](EmulatedMachine&) {
    *device = ordinal;
    return code::kSuccess;
  });
}

DriverCode DeviceGetName(char* name, int size, DeviceNumber device) {
  return ServeDevice("cuDeviceGetName", device, [&](EmulatedMachine&) {
    std::snprintf(name, static_cast<size_t>(size), "Emulated GPU %d", device);
    return code::kSuccess;
  });
}

DriverCode DeviceGetUuid(DriverUuid* uuid, DeviceNumber device) {
  return ServeDevice("cuDeviceGetUuid", device, [&](EmulatedMachine&) {
    for (int i = 0; i < 16; ++i) uuid->bytes[i] = static_cast<char>(16 * i + device);
    return code::kSuccess;
  });
}

DriverCode DeviceTotalMem(size_t* size, DeviceNumber device) {
  return ServeDevice("cuDeviceTotalMem", device, [&](EmulatedMachine&) {
    *size = kEmulatedMemoryBytes;
    return code::kSuccess;
  });
}

int DefaultOf(DeviceAttribute attribute) {
  switch (attribute) {
    case DeviceAttribute::kMultiprocessorCount:
      return 4;
    case DeviceAttribute::kComputeCapabilityMajor:
      return 9;
    case DeviceAttribute::kComputeCapabilityMinor:
      return 0;
    default:
      return 1;
  }
}

DriverCode DeviceGetAttribute(int* value, DeviceAttribute attribute, DeviceNumber device) {
  return ServeDevice("cuDeviceGetAttribute", device, [&](EmulatedMachine& machine) {
    const auto set = machine.attributes.find(attribute);
    *value = set != machine.attributes.end() ? set->second : DefaultOf(attribute);
    return code::kSuccess;
  });
}

DriverCode DevicePrimaryCtxRetain(ContextHandle* context, DeviceNumber device) {
  return ServeDevice("cuDevicePrimaryCtxRetain", device, [&](EmulatedMachine& machine) {
    machine.Retain(device);
    *context = reinterpret_cast<ContextHandle>(&machine.contexts[static_cast<size_t>(device)]);
    return code::kSuccess;
  });
}

DriverCode DevicePrimaryCtxRelease(DeviceNumber device) {
  return ServeDevice("cuDevicePrimaryCtxRelease", device, [&](EmulatedMachine& machine) {
    return machine.Release(device) ? code::kSuccess : code::kInvalidContext;
  });
}

DriverCode CtxGetCurrent(ContextHandle* context) {
  return Serve("cuCtxGetCurrent", [&](EmulatedMachine&) {
    *context = reinterpret_cast<ContextHandle>(current_context);
    return code::kSuccess;
  });
}

DriverCode CtxSetCurrent(ContextHandle context) {
  return Serve("cuCtxSetCurrent", [&](EmulatedMachine&) -> DriverCode {
    auto* const given = reinterpret_cast<EmulatedContext*>(context);
    if (given != nullptr && given->retained == 0) return code::kInvalidContext;
    current_context = given;
    return code::kSuccess;
  });
}

DriverCode CtxGetStreamPriorityRange(int* least, int* greatest) {
  return ServeContext("cuCtxGetStreamPriorityRange", [&](EmulatedMachine&, int) {
    *least = 0;
    *greatest = -5;
    return code::kSuccess;
  });
}

}  // namespace

void AddDeviceFunctions(device::DriverTable& table) {
  table.Init = Init;
  table.DriverGetVersion = DriverGetVersion;
  table.GetErrorName = GetErrorName;
  table.GetErrorString = GetErrorString;
  table.DeviceGetCount = DeviceGetCount;
  table.DeviceGet = DeviceGet;
  table.DeviceGetName = DeviceGetName;
  table.DeviceGetUuid = DeviceGetUuid;
  table.DeviceTotalMem = DeviceTotalMem;
  table.DeviceGetAttribute = DeviceGetAttribute;
  table.DevicePrimaryCtxRetain = DevicePrimaryCtxRetain;
  table.DevicePrimaryCtxRelease = DevicePrimaryCtxRelease;
  table.CtxGetCurrent = CtxGetCurrent;
  table.CtxSetCurrent = CtxSetCurrent;
  table.CtxGetStreamPriorityRange = CtxGetStreamPriorityRange;
}

}  // namespace lmdbio::test
