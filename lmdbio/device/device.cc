#include "lmdbio/device/device.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/device/device_error.h"

namespace lmdbio::device {
namespace {

// Asks the driver about a device, and keeps the first failure.
class FactReader {
 public:
  FactReader(const DriverTable& driver, int ordinal) : driver_(driver), ordinal_(ordinal) {}

  Status Check(DriverCode code, const char* what) const {
    if (code == driver_code::kSuccess) return {};
    return Fail(DriverError(driver_, code, fmt::format("GPU {}: {}", ordinal_, what)));
  }

  Result<DeviceNumber> Find() const {
    int count = 0;
    LMDBIO_TRY_VOID(Check(driver_.DeviceGetCount(&count), "cuDeviceGetCount"));
    if (ordinal_ < 0 || ordinal_ >= count) {
      return Fail(
          ErrorCode::kNotFound,
          fmt::format("GPU {}: this process sees {} GPUs, numbered from 0", ordinal_, count));
    }
    DeviceNumber device = 0;
    LMDBIO_TRY_VOID(Check(driver_.DeviceGet(&device, ordinal_), "cuDeviceGet"));
    return device;
  }

  Result<int> Attribute(DeviceNumber device, DeviceAttribute attribute) const {
    int value = 0;
    LMDBIO_TRY_VOID(
        Check(driver_.DeviceGetAttribute(&value, attribute, device), "cuDeviceGetAttribute"));
    return value;
  }

  // For attributes that a driver may not know yet: then the device has none of it.
  Result<bool> Can(DeviceNumber device, DeviceAttribute attribute) const {
    int value = 0;
    const DriverCode code = driver_.DeviceGetAttribute(&value, attribute, device);
    if (code == driver_code::kInvalidValue) return false;
    LMDBIO_TRY_VOID(Check(code, "cuDeviceGetAttribute"));
    return value != 0;
  }

  Status ReadNames(DeviceNumber device, DeviceFacts& facts) const {
    std::array<char, 256> name = {};
    LMDBIO_TRY_VOID(
        Check(driver_.DeviceGetName(name.data(), name.size() - 1, device), "cuDeviceGetName"));
    facts.name = name.data();
    DriverUuid uuid = {};
    LMDBIO_TRY_VOID(Check(driver_.DeviceGetUuid(&uuid, device), "cuDeviceGetUuid"));
    facts.uuid = "GPU";
    for (int i = 0; i < 16; ++i) {
      const bool begins_group = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
      facts.uuid += fmt::format("{}{:02x}", begins_group ? "-" : "",
                                static_cast<unsigned char>(uuid.bytes[i]));
    }
    LMDBIO_TRY_VOID(Check(driver_.DriverGetVersion(&facts.driver_version), "cuDriverGetVersion"));
    size_t memory_bytes = 0;
    LMDBIO_TRY_VOID(Check(driver_.DeviceTotalMem(&memory_bytes, device), "cuDeviceTotalMem"));
    facts.memory_bytes = memory_bytes;
    return {};
  }

  Status ReadAbilities(DeviceNumber device, DeviceFacts& facts) const {
    const bool has_shared_memory =
        driver_.IpcGetMemHandle && driver_.IpcOpenMemHandle && driver_.IpcCloseMemHandle;
    const bool has_shared_events = driver_.IpcGetEventHandle && driver_.IpcOpenEventHandle;
    const bool has_marks = driver_.StreamWriteValue64 && driver_.StreamBatchMemOp;
    LMDBIO_TRY(facts.can_pin, Can(device, DeviceAttribute::kHostRegisterSupported));
    LMDBIO_TRY(facts.can_share_events, Can(device, DeviceAttribute::kSharedEventsSupported));
    LMDBIO_TRY(facts.can_await_marks, Can(device, DeviceAttribute::kStreamMemoryOperations64));
    facts.can_share_memory = has_shared_memory;
    facts.can_share_events = facts.can_share_events && has_shared_events;
    facts.can_await_marks = facts.can_await_marks && has_marks;
    return {};
  }

  Result<DeviceFacts> Read(DeviceNumber device) const {
    DeviceFacts facts;
    facts.ordinal = ordinal_;
    LMDBIO_TRY_VOID(ReadNames(device, facts));
    LMDBIO_TRY(facts.compute_major, Attribute(device, DeviceAttribute::kComputeCapabilityMajor));
    LMDBIO_TRY(facts.compute_minor, Attribute(device, DeviceAttribute::kComputeCapabilityMinor));
    LMDBIO_TRY(facts.multiprocessors, Attribute(device, DeviceAttribute::kMultiprocessorCount));
    LMDBIO_TRY_VOID(ReadAbilities(device, facts));
    LMDBIO_TRY(const bool is_unified, Can(device, DeviceAttribute::kUnifiedAddressing));
    if (is_unified) return facts;
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("GPU {} ({}) has no addresses in common with the host", ordinal_, facts.name));
  }

 private:
  const DriverTable& driver_;
  const int ordinal_;
};

}  // namespace

Result<std::shared_ptr<Device>> Device::Open(int ordinal, const DriverTable& driver,
                                             CacheCheck check) {
  const FactReader reader(driver, ordinal);
  LMDBIO_TRY(const DeviceNumber number, reader.Find());
  LMDBIO_TRY(DeviceFacts facts, reader.Read(number));
  LMDBIO_TRY(auto context, PrimaryContext::Retain(driver, ordinal, number));
  LMDBIO_TRY(DeviceStream fill, DeviceStream::Make(context));
  return std::shared_ptr<Device>(
      new Device(std::move(facts), std::move(context), check, std::move(fill)));
}

Result<DeviceMemory> Device::Allocate(uint64_t size_bytes) {
  return DeviceMemory::Allocate(context_, cache_, fill_, size_bytes);
}

Result<DeviceMemory> Device::Import(const MemoryTicket& ticket) {
  return DeviceMemory::Open(context_, cache_, ticket);
}

Result<PinnedBytes> Device::Pin(MutableBytes host) {
  return PinnedBytes::Register(context_, cache_, host);
}

Result<DeviceStream> Device::MakeStream() { return DeviceStream::Make(context_); }

Result<DeviceEvent> Device::MakeEvent(DeviceEventKind kind) {
  if (kind == DeviceEventKind::kShared && !facts_.can_share_events) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("GPU {} ({}) or its driver has no events between processes",
                            facts_.ordinal, facts_.name));
  }
  return DeviceEvent::Make(context_, kind);
}

Result<DeviceEvent> Device::Import(const EventTicket& ticket) {
  return DeviceEvent::Open(context_, ticket);
}

}  // namespace lmdbio::device
