#include "tests/ranks/launcher/launched_ranks.h"

#include <unistd.h>

#include <optional>
#include <random>
#include <stdexcept>
#include <thread>

#include "lmdbio/ranks/launcher/launched_group.h"
#include "lmdbio/ranks/net/link_socket.h"

namespace lmdbio::test {

ranks::KeyValueStore MemoryStore::Handle() {
  return {.set = [this](const std::string& key, Bytes value) -> Status {
            const std::lock_guard lock(mutex_);
            values_[key].assign(value.begin(), value.end());
            return {};
          },
          .get = [this](const std::string& key) -> Result<std::optional<std::vector<std::byte>>> {
            const std::lock_guard lock(mutex_);
            const auto found = values_.find(key);
            if (found == values_.end()) return std::nullopt;
            return found->second;
          }};
}

// Below the ports of outgoing connections, so that no other test takes one meanwhile.
uint16_t FreePorts(uint16_t count) {
  static std::mt19937 generator(static_cast<uint32_t>(::getpid()));
  for (int i = 0; i < 1000; ++i) {
    const auto first = static_cast<uint16_t>(10000 + generator() % 20000);
    uint16_t free = 0;
    for (; free < count; ++free) {
      ranks::PeerAddress address = ranks::AnyAddressOfV4();
      address.port = static_cast<uint16_t>(first + free);
      if (!ranks::ListenAtPort(address)) break;
    }
    if (free == count) return first;
  }
  throw std::runtime_error("no free ports");
}

ranks::Launch LaunchAt(uint16_t port, int rank, int size, std::chrono::milliseconds limit) {
  ranks::Launch launch;
  launch.rank = rank;
  launch.size = size;
  launch.host = "127.0.0.1";
  launch.first_port = port;
  launch.limit = limit;
  return launch;
}

void InThreads(int count, const std::function<void(int index)>& body) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

void RunLaunched(MeetingKind kind, int size, const LaunchedBody& body) {
  const uint16_t port = kind == MeetingKind::kHosted ? FreePorts(1) : uint16_t{0};
  MemoryStore store;
  InThreads(size, [&](int rank) {
    const ranks::Launch launch = LaunchAt(port, rank, size);
    body(rank, kind == MeetingKind::kHosted ? ranks::LaunchedGroup(launch)
                                            : ranks::LaunchedGroup(launch, store.Handle()));
  });
}

}  // namespace lmdbio::test
