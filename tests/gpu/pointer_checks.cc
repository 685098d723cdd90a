// C5: the pointer cache is right when memory of the program is freed, and an address is given out
// again. Oracle: the sizes that the program has asked for.
#include <set>

#include <fmt/format.h>

#include "lmdbio/device/pointer_cache.h"
#include "tests/gpu/device_check.h"

namespace lmdbio::test {
namespace {

using device::PointerFacts;
using device::PointerKind;

constexpr uint64_t kSizeStep = 1 << 20;

// Memory that the program has allocated past lmdbio.
class MemoryPastLmdbio {
 public:
  MemoryPastLmdbio(device::Device& gpu, uint64_t size_bytes) : gpu_(gpu) {
    Must(gpu_.context()->Run("cuMemAlloc", [&](const device::DriverTable& driver) {
      return driver.MemAlloc(&address_, size_bytes);
    }));
  }
  ~MemoryPastLmdbio() {
    gpu_.context()->Release(
        "cuMemFree", [&](const device::DriverTable& driver) { return driver.MemFree(address_); });
  }
  MemoryPastLmdbio(const MemoryPastLmdbio&) = delete;
  MemoryPastLmdbio& operator=(const MemoryPastLmdbio&) = delete;

  uint64_t address() const { return address_; }
  const void* pointer() const { return reinterpret_cast<const void*>(address_); }

 private:
  device::Device& gpu_;
  uint64_t address_ = 0;
};

std::string CheckFacts(const PointerFacts& facts, const CheckScene& scene, uint64_t address,
                       uint64_t size_bytes) {
  if (facts.kind != PointerKind::kDevice) return "not memory of a GPU";
  if (facts.ordinal != scene.ordinal) return "memory of another GPU";
  // A driver may round the size up, but not to that of another turn.
  const bool is_range = facts.range.begin.value == address &&
                        facts.range.size_bytes >= size_bytes &&
                        facts.range.size_bytes < size_bytes + kSizeStep;
  return is_range ? "" : fmt::format("a range of {} bytes", facts.range.size_bytes);
}

CheckOutcome CheckReuse(const CheckScene& scene) {
  const std::shared_ptr<device::Device> gpu = scene.Open();
  constexpr uint64_t kLeast = 2 << 20;  // large memory, which a driver gives back when it is freed
  const uint64_t turns = scene.Of(1000, 50);
  std::set<uint64_t> addresses;
  uint64_t again_count = 0;
  uint64_t last_id = 0;
  Random random(scene.seed);
  for (uint64_t turn = 0; turn < turns; ++turn) {
    const uint64_t size_bytes = kLeast + random.Below(4) * kSizeStep;
    const MemoryPastLmdbio memory(*gpu, size_bytes);
    if (!addresses.insert(memory.address()).second) ++again_count;
    for (int look = 0; look < 2; ++look) {  // a query, and a hit
      const PointerFacts facts = Good(gpu->Describe(memory.pointer()));
      std::string wrong = CheckFacts(facts, scene, memory.address(), size_bytes);
      if (wrong.empty() && look == 0 && facts.buffer_id == last_id) wrong = "an old buffer id";
      last_id = facts.buffer_id;
      if (!wrong.empty()) {
        return Failed(fmt::format("turn {}, look {}, {} bytes: {}", turn, look, size_bytes, wrong));
      }
    }
  }
  const device::PointerCacheCounts counts = gpu->pointer_counts();
  if (again_count == 0) return LeftOut("the driver has given out no address twice");
  if (counts.hits == 0) return Failed("no look was a hit");
  return Passed(fmt::format("{} addresses were given out again", again_count));
}

// The memory is freed, and nothing is there.
CheckOutcome CheckFreed(const CheckScene& scene) {
  const std::shared_ptr<device::Device> gpu = scene.Open();
  for (uint64_t turn = 0; turn < scene.Of(100, 10); ++turn) {
    const void* pointer = nullptr;
    {
      const MemoryPastLmdbio memory(*gpu, 4 << 20);
      pointer = memory.pointer();
      if (Good(gpu->Describe(pointer)).kind != PointerKind::kDevice) return Failed("not a GPU's");
    }
    if (Good(gpu->Describe(pointer)).kind == PointerKind::kDevice) {
      return Failed(fmt::format("turn {}: freed memory counts as memory of a GPU", turn));
    }
  }
  return Passed();
}

}  // namespace

DeviceChecks PointerChecks() {
  return {{"C5", "memory is freed and its address given out again", 40, &CheckReuse},
          {"C5", "memory is freed", 20, &CheckFreed}};
}

}  // namespace lmdbio::test
