// lmdbio/ranks/health/health.h - detects that a rank which others wait for has failed.
#ifndef LMDBIO_RANKS_HEALTH_HEALTH_H_
#define LMDBIO_RANKS_HEALTH_HEALTH_H_

#include <chrono>
#include <string>
#include <string_view>

#include "lmdbio/base/status.h"

namespace lmdbio::ranks {

// A rank that waits for a peer calls Check at least this often.
constexpr auto kHealthNap = std::chrono::milliseconds(100);

// The longest time between two checks that counts as silence of the peers. After a longer pause of
// this rank itself, the peers may have been stopped with it.
constexpr auto kLookMax = std::chrono::milliseconds(600);

// Returns the failure text of a rank that has been silent for `silence`.
std::string WordsOfSilence(std::string_view name, std::chrono::nanoseconds silence);

// Threads: any.
class Health {
 public:
  virtual ~Health() = default;

  // Looks for a failed rank, and gives a sign of life of this rank.
  // Errors: kPeerFailed  a rank has ended, has been silent for too long, or has given up; names it
  virtual Status Check() = 0;

  // Records that this rank stops because of `why`: Check fails on the peers with this text. The
  // first recorded failure stays.
  virtual void GiveUp(const Error& why) = 0;
};

// The health of a rank without peers: it never fails.
class SoloHealth final : public Health {
 public:
  Status Check() override { return {}; }
  void GiveUp(const Error&) override {}
};

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_HEALTH_HEALTH_H_
