// tests/sync/over_device/ranks_on_file.h - ranks that are processes, and share the devices of one
// file.
#ifndef LMDBIO_TESTS_SYNC_OVER_DEVICE_RANKS_ON_FILE_H_
#define LMDBIO_TESTS_SYNC_OVER_DEVICE_RANKS_ON_FILE_H_

#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>

#include "tests/ranks/forked_ranks.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {

class RanksOnFile {
 public:
  // Returns the report of a rank; "" if it found no fault. May throw.
  using Body = std::function<std::string(ranks::Group& group)>;

  // ranks_per_host  neighbours that count as one host; 0: all
  // Requires: this process has not opened the driver
  RanksOnFile(int rank_count, const Body& body, int ranks_per_host = 0)
      : job_(rank_count, ranks_per_host > 0 ? ranks_per_host : rank_count) {
    ::setenv("LMDBIO_EMULATED_GPU", (folder_.path() / "devices").c_str(), 1);
    job_.Start([&](ranks::Group& group, ForkedJob&) -> std::string {
      try {
        return body(group);
      } catch (const std::exception& error) {
        return error.what();
      }
    });
  }

  // A loop over all calls of the driver takes minutes under ThreadSanitizer beside other work.
  std::string EndOf(int rank) { return job_.EndOf(rank, std::chrono::seconds(400)); }
  void Send(int signal, int rank) { job_.Send(signal, rank); }

  // The reports of all ranks, one behind the other.
  std::string Reports() {
    std::string all;
    for (int rank = 0; rank < job_.size(); ++rank) {
      const std::string report = EndOf(rank);
      if (!report.empty()) all += "rank " + std::to_string(rank) + ": " + report + "\n";
    }
    return all;
  }

 private:
  const TempDir folder_;
  ForkedJob job_;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SYNC_OVER_DEVICE_RANKS_ON_FILE_H_
