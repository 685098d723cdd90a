// lmdbio/ranks/health/health.h - whether the ranks that one waits for can still come.
#ifndef LMDBIO_RANKS_HEALTH_HEALTH_H_
#define LMDBIO_RANKS_HEALTH_HEALTH_H_

#include <chrono>
#include <string>
#include <string_view>

#include "lmdbio/base/status.h"

namespace lmdbio::ranks {

// Who sleeps for a peer looks here at least this often.
constexpr auto kHealthNap = std::chrono::milliseconds(100);

// A pause of this rank's own, longer than this, says nothing about the others: they may have been
// stopped with it.
constexpr auto kLookMax = std::chrono::milliseconds(600);

// What is said of a rank that has been silent for so long.
std::string WordsOfSilence(std::string_view name, std::chrono::nanoseconds silence);

// Threads: any.
class Health {
 public:
  virtual ~Health() = default;

  // Says that this rank lives, too.
  // Errors: kPeerFailed  a rank has ended, has been silent for too long, or has given up; names it
  virtual Status Check() = 0;

  // Tells the peers that this rank does not go on: their Check fails with these words. The first
  // failure stays.
  virtual void GiveUp(const Error& why) = 0;
};

// Of a rank that has no peers.
class SoloHealth final : public Health {
 public:
  Status Check() override { return {}; }
  void GiveUp(const Error&) override {}
};

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_HEALTH_HEALTH_H_
