#include "lmdbio/device/device_stream.h"

#include <memory>
#include <string>
#include <vector>

#include "tests/device/emulated_device.h"
#include "tests/support/catch.h"
#include "tests/support/random.h"

namespace lmdbio::device {
namespace {

using test::EmulatedGpu;
using test::Good;
using test::Random;
using test::SharedBytes;

enum class CopyWaits { kAll, kNotTheFirst, kNotTheSecond };

// Bytes go through three streams: to the device, from buffer to buffer, and back.
bool IsCopyRight(uint64_t seed, CopyWaits waits) {
  const EmulatedGpu gpu(seed);
  const auto device = gpu.Open();
  const SharedBytes host(4096);
  const PinnedBytes in = Good(device->Pin(host.bytes().first(1024)));
  const PinnedBytes out = Good(device->Pin(host.bytes().subspan(2048, 1024)));
  const DeviceMemory first = Good(device->Allocate(1024));
  const DeviceMemory second = Good(device->Allocate(1024));
  DeviceStream to_device = Good(device->MakeStream());
  DeviceStream on_device = Good(device->MakeStream());
  DeviceStream to_host = Good(device->MakeStream());
  DeviceEvent is_in = Good(device->MakeEvent(DeviceEventKind::kLocal));
  DeviceEvent is_moved = Good(device->MakeEvent(DeviceEventKind::kLocal));
  const std::string bytes = Random(seed).BytesOf(1024);
  test::Write(in, bytes);

  Status status = to_device.CopyIn(first.begin(), in, 0, 1024);
  if (status) status = to_device.Record(is_in);
  if (status && waits != CopyWaits::kNotTheFirst) status = on_device.Await(is_in);
  if (status) status = on_device.Copy(second.begin(), first.begin(), 1024);
  if (status) status = on_device.Record(is_moved);
  if (status && waits != CopyWaits::kNotTheSecond) status = to_host.Await(is_moved);
  if (status) status = to_host.CopyOut(out, 0, second.begin(), 1024);
  if (status) status = to_host.Synchronize();
  if (status) status = to_device.Synchronize();
  if (status) status = on_device.Synchronize();
  if (!status) throw std::runtime_error(status.error().message());
  return test::Read(out, 1024) == bytes;
}

TEST_CASE("CopyWaits keep streams in order under every seed", "[device_stream]") {
  const uint64_t seeds = test::SeedCount(300);
  uint64_t wrong_without_first = 0;
  uint64_t wrong_without_second = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    INFO("seed " << seed);
    CHECK(IsCopyRight(seed, CopyWaits::kAll));
    wrong_without_first += IsCopyRight(seed, CopyWaits::kNotTheFirst) ? 0 : 1;
    wrong_without_second += IsCopyRight(seed, CopyWaits::kNotTheSecond) ? 0 : 1;
  }
  CHECK(wrong_without_first > 0);
  CHECK(wrong_without_second > 0);
  CHECK(wrong_without_first < seeds);  // the seed decides
}

// A buffer of a random program, with the work that a later user must await.
struct Buffer {
  DeviceMemory memory;
  std::string expected;
  std::shared_ptr<DeviceEvent> written;
  std::vector<std::shared_ptr<DeviceEvent>> read;
};

constexpr uint64_t kBufferBytes = 64;

// Random copies and fills on random streams, each behind all work that it depends on. Oracle: the
// same program in order on strings.
void RunRandomProgram(uint64_t seed) {
  const EmulatedGpu gpu(seed);
  const auto device = gpu.Open();
  Random random(seed);
  std::vector<DeviceStream> streams;
  for (int i = 0; i < 4; ++i) streams.push_back(Good(device->MakeStream()));
  std::vector<Buffer> buffers;
  for (int i = 0; i < 5; ++i) {
    buffers.push_back(
        {Good(device->Allocate(kBufferBytes)), std::string(kBufferBytes, '\0'), nullptr, {}});
  }
  for (int step = 0; step < 60; ++step) {
    DeviceStream& stream = streams[random.Below(streams.size())];
    Buffer& to = buffers[random.Below(buffers.size())];
    Buffer& from = buffers[random.Below(buffers.size())];
    auto done = std::make_shared<DeviceEvent>(Good(device->MakeEvent(DeviceEventKind::kLocal)));
    for (const auto& event : to.read) REQUIRE(stream.Await(*event));
    for (const Buffer* const buffer : {&to, &from}) {
      if (buffer->written) REQUIRE(stream.Await(*buffer->written));
    }
    if (&to == &from) {
      const auto value = static_cast<std::byte>(random.Below(256));
      REQUIRE(stream.Fill(to.memory.begin(), value, kBufferBytes));
      to.expected.assign(kBufferBytes, static_cast<char>(value));
    } else {
      REQUIRE(stream.Copy(to.memory.begin(), from.memory.begin(), kBufferBytes / 2));
      to.expected.replace(0, kBufferBytes / 2, from.expected, 0, kBufferBytes / 2);
      from.read.push_back(done);
    }
    REQUIRE(stream.Record(*done));
    to.written = done;
    to.read.clear();
  }
  for (DeviceStream& stream : streams) REQUIRE(stream.Synchronize());
  for (const Buffer& buffer : buffers) {
    CHECK(gpu.Peek(buffer.memory.begin(), kBufferBytes) == buffer.expected);
  }
}

TEST_CASE("Random programs give the bytes of the serial program", "[device_stream]") {
  for (uint64_t seed = 1; seed <= test::SeedCount(100); ++seed) {
    INFO("seed " << seed);
    RunRandomProgram(seed);
  }
}

TEST_CASE("A wait means the last record at the time when it was enqueued", "[device_stream]") {
  for (uint64_t seed = 1; seed <= test::SeedCount(50); ++seed) {
    const EmulatedGpu gpu(seed);
    const auto device = gpu.Open();
    const DeviceMemory memory = Good(device->Allocate(64));
    DeviceStream first = Good(device->MakeStream());
    DeviceStream second = Good(device->MakeStream());
    DeviceStream third = Good(device->MakeStream());
    DeviceEvent event = Good(device->MakeEvent(DeviceEventKind::kLocal));
    REQUIRE(first.Fill(memory.begin(), std::byte{1}, 64));
    REQUIRE(first.Record(event));
    REQUIRE(second.Await(event));  // of the first fill, although the event is recorded again
    REQUIRE(third.Record(event));  // at once
    REQUIRE(second.Fill(memory.begin(), std::byte{2}, 64));
    for (DeviceStream* const stream : {&third, &second, &first}) REQUIRE(stream->Synchronize());
    CHECK(gpu.Peek(memory.begin(), 64) == std::string(64, '\2'));
  }
}

TEST_CASE("Copies read pinned memory when they run", "[device_stream]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  const SharedBytes host(4096);
  const PinnedBytes pinned = Good(device->Pin(host.bytes()));
  const DeviceMemory memory = Good(device->Allocate(64));
  DeviceStream stream = Good(device->MakeStream());
  test::Write(pinned, std::string(64, 'a'));
  REQUIRE(stream.CopyIn(memory.begin(), pinned, 0, 64));
  test::Write(pinned, std::string(64, 'b'));
  CHECK(gpu->QueuedCount() == 1);  // nothing waits here
  REQUIRE(stream.Synchronize());
  CHECK(gpu.Peek(memory.begin(), 64) == std::string(64, 'b'));
}

TEST_CASE("Copies use the offsets and sizes that they are given", "[device_stream]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  const SharedBytes host(4096);
  const PinnedBytes pinned = Good(device->Pin(host.bytes()));
  const DeviceMemory memory = Good(device->Allocate(16));
  DeviceStream stream = Good(device->MakeStream());
  test::Write(pinned, "0123456789abcdef");
  REQUIRE(stream.CopyIn(memory.begin() + 4, pinned, 10, 6));
  REQUIRE(stream.Copy(memory.begin(), memory.begin() + 6, 4));
  REQUIRE(stream.CopyOut(pinned, 100, memory.begin(), 10));
  REQUIRE(stream.Synchronize());
  CHECK(gpu.Peek(memory.begin(), 10) == "cdefabcdef");
  CHECK(test::Read(pinned, 110).substr(100) == "cdefabcdef");
}

TEST_CASE("Ranges outside pinned memory are refused, 0 bytes are no work", "[device_stream]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  const SharedBytes host(4096);
  const PinnedBytes pinned = Good(device->Pin(host.bytes()));
  const DeviceMemory memory = Good(device->Allocate(8192));
  DeviceStream stream = Good(device->MakeStream());
  const uint64_t calls = gpu->CallCount(nullptr);
  const auto refused = [](const Status& status) {
    return !status && status.error().code() == ErrorCode::kInvalidArgument;
  };
  CHECK(refused(stream.CopyIn(memory.begin(), pinned, 4096, 1)));
  CHECK(refused(stream.CopyIn(memory.begin(), pinned, 1, 4096)));
  CHECK(refused(stream.CopyIn(memory.begin(), pinned, ~uint64_t{0}, 2)));
  CHECK(refused(stream.CopyOut(pinned, 4097, memory.begin(), 0)));
  CHECK_THAT(stream.CopyOut(pinned, 2, memory.begin(), 4095).error().message(),
             ContainsSubstring("a copy of 4095 bytes at offset 2 of 4096 pinned bytes"));
  CHECK(stream.CopyIn(memory.begin(), pinned, 4096, 0));
  CHECK(stream.CopyOut(pinned, 4096, memory.begin(), 0));
  CHECK(stream.Copy(memory.begin(), memory.begin(), 0));
  CHECK(stream.Fill(memory.begin(), std::byte{1}, 0));
  CHECK(gpu->CallCount(nullptr) == calls);
}

TEST_CASE("A wait for an event that was never recorded is refused", "[device_stream]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  DeviceStream stream = Good(device->MakeStream());
  DeviceEvent event = Good(device->MakeEvent(DeviceEventKind::kLocal));
  const Status status = stream.Await(event);
  REQUIRE(!status);
  CHECK(status.error().code() == ErrorCode::kInvalidArgument);
  REQUIRE(stream.Record(event));
  CHECK(stream.Await(event));

  DeviceEvent failed = Good(device->MakeEvent(DeviceEventKind::kLocal));
  gpu->FailCall("cuEventRecord", 1, 999);
  CHECK(!stream.Record(failed));
  CHECK(!stream.Await(failed));  // a record that failed is none
}

TEST_CASE("A stream is done when its work is", "[device_stream]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  const DeviceMemory memory = Good(device->Allocate(64));
  DeviceStream stream = Good(device->MakeStream());
  CHECK(Good(stream.IsDone()));
  for (int i = 0; i < 8; ++i) REQUIRE(stream.Fill(memory.begin(), std::byte{1}, 64));
  CHECK(!Good(stream.IsDone()));
  for (int looks = 0; !Good(stream.IsDone()); ++looks) REQUIRE(looks < 100);
  CHECK(gpu->CallCount("cuStreamSynchronize") == 1);  // that of Allocate
}

TEST_CASE("A borrowed stream stays the program's", "[device_stream]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  const DeviceMemory memory = Good(device->Allocate(64));
  StreamHandle of_program = nullptr;
  DeviceStream own = Good(device->MakeStream());
  REQUIRE(gpu.table().StreamCreateWithPriority(&of_program, 0, 0) == 0);
  const uint64_t streams = gpu->Objects().streams;
  for (const StreamHandle handle : {of_program, StreamHandle{nullptr}}) {
    DeviceStream stream = device->Borrow(handle);
    CHECK(stream.native() == handle);
    CHECK(stream.Fill(memory.begin(), std::byte{3}, 64));
    CHECK(stream.Synchronize());
  }
  CHECK(gpu.Peek(memory.begin(), 64) == std::string(64, '\3'));
  CHECK(gpu->Objects().streams == streams);
  CHECK(gpu->CallCount("cuStreamDestroy") == 0);
}

TEST_CASE("A stream of another device is an error, and the context lives", "[device_stream]") {
  const EmulatedGpu gpu;
  const auto first = gpu.Open(0);
  const auto second = gpu.Open(1);
  const DeviceMemory memory = Good(first->Allocate(64));
  const DeviceStream of_second = Good(second->MakeStream());
  DeviceStream stream = first->Borrow(of_second.native());
  CHECK_THAT(stream.Fill(memory.begin(), std::byte{1}, 64).error().message(),
             ContainsSubstring("cuMemsetD8Async: CUDA_ERROR_INVALID_HANDLE"));
  CHECK(first->Allocate(64));
}

TEST_CASE("Work of a stream that is destroyed still runs", "[device_stream]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  const DeviceMemory memory = Good(device->Allocate(64));
  DeviceEvent event = Good(device->MakeEvent(DeviceEventKind::kLocal));
  {
    DeviceStream stream = Good(device->MakeStream());
    REQUIRE(stream.Fill(memory.begin(), std::byte{4}, 64));
    REQUIRE(stream.Record(event));
  }
  for (int looks = 0; !Good(event.IsDone()); ++looks) REQUIRE(looks < 100);
  CHECK(gpu.Peek(memory.begin(), 64) == std::string(64, '\4'));
}

TEST_CASE("A stream that is captured says so", "[device_stream]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  const DeviceStream captured = Good(device->MakeStream());
  const DeviceStream other = Good(device->MakeStream());
  CHECK_FALSE(Good(captured.IsCaptured()));
  CHECK_FALSE(Good(device->Borrow(nullptr).IsCaptured()));
  gpu->BeginCapture(captured.native());
  CHECK(Good(captured.IsCaptured()));
  CHECK_FALSE(Good(other.IsCaptured()));
  CHECK(Good(device->Borrow(nullptr).IsCaptured()));
}

TEST_CASE("A stream of another GPU, or of none, is the mistake of the program", "[device_stream]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open(0);
  const auto other = gpu.Open(1);
  const DeviceStream theirs = Good(other->MakeStream());
  DeviceEvent event = Good(device->MakeEvent(DeviceEventKind::kLocal));
  REQUIRE(Good(device->MakeStream()).Record(event));
  int on_host = 0;
  for (const StreamHandle handle : {theirs.native(), reinterpret_cast<StreamHandle>(&on_host)}) {
    DeviceStream stream = device->Borrow(handle);
    DeviceEvent fresh = Good(device->MakeEvent(DeviceEventKind::kLocal));
    const Status statuses[] = {stream.Record(fresh), stream.Await(event),
                               stream.IsCaptured().map([](bool) {})};
    for (const Status& status : statuses) {
      REQUIRE_FALSE(status);
      CHECK(status.error().code() == ErrorCode::kInvalidArgument);
      CHECK_THAT(status.error().message(), ContainsSubstring("not one of GPU 0"));
    }
    CHECK_FALSE(fresh.is_recorded());
  }
}

}  // namespace
}  // namespace lmdbio::device
