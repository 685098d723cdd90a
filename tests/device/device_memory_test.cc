#include "lmdbio/device/device_memory.h"

#include <unistd.h>
#include <csignal>
#include <cstring>

#include "lmdbio/base/kept_memory.h"
#include "tests/device/emulated_device.h"
#include "tests/support/catch.h"
#include "tests/support/in_child.h"

namespace lmdbio::device {
namespace {

using test::EmulatedGpu;
using test::Good;

constexpr int kFaultedThere = 42;

uint64_t forbidden_address = 0;  // for the handler

void OnFault(int, siginfo_t* info, void*) {
  const bool is_there = reinterpret_cast<uint64_t>(info->si_addr) == forbidden_address;
  ::_exit(is_there ? kFaultedThere : 1);
}

// The exit code of a child that reads one byte there.
int ExitOfReading(uint64_t address) {
  return static_cast<int>(test::InChild([address] {
    forbidden_address = address;
    struct sigaction action = {};
    action.sa_sigaction = OnFault;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGSEGV, &action, nullptr);
    const volatile char found = *reinterpret_cast<const volatile char*>(address);
    (void)found;
    return test::Verdict::kRight;
  }));
}

TEST_CASE("Allocate gives zeros, also where memory was used before", "[device_memory]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  uint64_t first_address = 0;
  {
    const DeviceMemory memory = Good(device->Allocate(5000));
    first_address = memory.begin().value;
    CHECK(memory.size_bytes() == 5000);
    CHECK(!memory.is_imported());
    CHECK(gpu.Peek(memory.begin(), 5000) == std::string(5000, '\0'));
    DeviceStream stream = Good(device->MakeStream());
    REQUIRE(stream.Fill(memory.begin(), std::byte{9}, 5000));
    REQUIRE(stream.Synchronize());
  }
  const DeviceMemory memory = Good(device->Allocate(5000));
  CHECK(memory.begin().value == first_address);  // as the stand-in promises
  CHECK(gpu.Peek(memory.begin(), 5000) == std::string(5000, '\0'));
}

TEST_CASE("Spans tell what they hold and overlap", "[device_memory]") {
  const DeviceSpan span = {{100}, 10};
  CHECK(span.Holds(0, 10));
  CHECK(span.Holds(10, 0));
  CHECK(!span.Holds(1, 10));
  CHECK(!span.Holds(11, 0));
  CHECK(span.Overlaps({{109}, 5}));
  CHECK(!span.Overlaps({{110}, 5}));
  CHECK(span.Overlaps({{91}, 10}));
  CHECK(!span.Overlaps({{90}, 10}));
  CHECK(!span.Overlaps({{105}, 0}));
  CHECK(!DeviceSpan{{105}, 0}.Overlaps(span));
  CHECK(span.HasAddresses());
  CHECK(DeviceSpan{}.HasAddresses());
  CHECK(!DeviceSpan{{0}, 1}.HasAddresses());
  CHECK(DeviceSpan{{~uint64_t{0} - 9}, 9}.HasAddresses());
  CHECK(!DeviceSpan{{~uint64_t{0} - 9}, 10}.HasAddresses());
  CHECK(!DeviceSpan{{~uint64_t{0} - 9}, 11}.HasAddresses());
}

TEST_CASE("Host code that follows a device address dies there", "[device_memory]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  uint64_t address = 0;
  {
    const DeviceMemory memory = Good(device->Allocate(4096));
    address = memory.begin().value;
    CHECK(ExitOfReading(address) == kFaultedThere);
    CHECK(ExitOfReading(address + 4095) == kFaultedThere);
  }
  CHECK(ExitOfReading(address) == kFaultedThere);  // freed
}

TEST_CASE("Allocate refuses 0 bytes", "[device_memory]") {
  const EmulatedGpu gpu;
  CHECK(gpu.Open()->Allocate(0).error().code() == ErrorCode::kInvalidArgument);
}

TEST_CASE("Allocate tells how much device memory there is", "[device_memory]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  const DeviceMemory half = Good(device->Allocate(test::kEmulatedMemoryBytes / 2));
  const auto more = device->Allocate(test::kEmulatedMemoryBytes / 2 + 1);
  REQUIRE(!more);
  CHECK(more.error().code() == ErrorCode::kResourceExhausted);
  CHECK_THAT(more.error().message(), ContainsSubstring("cuMemAlloc of 33554433 bytes"));
  CHECK_THAT(more.error().message(), ContainsSubstring("33554432 of 67108864 bytes are free"));
  CHECK(device->Allocate(test::kEmulatedMemoryBytes / 2));

  gpu->FailCall("cuMemGetInfo", 1, 999);
  const auto without = device->Allocate(test::kEmulatedMemoryBytes);
  CHECK_THAT(without.error().message(), ContainsSubstring("CUDA_ERROR_OUT_OF_MEMORY"));
}

TEST_CASE("Use after free is an error of the device, not wrong bytes", "[device_memory]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  DeviceStream stream = Good(device->MakeStream());
  const DeviceMemory kept = Good(device->Allocate(64));
  DeviceAddress freed;
  {
    const DeviceMemory memory = Good(device->Allocate(64));
    freed = memory.begin();
  }
  SECTION("of the source") { REQUIRE(stream.Copy(kept.begin(), freed, 64)); }
  SECTION("of the destination") { REQUIRE(stream.Copy(freed, kept.begin(), 64)); }
  SECTION("by one byte past the end") { REQUIRE(stream.Copy(kept.begin() + 1, kept.begin(), 64)); }
  SECTION("by a fill") { REQUIRE(stream.Fill(freed, std::byte{1}, 1)); }
  const Status status = stream.Synchronize();
  REQUIRE(!status);
  CHECK(status.error().code() == ErrorCode::kInternal);
  CHECK_THAT(status.error().message(), ContainsSubstring("CUDA_ERROR_ILLEGAL_ADDRESS"));
}

TEST_CASE("A fill that may still be under way keeps its memory", "[device_memory]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  const size_t kept_before = KeptCount();
  gpu->FailCall("cuStreamSynchronize", 1, 999);
  CHECK(!device->Allocate(64));
  CHECK(KeptCount() == kept_before);  // the second wait has ended
  CHECK(gpu->Objects().allocations == 0);

  gpu->FailCall("cuStreamSynchronize", 1, 999);
  gpu->FailCall("cuStreamSynchronize", 2, 999);
  CHECK(!device->Allocate(64));
  CHECK(gpu->FaultsLeft() == 0);
  CHECK(KeptCount() == kept_before + 1);
  CHECK(gpu->Objects().allocations == 1);
}

TEST_CASE("A ticket of this process gives the memory itself", "[device_memory]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  MemoryTicket ticket;
  {
    auto memory = std::make_unique<DeviceMemory>(Good(device->Allocate(64)));
    ticket = Good(device->Share(*memory));
    CHECK(ticket.size_bytes == 64);
    const DeviceMemory again = Good(gpu.Open()->Import(ticket));
    CHECK(again.span() == memory->span());
    CHECK(!again.is_imported());
    memory.reset();
    CHECK(gpu->Objects().allocations == 1);  // the second holder keeps it
  }
  CHECK(gpu->Objects().allocations == 0);
  CHECK(device->Import(ticket).error().code() == ErrorCode::kStale);
  CHECK(gpu->CallCount("cuIpcOpenMemHandle") == 0);
}

TEST_CASE("A driver that cannot share memory says so", "[device_memory]") {
  const EmulatedGpu gpu;
  DriverTable table = gpu.table();
  table.IpcGetMemHandle = nullptr;
  table.IpcOpenMemHandle = nullptr;
  const auto device = Good(Device::Open(0, table));
  const DeviceMemory memory = Good(device->Allocate(64));
  CHECK(device->Share(memory).error().code() == ErrorCode::kUnsupported);
  const MemoryTicket foreign = {.handle = {}, .process = 1, .allocation = 1, .size_bytes = 64};
  CHECK(device->Import(foreign).error().code() == ErrorCode::kUnsupported);
}

TEST_CASE("A refused import names possible reasons", "[device_memory]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  MemoryTicket ticket = {.handle = {}, .process = 1, .allocation = 1, .size_bytes = 64};
  gpu->RefuseImports(driver_code::kInvalidContext);
  const auto imported = device->Import(ticket);
  REQUIRE(!imported);
  CHECK(imported.error().code() == ErrorCode::kUnsupported);
  CHECK_THAT(imported.error().message(),
             ContainsSubstring("cuIpcOpenMemHandle: CUDA_ERROR_INVALID_CONTEXT"));
  CHECK_THAT(imported.error().message(), ContainsSubstring("containers"));

  for (const DriverCode code : {driver_code::kPeerAccessUnsupported, driver_code::kTooManyPeers}) {
    gpu->RefuseImports(code);
    const auto unreached = device->Import(ticket);
    REQUIRE(!unreached);
    CHECK(unreached.error().code() == ErrorCode::kUnsupported);
    CHECK_THAT(unreached.error().message(), ContainsSubstring("cuIpcOpenMemHandle: CUDA_ERROR_"));
    CHECK_THAT(unreached.error().message(),
               ContainsSubstring("GPU 0 has no access to the GPU of the memory: the host has no"));
  }

  gpu->RefuseImports(driver_code::kOutOfMemory);
  CHECK(device->Import(ticket).error().code() == ErrorCode::kResourceExhausted);
  ticket.size_bytes = 0;
  CHECK(device->Import(ticket).error().code() == ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace lmdbio::device
