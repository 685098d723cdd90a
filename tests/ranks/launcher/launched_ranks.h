// tests/ranks/launcher/launched_ranks.h - ranks that meet as a launcher's do, played by threads.
#ifndef LMDBIO_TESTS_RANKS_LAUNCHER_LAUNCHED_RANKS_H_
#define LMDBIO_TESTS_RANKS_LAUNCHER_LAUNCHED_RANKS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/launcher/launch.h"
#include "lmdbio/ranks/launcher/store_meeting.h"

namespace lmdbio::test {

// A key-value store of this process.
class MemoryStore {
 public:
  ranks::KeyValueStore Handle();

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<std::byte>> values_;
};

// `count` ports in a row that are free now.
uint16_t FreePorts(uint16_t count);

// The launch of a rank that meets at a port of this host.
ranks::Launch LaunchAt(uint16_t port, int rank, int size,
                       std::chrono::milliseconds limit = std::chrono::seconds(60));

enum class MeetingKind { kHosted, kStore };

// Runs `body` for each rank in a thread of its own, with the result of its meeting.
using LaunchedBody = std::function<void(int rank, Result<std::unique_ptr<ranks::Group>> group)>;
void RunLaunched(MeetingKind kind, int size, const LaunchedBody& body);

// Runs `body` in a thread for each of `count`, and waits for all.
void InThreads(int count, const std::function<void(int index)>& body);

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_RANKS_LAUNCHER_LAUNCHED_RANKS_H_
