// lmdbio/ranks/launcher/meeting_host.h - the thread of rank 0 that brings the ranks of a job
// together.
//
// It listens at a port that all ranks know. Each rank, rank 0 too, is a guest and stays connected
// until all have found each other. So the host notices a guest that dies, and tells all others.
//
// Source: docs/launchers.md "The meeting".
#ifndef LMDBIO_RANKS_LAUNCHER_MEETING_HOST_H_
#define LMDBIO_RANKS_LAUNCHER_MEETING_HOST_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/unique_fd.h"
#include "lmdbio/ranks/launcher/launch.h"
#include "lmdbio/ranks/launcher/meeting_frame.h"
#include "lmdbio/ranks/net/peer_door.h"

namespace lmdbio::ranks {

// Threads: made and destroyed in one; works in a thread of its own.
class MeetingHost {
 public:
  // Listens at the first free port of `launch`. A host that is called localhost, or by an address
  // of the loopback, is not reachable from elsewhere.
  // Errors: kIo                 no port is free; names the ports and the reason
  //         kResourceExhausted  no descriptor, no thread
  //         kUnsupported        the system refuses random numbers for the key of the job
  static Result<std::unique_ptr<MeetingHost>> Open(const Launch& launch);

  // Sends what is still to be sent, for a second at most, and closes all connections. After a
  // failure, it tells it to ranks that come late, for 5 s at most.
  ~MeetingHost();
  MeetingHost(const MeetingHost&) = delete;
  MeetingHost& operator=(const MeetingHost&) = delete;

  uint16_t port() const { return port_; }

 private:
  using Clock = std::chrono::steady_clock;

  static constexpr size_t kStrangersMax = 128;

  struct Guest {
    MeetingConnection connection;
    std::vector<std::byte> entry;
    std::vector<int32_t> wanted;
    bool has_come = false;
    bool has_left = false;
  };
  struct UnknownGuest {
    MeetingConnection connection;
    Clock::time_point until;
  };

  MeetingHost(const Launch& launch, UniqueFd listener, uint16_t port);
  void Run();
  void SayLastWords();
  bool has_words_left() const;
  void Wait(Clock::time_point now);
  void AcceptStrangers(Clock::time_point now);
  void ServeStrangers(Clock::time_point now);
  void Welcome(UnknownGuest& stranger, const MeetingMessage& hello);
  void ServeGuests();
  void SendEntries(Guest& guest);
  void FailAll(ErrorCode code, const std::string& words);
  std::string WordsOfMissing() const;

  Launch launch_;
  UniqueFd listener_;
  uint16_t port_;
  JobKey key_{};
  UniqueFd stop_event_;
  // Used by the thread.
  std::vector<Guest> guests_;  // [size]
  std::deque<UnknownGuest> strangers_;
  size_t come_count_ = 0;
  std::optional<Error> failure_;
  Clock::time_point until_;
  std::thread thread_;
};

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_LAUNCHER_MEETING_HOST_H_
