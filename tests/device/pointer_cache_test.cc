#include "lmdbio/device/pointer_cache.h"

#include <utility>
#include <vector>

#include "tests/device/emulated_device.h"
#include "tests/support/catch.h"

namespace lmdbio::device {
namespace {

using test::EmulatedGpu;
using test::Good;
using test::SharedBytes;

const void* At(uint64_t address) { return reinterpret_cast<const void*>(address); }

// Memory that the program allocates past lmdbio.
class ProgramMemory {
 public:
  ProgramMemory(const DriverTable& driver, size_t size_bytes) : driver_(driver) {
    if (driver.MemAlloc(&address_, size_bytes) != 0) throw std::runtime_error("no memory");
  }
  ~ProgramMemory() { Free(); }
  ProgramMemory(const ProgramMemory&) = delete;
  ProgramMemory& operator=(const ProgramMemory&) = delete;

  void Free() {
    if (address_ != 0) driver_.MemFree(address_);
    address_ = 0;
  }
  uint64_t address() const { return address_; }

 private:
  const DriverTable& driver_;
  uint64_t address_ = 0;
};

TEST_CASE("Memory of lmdbio is known without a call", "[pointer_cache]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open(1);
  const SharedBytes host(4096);
  const DeviceMemory memory = Good(device->Allocate(1000));
  const PinnedBytes pinned = Good(device->Pin(host.bytes()));
  const uint64_t calls = gpu->CallCount(nullptr);

  for (const uint64_t inside : {0, 1, 999}) {
    const PointerFacts facts = Good(device->Describe(At(memory.begin().value + inside)));
    CHECK(facts.kind == PointerKind::kDevice);
    CHECK(facts.ordinal == 1);
    CHECK(facts.range == memory.span());
    CHECK(facts.can_be_shared);
  }
  const PointerFacts of_host = Good(device->Describe(host.bytes().data() + 4095));
  CHECK(of_host.kind == PointerKind::kPinnedHost);
  CHECK(of_host.range.size_bytes == 4096);
  CHECK(gpu->CallCount(nullptr) == calls);
  CHECK(device->pointer_counts().own_hits == 4);

  CHECK(Good(device->Describe(At(memory.begin().value + 1000))).kind == PointerKind::kPlainHost);
  CHECK(device->pointer_counts().queries == 1);
}

TEST_CASE("Memory of lmdbio that is freed is forgotten", "[pointer_cache]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  const SharedBytes host(4096);
  uint64_t address = 0;
  {
    const DeviceMemory memory = Good(device->Allocate(64));
    const PinnedBytes pinned = Good(device->Pin(host.bytes()));
    address = memory.begin().value;
  }
  CHECK(Good(device->Describe(At(address))).kind == PointerKind::kPlainHost);
  CHECK(Good(device->Describe(host.bytes().data())).kind == PointerKind::kPlainHost);
}

TEST_CASE("Memory of the program is asked for once, then by its buffer id", "[pointer_cache]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  const ProgramMemory memory(gpu.table(), 4096);
  const PointerFacts first = Good(device->Describe(At(memory.address() + 100)));
  CHECK(first.kind == PointerKind::kDevice);
  CHECK(first.ordinal == 0);
  CHECK(first.range == DeviceSpan{{memory.address()}, 4096});
  CHECK(first.buffer_id != 0);
  CHECK(Good(device->Describe(At(memory.address() + 4095))).buffer_id == first.buffer_id);
  const PointerCacheCounts counts = device->pointer_counts();
  CHECK(counts.queries == 1);
  CHECK(counts.hits == 1);
  CHECK(gpu->CallCount("cuPointerGetAttributes") == 2);
}

TEST_CASE("Free and allocate again at the same address is noticed", "[pointer_cache]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  ProgramMemory memory(gpu.table(), 4096);
  const uint64_t address = memory.address();
  const PointerFacts before = Good(device->Describe(At(address)));
  memory.Free();

  SECTION("device memory of another size") {
    const ProgramMemory again(gpu.table(), 100);
    REQUIRE(again.address() == address);
    const PointerFacts after = Good(device->Describe(At(address)));
    CHECK(after.range.size_bytes == 100);
    CHECK(after.buffer_id != before.buffer_id);
    CHECK(device->pointer_counts().stale == 1);
    CHECK(Good(device->Describe(At(address))).range.size_bytes == 100);  // a hit
    CHECK(device->pointer_counts().hits == 1);
  }
  SECTION("memory of another kind") {
    REQUIRE(gpu->AllocateManaged(4096) == address);
    CHECK(Good(device->Describe(At(address))).kind == PointerKind::kManaged);
  }
  SECTION("memory of another device") {
    const auto other = gpu.Open(1);
    const DeviceMemory again = Good(other->Allocate(4096));
    REQUIRE(again.begin().value == address);
    CHECK(Good(device->Describe(At(address))).ordinal == 1);
  }
  SECTION("memory of lmdbio") {
    const DeviceMemory again = Good(device->Allocate(50));
    REQUIRE(again.begin().value == address);
    CHECK(Good(device->Describe(At(address))).range.size_bytes == 50);
    CHECK(Good(device->Describe(At(address + 60))).kind == PointerKind::kPlainHost);
  }
  SECTION("nothing") {
    CHECK(Good(device->Describe(At(address))).kind == PointerKind::kPlainHost);
    CHECK(device->pointer_counts().stale == 1);
  }
}

TEST_CASE("Without a check the cache is wrong after a free, as published", "[pointer_cache]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open(0, CacheCheck::kNone);
  ProgramMemory memory(gpu.table(), 4096);
  const uint64_t address = memory.address();
  (void)Good(device->Describe(At(address)));
  const uint64_t calls = gpu->CallCount(nullptr);
  CHECK(Good(device->Describe(At(address + 1))).kind == PointerKind::kDevice);
  CHECK(gpu->CallCount(nullptr) == calls);
  CHECK(device->pointer_counts().hits == 1);
  memory.Free();
  REQUIRE(gpu->AllocateManaged(4096) == address);
  CHECK(Good(device->Describe(At(address))).kind == PointerKind::kDevice);
}

TEST_CASE("Without a cache every answer about other memory is a query", "[pointer_cache]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open(0, CacheCheck::kNoCache);
  const ProgramMemory memory(gpu.table(), 4096);
  const DeviceMemory own = Good(device->Allocate(64));
  for (int i = 0; i < 3; ++i) {
    CHECK(Good(device->Describe(At(memory.address()))).range.size_bytes == 4096);
    CHECK(Good(device->Describe(At(own.begin().value))).range.size_bytes == 64);
  }
  CHECK(device->pointer_counts().queries == 3);
  CHECK(device->pointer_counts().hits == 0);
  CHECK(device->pointer_counts().own_hits == 3);
}

TEST_CASE("Plain host memory is never remembered", "[pointer_cache]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  const SharedBytes host(4096);
  for (int i = 0; i < 2; ++i) {
    const PointerFacts facts = Good(device->Describe(host.bytes().data()));
    CHECK(facts.kind == PointerKind::kPlainHost);
    CHECK(facts.ordinal == -1);
    CHECK(facts.range.size_bytes == 0);
  }
  CHECK(device->pointer_counts().queries == 2);
  // The program pins it, past lmdbio.
  REQUIRE(gpu.table().MemHostRegister(host.bytes().data(), 4096, 0) == 0);
  CHECK(Good(device->Describe(host.bytes().data())).kind == PointerKind::kPinnedHost);
  REQUIRE(gpu.table().MemHostUnregister(host.bytes().data()) == 0);
  CHECK(Good(device->Describe(host.bytes().data())).kind == PointerKind::kPlainHost);
}

// The function of the stand-in that the next one calls.
DriverCode (*attributes_of_stand_in)(unsigned, PointerAttribute*, void**, uint64_t) = nullptr;

DriverCode AttributesWithoutBufferId(unsigned count, PointerAttribute* attributes, void** values,
                                     uint64_t address) {
  const DriverCode code = attributes_of_stand_in(count, attributes, values, address);
  for (unsigned i = 0; i < count; ++i) {
    if (attributes[i] == PointerAttribute::kBufferId) *static_cast<uint64_t*>(values[i]) = 0;
  }
  return code;
}

TEST_CASE("An answer without a buffer id is not remembered", "[pointer_cache]") {
  const EmulatedGpu gpu;
  DriverTable table = gpu.table();
  attributes_of_stand_in = std::exchange(table.PointerGetAttributes, &AttributesWithoutBufferId);
  const auto device = Good(Device::Open(0, table));
  const ProgramMemory memory(gpu.table(), 64);
  for (int i = 0; i < 2; ++i) {
    CHECK(Good(device->Describe(At(memory.address()))).kind == PointerKind::kDevice);
  }
  CHECK(device->pointer_counts().queries == 2);
  CHECK(device->pointer_counts().hits == 0);
}

TEST_CASE("A full cache drops the oldest range", "[pointer_cache]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  const auto context = Good(PrimaryContext::Retain(gpu.table(), 0, 0));
  PointerCache cache(CacheCheck::kNone, 2);
  const ProgramMemory first(gpu.table(), 64);
  const ProgramMemory second(gpu.table(), 64);
  const ProgramMemory third(gpu.table(), 64);
  for (const ProgramMemory* const memory : {&first, &second, &third}) {
    CHECK(Good(cache.Describe(*context, At(memory->address()))).kind == PointerKind::kDevice);
  }
  CHECK(cache.counts().queries == 3);
  (void)Good(cache.Describe(*context, At(third.address())));
  (void)Good(cache.Describe(*context, At(second.address())));
  CHECK(cache.counts().hits == 2);
  (void)Good(cache.Describe(*context, At(first.address())));
  CHECK(cache.counts().queries == 4);
}

TEST_CASE("A new range replaces all that it overlaps", "[pointer_cache]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  const auto context = Good(PrimaryContext::Retain(gpu.table(), 0, 0));
  PointerCache cache(CacheCheck::kNone, 4);
  ProgramMemory memory(gpu.table(), 8192);
  const uint64_t address = memory.address();
  (void)Good(cache.Describe(*context, At(address)));
  // Ranges of lmdbio that begin inside it, and that hold it.
  cache.AddOwn({.kind = PointerKind::kDevice, .range = {{address + 4096}, 4096}});
  CHECK(Good(cache.Describe(*context, At(address))).kind == PointerKind::kDevice);
  CHECK(cache.counts().queries == 2);  // the old range was dropped
  cache.RemoveOwn({{address + 4096}, 4096});
  cache.AddOwn({.kind = PointerKind::kManaged, .range = {{address - 64}, 16384}});
  CHECK(Good(cache.Describe(*context, At(address))).kind == PointerKind::kManaged);
  cache.RemoveOwn({{address - 64}, 16384});
  (void)Good(cache.Describe(*context, At(address)));
  CHECK(cache.counts().queries == 3);
}

TEST_CASE("A failed query is an error, and nothing is remembered", "[pointer_cache]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  const ProgramMemory memory(gpu.table(), 64);
  gpu->FailCall("cuPointerGetAttributes", 1, 999);
  CHECK_THAT(device->Describe(At(memory.address())).error().message(),
             ContainsSubstring("cuPointerGetAttributes: code 999"));
  (void)Good(device->Describe(At(memory.address())));
  gpu->FailCall("cuPointerGetAttributes", 1, 999);
  CHECK(!device->Describe(At(memory.address())));  // of the buffer id
  CHECK(Good(device->Describe(At(memory.address()))).kind == PointerKind::kDevice);
  CHECK(device->pointer_counts().hits == 1);
}

}  // namespace
}  // namespace lmdbio::device
