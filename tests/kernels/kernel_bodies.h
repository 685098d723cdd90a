// tests/kernels/kernel_bodies.h - runs kernel bodies on the host, and makes memory for them.
#ifndef LMDBIO_TESTS_KERNELS_KERNEL_BODIES_H_
#define LMDBIO_TESTS_KERNELS_KERNEL_BODIES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <vector>

#include "lmdbio/device/device_address.h"
#include "lmdbio/kernels/kernel_list.h"
#include "lmdbio/sync/reduce/data_type.h"
#include "tests/support/random.h"

namespace lmdbio::test {

template <typename Table>
using KernelBody = void (*)(const Table&, const kernels::KernelPlace&);

// The body of a kernel by its name, among all that take this table.
template <typename Table>
KernelBody<Table> BodyOf(const std::string& name) {
  using namespace kernels;
  static const auto kBodies = [] {
    std::map<std::string, KernelBody<Table>> bodies;
#define LMDBIO_TEST_BODY(NAME, TABLE, BODY)                                                   \
  if constexpr (std::is_same_v<Table, TABLE>) {                                               \
    bodies[#NAME] = [](const Table& table, const KernelPlace& place) { BODY(table, place); }; \
  }
    LMDBIO_FOR_EACH_KERNEL(LMDBIO_TEST_BODY)
#undef LMDBIO_TEST_BODY
    return bodies;
  }();
  return kBodies.at(name);
}

// Runs all threads of a launch, the last one first.
template <typename Table>
void RunBody(const std::string& name, const Table& table, uint32_t blocks, uint32_t threads) {
  const auto body = BodyOf<Table>(name);
  for (uint32_t block = blocks; block-- > 0;) {
    for (uint32_t thread = threads; thread-- > 0;) body(table, {block, blocks, thread, threads});
  }
}

// Memory that begins `offset` bytes after a multiple of 16. Its edges are those of its allocation,
// so that the address sanitizer sees each word too far; or guards, which show each byte that is
// written.
class PlacedBytes {
 public:
  enum class Edges { kAllocation, kGuards };

  PlacedBytes(size_t offset, size_t size_bytes, Edges edges)
      : offset_(offset + GuardBytes(edges)),
        size_bytes_(size_bytes),
        total_bytes_(offset_ + size_bytes + GuardBytes(edges)),
        memory_(static_cast<std::byte*>(::operator new(total_bytes_, kAlignment))) {
    std::memset(memory_.get(), kGuardByte, total_bytes_);
  }

  std::byte* data() const { return memory_.get() + offset_; }
  size_t size_bytes() const { return size_bytes_; }
  device::DeviceSpan span() const { return {{reinterpret_cast<uint64_t>(data())}, size_bytes_}; }
  bool AreEdgesWhole() const {
    for (size_t i = 0; i < total_bytes_; ++i) {
      const bool is_inside = i >= offset_ && i < offset_ + size_bytes_;
      if (!is_inside && memory_.get()[i] != std::byte{kGuardByte}) return false;
    }
    return true;
  }

 private:
  static constexpr size_t GuardBytes(Edges edges) { return edges == Edges::kGuards ? 32 : 0; }
  static constexpr unsigned char kGuardByte = 0x5C;
  static constexpr std::align_val_t kAlignment{16};

  struct Delete {
    void operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }
  };

  size_t offset_;  // in the allocation
  size_t size_bytes_;
  size_t total_bytes_;
  std::unique_ptr<std::byte[], Delete> memory_;
};

// Bits of numbers at the edges of their type: zeros, infinities, NaNs, the least and the largest.
inline std::vector<uint64_t> EdgeBits(sync::DataType type) {
  using sync::DataType;
  switch (type) {
    case DataType::kFloat32:
      return {0,          0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F800001,
              0x00000001, 0x807FFFFF, 0x00800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x3F800000, 0xBF800000};
    case DataType::kFloat64:
      return {0,
              0x8000000000000000,
              0x7FF0000000000000,
              0xFFF0000000000000,
              0x7FF8000000000000,
              0x7FF0000000000001,
              0x0000000000000001,
              0x800FFFFFFFFFFFFF,
              0x0010000000000000,
              0x7FEFFFFFFFFFFFFF,
              0xFFEFFFFFFFFFFFFF,
              0x3FF0000000000000};
    case DataType::kFloat16:
      return {0,      0x8000, 0x7C00, 0xFC00, 0x7E00, 0x7C01, 0x0001, 0x83FF,
              0x0400, 0x7BFF, 0xFBFF, 0x3C00, 0xBC00, 0x3C01, 0x1400};
    case DataType::kBFloat16:
      return {0,      0x8000, 0x7F80, 0xFF80, 0x7FC0, 0x7F81, 0x0001, 0x807F,
              0x0080, 0x7F7F, 0xFF7F, 0x3F80, 0xBF80, 0x3F81, 0x3B80};
    case DataType::kInt32:
      return {0, 1, 0xFFFFFFFF, 0x7FFFFFFF, 0x80000000, 0x80000001, 0x10000};
    case DataType::kInt64:
      return {0,
              1,
              0xFFFFFFFFFFFFFFFF,
              0x7FFFFFFFFFFFFFFF,
              0x8000000000000000,
              0x8000000000000001,
              0x100000000};
  }
  return {};
}

// Any bits, and among them many at the edges of the type.
inline std::string NumbersOf(Random& random, sync::DataType type, size_t count) {
  const size_t element_bytes = sync::ElementBytes(type);
  std::string bytes = random.BytesOf(count * element_bytes);
  const std::vector<uint64_t> edges = EdgeBits(type);
  for (size_t i = 0; i < count; ++i) {
    if (random.Below(3) != 0) continue;
    const uint64_t bits = edges[random.Below(edges.size())];
    std::memcpy(bytes.data() + i * element_bytes, &bits, element_bytes);
  }
  return bytes;
}

inline constexpr std::array kEachType{sync::DataType::kFloat32, sync::DataType::kFloat64,
                                      sync::DataType::kFloat16, sync::DataType::kBFloat16,
                                      sync::DataType::kInt32,   sync::DataType::kInt64};
inline constexpr std::array kEachOp{sync::ReduceOp::kSum, sync::ReduceOp::kMin,
                                    sync::ReduceOp::kMax, sync::ReduceOp::kProduct};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_KERNELS_KERNEL_BODIES_H_
