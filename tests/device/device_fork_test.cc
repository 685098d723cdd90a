// A child of fork() has no threads of its parent, and a mutex that one of them held stays locked in
// the child. So the objects of a device take no mutex there.

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>

#include "lmdbio/device/device.h"
#include "tests/device/emulated_device.h"
#include "tests/support/catch.h"

namespace lmdbio::device {
namespace {

using test::EmulatedGpu;
using test::Good;
using test::SharedBytes;

// Runs `body` all the time, so that most forks meet it.
class BusyThread {
 public:
  template <typename Body>
  explicit BusyThread(Body body)
      : thread_([this, body] {
          while (!is_over_) body();
        }) {}
  ~BusyThread() {
    is_over_ = true;
    thread_.join();
  }
  BusyThread(const BusyThread&) = delete;
  BusyThread& operator=(const BusyThread&) = delete;

 private:
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

// Whether a child ends well, and before an alarm.
template <typename Check>
bool IsRightInChild(Check&& check) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    ::_exit(check() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_CASE("A child of fork() waits for no mutex of its parent", "[device_fork]") {
  const EmulatedGpu gpu;
  const SharedBytes host(4096);
  const auto device = gpu.Open();
  auto memory = std::make_unique<DeviceMemory>(Good(device->Allocate(64)));
  auto pinned = std::make_unique<PinnedBytes>(Good(device->Pin(host.bytes())));
  const void* const of_pinned = host.bytes().data();
  const BusyThread of_cache([&] { (void)device->Describe(of_pinned); });
  const BusyThread of_context([&] { (void)device->release_failure(); });
  for (int round = 0; round < 200; ++round) {
    INFO("fork " << round);
    REQUIRE(IsRightInChild([&] {
      const bool is_refused = !device->Describe(of_pinned) && device->release_failure();
      pinned.reset();
      memory.reset();
      return is_refused;
    }));
  }
}

}  // namespace
}  // namespace lmdbio::device
