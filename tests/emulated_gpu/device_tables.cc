#include "tests/emulated_gpu/device_tables.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <iterator>

namespace lmdbio::test {
namespace {

// Signalling NaN as float, and large numbers as integers.
constexpr uint32_t kNewPattern = 0x7FA5A5A5;
constexpr uint32_t kFreedPattern = 0x7FB6B6B6;

uint64_t WholePages(uint64_t size_bytes) {
  return (size_bytes + DeviceFile::kPageBytes - 1) / DeviceFile::kPageBytes *
         DeviceFile::kPageBytes;
}

void FillWith(uint32_t pattern, std::byte* memory, uint64_t size_bytes) {
  for (uint64_t i = 0; i + sizeof(pattern) <= size_bytes; i += sizeof(pattern)) {
    std::memcpy(memory + i, &pattern, sizeof(pattern));
  }
}

// Whether the host has mapped all pages of the range.
bool IsMapped(const void* memory, size_t size_bytes) {
  const auto begin = reinterpret_cast<uint64_t>(memory) / DeviceFile::kPageBytes;
  const auto end = (reinterpret_cast<uint64_t>(memory) + size_bytes - 1) / DeviceFile::kPageBytes;
  std::vector<unsigned char> resident(end - begin + 1);
  return ::mincore(reinterpret_cast<void*>(begin * DeviceFile::kPageBytes),
                   resident.size() * DeviceFile::kPageBytes, resident.data()) == 0;
}

}  // namespace

DeviceTables::~DeviceTables() {
  for (int ordinal = 0; ordinal < kEmulatedDevicesMax; ++ordinal) DropAll(ordinal);
  for (const Hole& hole : holes_) file_.Discard(hole.offset, hole.mapped_bytes);
}

uint64_t DeviceTables::Allocate(int ordinal, size_t size_bytes, MemoryOrigin origin) {
  uint64_t& used_bytes = used_bytes_[static_cast<size_t>(ordinal)];
  if (size_bytes > kEmulatedMemoryBytes - used_bytes) return 0;
  const Hole hole = TakeHole(WholePages(size_bytes));
  file_.Map(hole.address, hole.offset, hole.mapped_bytes);
  FillWith(kNewPattern, file_.At(hole.offset), hole.mapped_bytes);
  used_bytes += size_bytes;
  Add({.origin = origin,
       .ordinal = ordinal,
       .begin = hole.address,
       .size_bytes = size_bytes,
       .mapped_bytes = hole.mapped_bytes,
       .offset = hole.offset});
  return hole.address;
}

bool DeviceTables::Free(uint64_t begin) {
  const auto found = live_.find(begin);
  if (found == live_.end() || (found->second.origin != MemoryOrigin::kAllocated &&
                               found->second.origin != MemoryOrigin::kManaged)) {
    return false;
  }
  Drop(found);
  return true;
}

uint64_t DeviceTables::Import(int ordinal, uint64_t offset, uint64_t size_bytes) {
  for (auto& [begin, memory] : live_) {
    if (memory.origin == MemoryOrigin::kImported && memory.ordinal == ordinal &&
        memory.offset == offset) {
      ++memory.opened;
      return begin;
    }
  }
  const uint64_t mapped_bytes = WholePages(size_bytes);
  const uint64_t address = file_.TakeAddresses(mapped_bytes);
  file_.Map(address, offset, mapped_bytes);
  Add({.origin = MemoryOrigin::kImported,
       .ordinal = ordinal,
       .begin = address,
       .size_bytes = size_bytes,
       .mapped_bytes = mapped_bytes,
       .offset = offset});
  return address;
}

bool DeviceTables::CloseImport(uint64_t begin) {
  const auto found = live_.find(begin);
  if (found == live_.end() || found->second.origin != MemoryOrigin::kImported) return false;
  if (--found->second.opened == 0) Drop(found);
  return true;
}

device::DriverCode DeviceTables::Pin(int ordinal, void* memory, size_t size_bytes) {
  const auto begin = reinterpret_cast<uint64_t>(memory);
  if (size_bytes == 0 || !IsMapped(memory, size_bytes)) return device::driver_code::kInvalidValue;
  for (const auto& [other, live] : live_) {
    if (other >= begin + size_bytes || begin >= other + live.size_bytes) continue;
    return live.origin == MemoryOrigin::kPinned ? device::driver_code::kAlreadyPinned
                                                : device::driver_code::kInvalidValue;
  }
  Add({.origin = MemoryOrigin::kPinned,
       .ordinal = ordinal,
       .begin = begin,
       .size_bytes = size_bytes});
  return device::driver_code::kSuccess;
}

bool DeviceTables::Unpin(void* memory) {
  const auto found = live_.find(reinterpret_cast<uint64_t>(memory));
  if (found == live_.end() || found->second.origin != MemoryOrigin::kPinned) return false;
  Drop(found);
  return true;
}

const LiveMemory* DeviceTables::Find(uint64_t address) const {
  const auto found = Holding(address);
  return found != live_.end() ? &found->second : nullptr;
}

std::byte* DeviceTables::Resolve(uint64_t address, size_t size_bytes) const {
  if (address >= kPinnedOffset) {
    return ResolveHost(reinterpret_cast<const void*>(address - kPinnedOffset), size_bytes);
  }
  const LiveMemory* const memory = Find(address);
  if (memory == nullptr || memory->origin == MemoryOrigin::kPinned) return nullptr;
  const uint64_t inside = address - memory->begin;
  return size_bytes <= memory->size_bytes - inside ? file_.At(memory->offset + inside) : nullptr;
}

// An import is mapped for the context that has opened it, and nothing is documented about others.
bool DeviceTables::MayUse(int ordinal, const LiveMemory& memory) const {
  switch (memory.origin) {
    case MemoryOrigin::kAllocated:
      return peers_.Allows(ordinal, memory.ordinal);
    case MemoryOrigin::kImported:
      return ordinal == memory.ordinal;
    default:
      return true;
  }
}

std::byte* DeviceTables::ResolveFor(int ordinal, uint64_t address, size_t size_bytes) const {
  const LiveMemory* const memory = Find(address);
  if (memory != nullptr && !MayUse(ordinal, *memory)) return nullptr;
  return Resolve(address, size_bytes);
}

std::byte* DeviceTables::ResolveHost(const void* memory, size_t size_bytes) const {
  const auto address = reinterpret_cast<uint64_t>(memory);
  const LiveMemory* const found = Find(address);
  if (found == nullptr || found->origin != MemoryOrigin::kPinned) return nullptr;
  return size_bytes <= found->size_bytes - (address - found->begin)
             ? reinterpret_cast<std::byte*>(address)
             : nullptr;
}

bool DeviceTables::IsPageable(const void* memory, size_t size_bytes) const {
  const auto begin = reinterpret_cast<uint64_t>(memory);
  if (begin >= kPinnedOffset || size_bytes == 0 || !IsMapped(memory, size_bytes)) return false;
  for (const auto& [other, live] : live_) {
    if (other < begin + size_bytes && begin < other + live.size_bytes) return false;
  }
  return true;
}

void DeviceTables::Count(EmulatedObjects& objects) const {
  for (const auto& [begin, memory] : live_) {
    switch (memory.origin) {
      case MemoryOrigin::kImported:
        ++objects.imports;
        break;
      case MemoryOrigin::kPinned:
        ++objects.pinned;
        break;
      default:
        ++objects.allocations;
    }
  }
}

uint64_t DeviceTables::DropAll(int ordinal) {
  peers_.Forget(ordinal);
  uint64_t count = 0;
  for (auto next = live_.begin(); next != live_.end();) {
    const auto found = next++;
    if (found->second.ordinal != ordinal) continue;
    Drop(found);
    ++count;
  }
  return count;
}

DeviceTables::Hole DeviceTables::TakeHole(uint64_t mapped_bytes) {
  const auto fits = std::find_if(holes_.rbegin(), holes_.rend(), [&](const Hole& hole) {
    return hole.mapped_bytes >= mapped_bytes;
  });
  if (fits == holes_.rend()) {
    return {file_.TakeAddresses(mapped_bytes), file_.TakeSpace(mapped_bytes), mapped_bytes};
  }
  const Hole hole = *fits;
  holes_.erase(std::next(fits).base());
  return hole;
}

void DeviceTables::Add(LiveMemory memory) {
  memory.buffer_id = ++last_buffer_id_;
  live_[memory.begin] = memory;
}

void DeviceTables::Drop(std::map<uint64_t, LiveMemory>::iterator found) {
  const LiveMemory memory = found->second;
  live_.erase(found);
  if (memory.origin == MemoryOrigin::kPinned) return;
  file_.Unmap(memory.begin, memory.mapped_bytes);
  if (memory.origin == MemoryOrigin::kImported) return;
  FillWith(kFreedPattern, file_.At(memory.offset), memory.mapped_bytes);
  used_bytes_[static_cast<size_t>(memory.ordinal)] -= memory.size_bytes;
  holes_.push_back({memory.begin, memory.offset, memory.mapped_bytes});
}

std::map<uint64_t, LiveMemory>::const_iterator DeviceTables::Holding(uint64_t address) const {
  auto found = live_.upper_bound(address);
  if (found == live_.begin()) return live_.end();
  --found;
  return address - found->first < found->second.size_bytes ? found : live_.end();
}

}  // namespace lmdbio::test
