// Device memory, events and marks between processes. Only forked children call the driver, because
// a driver does not survive fork(). The processes share the devices of one file.

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "lmdbio/device/device.h"
#include "tests/device/emulated_device.h"
#include "tests/support/catch.h"
#include "tests/support/check_in_child.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::device {
namespace {

using test::EmulatedGpu;
using test::Good;
using test::kDriver;
using test::SharedBytes;
using test::Verdict;

// The memory that the processes of a test share. The marks have a page of their own, for pinning.
struct SharedPage {
  std::atomic<int> step = 0;
  MemoryTicket memory;
  EventTicket event;
  alignas(4096) std::array<std::byte, 4096> marks = {};
};

// Sets the step that the others wait for.
void Reach(SharedPage& page, int step) { page.step.store(step); }

void AwaitStep(const SharedPage& page, int step) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (page.step.load() < step) {
    if (std::chrono::steady_clock::now() > limit) throw std::runtime_error("no step in time");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

using Part = std::function<Verdict(SharedPage&)>;

// Runs each part in a process of its own, with one file of devices.
void RunTogether(const std::vector<Part>& parts) {
  const test::TempDir folder;
  ::setenv("LMDBIO_EMULATED_GPU", (folder.path() / "devices").c_str(), 1);
  const SharedBytes shared(sizeof(SharedPage));
  SharedPage& page = *new (shared.bytes().data()) SharedPage();
  std::vector<pid_t> children;
  for (const Part& part : parts) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::_exit(static_cast<int>(test::InChild([&] { return part(page); })));
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  }
}

TEST_CASE("A child whose parent has opened no driver may open it", "[device_processes]") {
  test::CheckInChild([] {
    CHILD_CHECK(SystemDriver().has_value());
    return Verdict::kRight;
  });
}

TEST_CASE("Memory and events reach another process by tickets", "[device_processes]") {
  const Part owner = [](SharedPage& page) {
    const EmulatedGpu gpu(3);
    const auto device = gpu.Open();
    const SharedBytes host(4096);
    const PinnedBytes pinned = Good(device->Pin(host.bytes()));
    const DeviceMemory memory = Good(device->Allocate(1000));
    DeviceEvent event = Good(device->MakeEvent(DeviceEventKind::kShared));
    DeviceStream stream = Good(device->MakeStream());
    page.memory = Good(device->Share(memory));
    page.event = Good(device->Share(event));
    test::Write(pinned, std::string(1000, 'x'));
    CHILD_CHECK(stream.CopyIn(memory.begin(), pinned, 0, 1000));
    CHILD_CHECK(stream.Record(event));
    Reach(page, 1);
    AwaitStep(page, 2);  // the other waits for the event before any of this runs
    CHILD_CHECK(stream.Synchronize());
    AwaitStep(page, 3);
    CHILD_CHECK(gpu.Peek(memory.begin(), 1000) == std::string(999, 'x') + "y");
    return Verdict::kRight;
  };
  const Part importer = [](SharedPage& page) {
    AwaitStep(page, 1);
    const EmulatedGpu gpu(4);
    const SharedBytes host(4096);
    {
      const auto device = gpu.Open();
      const PinnedBytes pinned = Good(device->Pin(host.bytes()));
      const DeviceMemory memory = Good(device->Import(page.memory));
      const DeviceEvent event = Good(device->Import(page.event));
      DeviceStream stream = Good(device->MakeStream());
      CHILD_CHECK(memory.is_imported() && memory.size_bytes() == 1000);
      CHILD_CHECK(!device->Share(memory) && !device->Share(event));
      const auto facts =
          Good(device->Describe(reinterpret_cast<const void*>(memory.begin().value + 999)));
      CHILD_CHECK(facts.kind == PointerKind::kDevice && !facts.can_be_shared);
      CHILD_CHECK(stream.Await(event));
      CHILD_CHECK(stream.CopyOut(pinned, 0, memory.begin(), 1000));
      CHILD_CHECK(stream.Fill(memory.begin() + 999, std::byte{'y'}, 1));
      for (int looks = 0; looks < 20; ++looks) CHILD_CHECK(!Good(stream.IsDone()));
      Reach(page, 2);
      CHILD_CHECK(stream.Synchronize());
      CHILD_CHECK(test::Read(pinned, 1000) == std::string(1000, 'x'));
      CHILD_CHECK(gpu->Objects().imports == 1);
      {
        const DeviceMemory again = Good(device->Import(page.memory));
        CHILD_CHECK(again.span() == memory.span());
      }
      CHILD_CHECK(gpu.Peek(memory.begin(), 999) == std::string(999, 'x'));  // still mapped
      const auto still =
          Good(device->Describe(reinterpret_cast<const void*>(memory.begin().value + 999)));
      CHILD_CHECK(still.kind == PointerKind::kDevice && still.range == memory.span());
    }
    CHILD_CHECK(gpu->Objects().total() == 0);
    Reach(page, 3);
    return Verdict::kRight;
  };
  RunTogether({owner, importer});
}

// Shares 64 bytes 'o' of GPU 0, until step 2. Then they are `expected`.
Part OwnerOnFirst(const std::string& expected) {
  return [expected](SharedPage& page) {
    const EmulatedGpu gpu;
    const auto device = gpu.Open(0);
    const DeviceMemory memory = Good(device->Allocate(64));
    DeviceStream stream = Good(device->MakeStream());
    CHILD_CHECK(stream.Fill(memory.begin(), std::byte{'o'}, 64));
    CHILD_CHECK(stream.Synchronize());
    page.memory = Good(device->Share(memory));
    Reach(page, 1);
    AwaitStep(page, 2);
    CHILD_CHECK(gpu.Peek(memory.begin(), 64) == expected);
    return Verdict::kRight;
  };
}

TEST_CASE("A GPU uses memory of another GPU in another process", "[device_processes]") {
  const Part importer = [](SharedPage& page) {
    AwaitStep(page, 1);
    const EmulatedGpu gpu;
    const SharedBytes host(4096);
    {
      const auto device = gpu.Open(1);
      const PinnedBytes pinned = Good(device->Pin(host.bytes()));
      const DeviceMemory memory = Good(device->Import(page.memory));
      DeviceStream stream = Good(device->MakeStream());
      CHILD_CHECK(stream.CopyOut(pinned, 0, memory.begin(), 64));
      CHILD_CHECK(stream.Fill(memory.begin(), std::byte{'i'}, 32));
      CHILD_CHECK(stream.Synchronize());
      CHILD_CHECK(test::Read(pinned, 64) == std::string(64, 'o'));
    }
    CHILD_CHECK(gpu->Objects().total() == 0);
    Reach(page, 2);
    return Verdict::kRight;
  };
  RunTogether({OwnerOnFirst(std::string(32, 'i') + std::string(32, 'o')), importer});
}

TEST_CASE("Memory of a GPU that is not reached is refused by name", "[device_processes]") {
  const Part importer = [](SharedPage& page) {
    ::setenv("LMDBIO_EMULATED_GPU_UNREACHED", "1-0", 1);
    AwaitStep(page, 1);
    const EmulatedGpu gpu;
    {
      const auto device = gpu.Open(1);
      const auto imported = device->Import(page.memory);
      CHILD_CHECK(!imported && imported.error().code() == ErrorCode::kUnsupported);
      const std::string& message = imported.error().message();
      CHILD_CHECK(message.find("CUDA_ERROR_PEER_ACCESS_UNSUPPORTED") != std::string::npos);
      CHILD_CHECK(message.find("GPU 1 has no access to the GPU of") != std::string::npos);
      CHILD_CHECK(gpu->Objects().imports == 0);
      CHILD_CHECK(device->Allocate(64));              // the context goes on
      CHILD_CHECK(gpu.Open(2)->Import(page.memory));  // by a GPU that reaches it
    }
    CHILD_CHECK(gpu->Objects().total() == 0);
    Reach(page, 2);
    return Verdict::kRight;
  };
  RunTogether({OwnerOnFirst(std::string(64, 'o')), importer});
}

TEST_CASE("Each GPU of a process maps memory of another process for itself", "[device_processes]") {
  const Part importer = [](SharedPage& page) {
    AwaitStep(page, 1);
    const EmulatedGpu gpu;
    {
      const auto first = gpu.Open(1);
      const auto second = gpu.Open(2);
      const DeviceMemory of_first = Good(first->Import(page.memory));
      const DeviceMemory of_second = Good(second->Import(page.memory));
      CHILD_CHECK(of_first.begin() != of_second.begin() && gpu->Objects().imports == 2);
      {
        const DeviceMemory again = Good(second->Import(page.memory));
        CHILD_CHECK(again.begin() == of_second.begin());
      }
      DeviceStream stream = Good(second->MakeStream());
      CHILD_CHECK(stream.Fill(of_second.begin(), std::byte{'s'}, 64) && stream.Synchronize());
      CHILD_CHECK(stream.Fill(of_first.begin(), std::byte{'f'}, 64) && !stream.Synchronize());
    }
    Reach(page, 2);
    return Verdict::kRight;
  };
  RunTogether({OwnerOnFirst(std::string(64, 's')), importer});
}

TEST_CASE("Streams of two processes meet at marks", "[device_processes]") {
  const auto rank = [](size_t self) {
    return [self](SharedPage& page) {
      const EmulatedGpu gpu(10 + self);
      const auto device = gpu.Open();
      const PinnedBytes pinned = Good(device->Pin(page.marks));
      const std::vector<DeviceMark> marks = {Good(DeviceMark::In(pinned, 0)),
                                             Good(DeviceMark::In(pinned, 64))};
      DeviceStream stream = Good(device->MakeStream());
      for (uint64_t step = 1; step <= 20; ++step) {
        CHILD_CHECK(stream.Raise(marks[self], step));
        CHILD_CHECK(stream.AwaitAll(test::WaitsFor(marks, step)));
      }
      CHILD_CHECK(stream.Synchronize());
      CHILD_CHECK(marks[0].HasReached(20) && marks[1].HasReached(20));
      return Verdict::kRight;
    };
  };
  RunTogether({rank(0), rank(1)});
}

TEST_CASE("Poison releases a stream whose peer has ended", "[device_processes]") {
  const Part ending = [](SharedPage& page) {
    Reach(page, 1);
    return Verdict::kRight;  // and raises no mark
  };
  const Part survivor = [](SharedPage& page) {
    const EmulatedGpu gpu(5);
    const auto device = gpu.Open();
    const PinnedBytes pinned = Good(device->Pin(page.marks));
    const std::vector<DeviceMark> marks = {Good(DeviceMark::In(pinned, 0))};
    const DeviceMemory memory = Good(device->Allocate(64));
    DeviceStream stream = Good(device->MakeStream());
    CHILD_CHECK(stream.AwaitAll(test::WaitsFor(marks, 1)));
    CHILD_CHECK(stream.Fill(memory.begin(), std::byte{6}, 64));
    AwaitStep(page, 1);
    CHILD_CHECK(!Good(stream.IsDone()));
    marks[0].Poison();
    CHILD_CHECK(stream.Synchronize());
    CHILD_CHECK(gpu.Peek(memory.begin(), 64) == std::string(64, '\6'));
    return Verdict::kRight;
  };
  RunTogether({ending, survivor});
}

TEST_CASE("A ticket of devices in another file is refused", "[device_processes]") {
  const Part owner = [](SharedPage& page) {
    const EmulatedGpu gpu;
    const auto device = gpu.Open();
    const DeviceMemory memory = Good(device->Allocate(64));
    page.memory = Good(device->Share(memory));
    Reach(page, 1);
    AwaitStep(page, 2);
    return Verdict::kRight;
  };
  const Part stranger = [](SharedPage& page) {
    ::unsetenv("LMDBIO_EMULATED_GPU");
    AwaitStep(page, 1);
    const EmulatedGpu gpu;
    const auto imported = gpu.Open()->Import(page.memory);
    CHILD_CHECK(!imported && imported.error().code() == ErrorCode::kUnsupported);
    CHILD_CHECK(gpu->Objects().total() == 0);
    Reach(page, 2);
    return Verdict::kRight;
  };
  RunTogether({owner, stranger});
}

TEST_CASE("A mapping that cannot be closed is told", "[device_processes]") {
  const Part owner = [](SharedPage& page) {
    const EmulatedGpu gpu;
    const auto device = gpu.Open();
    const DeviceMemory memory = Good(device->Allocate(64));
    page.memory = Good(device->Share(memory));
    Reach(page, 1);
    AwaitStep(page, 2);
    return Verdict::kRight;
  };
  const Part importer = [](SharedPage& page) {
    AwaitStep(page, 1);
    const EmulatedGpu gpu;
    const auto device = gpu.Open();
    gpu->FailCall("cuIpcCloseMemHandle", 1, 999);
    { const DeviceMemory memory = Good(device->Import(page.memory)); }
    Reach(page, 2);
    const Status status = device->release_failure();
    CHILD_CHECK(!status && status.error().message() == "GPU 0: cuIpcCloseMemHandle: code 999");
    return Verdict::kRight;
  };
  RunTogether({owner, importer});
}

}  // namespace
}  // namespace lmdbio::device
