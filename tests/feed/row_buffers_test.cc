// Goal: a buffer serves again only when the work of the program is done, and there are as many as
// the depth and the program's batches need.
#include "lmdbio/feed/row_buffers.h"

#include <memory>

#include "tests/device/emulated_device.h"
#include "tests/support/catch.h"
#include "tests/sync/on_device/tensors_on_device.h"

namespace lmdbio::feed {
namespace {

using test::EmulatedGpu;
using test::EndlessWork;
using test::Good;
using test::Must;
using test::ProgramOnDevice;

struct BuffersOnDevice {
  explicit BuffersOnDevice(uint32_t depth) : buffers(opened, depth) {}

  // A buffer with the program, whose copy is done.
  RowBuffer& HandedOut(uint64_t size_bytes = 100) {
    RowBuffer* const buffer = Good(buffers.Take(size_bytes));
    REQUIRE(buffer != nullptr);
    Must(copies.Record(buffer->copied()));
    Must(buffers.UseOn(*buffer, program.stream().native()));
    buffers.HandOut(*buffer);
    return *buffer;
  }

  EmulatedGpu gpu{1};
  std::shared_ptr<device::Device> opened = gpu.Open();
  device::DeviceStream copies = Good(opened->MakeStream());
  ProgramOnDevice program{opened};
  RowBuffers buffers;
};

TEST_CASE("A buffer that the program has returned serves when its work is done", "[row_buffers]") {
  BuffersOnDevice on(1);
  EndlessWork endless(*on.opened);
  RowBuffer& first = on.HandedOut();
  RowBuffer* const second = Good(on.buffers.Take(100));
  REQUIRE(second != nullptr);
  CHECK(second != &first);
  CHECK(Good(on.buffers.Take(100)) == nullptr);
  endless.BeginOn(on.program.stream());
  on.buffers.Return(first);
  for (int i = 0; i < 50; ++i) CHECK(Good(on.buffers.Take(100)) == nullptr);
  endless.End();
  Must(on.program.stream().Synchronize());
  CHECK(Good(on.buffers.Take(100)) == &first);
}

TEST_CASE("Each batch that the program keeps adds a buffer", "[row_buffers]") {
  BuffersOnDevice on(2);
  for (int i = 0; i < 5; ++i) on.HandedOut();
  CHECK(Good(on.buffers.Take(100)) != nullptr);
  CHECK(Good(on.buffers.Take(100)) != nullptr);
  CHECK(Good(on.buffers.Take(100)) == nullptr);
  CHECK(on.buffers.grown_count() == 7);
}

TEST_CASE("Buffers grow to the largest batch so far", "[row_buffers]") {
  BuffersOnDevice on(2);
  RowBuffer* const small = Good(on.buffers.Take(10));
  CHECK(small->span().size_bytes == 64 << 10);
  RowBuffer* const large = Good(on.buffers.Take((128 << 10) + 1));
  CHECK(large->span().size_bytes == 192 << 10);
  on.buffers.GiveBack(*small);
  on.buffers.GiveBack(*large);
  CHECK(Good(on.buffers.Take(100 << 10)) == large);  // no new memory for it
  CHECK(Good(on.buffers.Take(100 << 10)) == small);
  CHECK(small->span().size_bytes == 192 << 10);
  CHECK(on.buffers.grown_count() == 3);
}

TEST_CASE("A buffer that cannot grow serves later", "[row_buffers]") {
  BuffersOnDevice on(1);
  on.gpu->FailCall("cuMemAlloc", 1, device::driver_code::kOutOfMemory);
  const auto refused = on.buffers.Take(100);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == ErrorCode::kResourceExhausted);
  CHECK_THAT(refused.error().message(), ContainsSubstring("the program has 0 batches"));
  CHECK(Good(on.buffers.Take(100)) != nullptr);
}

}  // namespace
}  // namespace lmdbio::feed
