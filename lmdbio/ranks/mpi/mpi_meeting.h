// lmdbio/ranks/mpi/mpi_meeting.h - the ranks of an MPI communicator find each other.
//
// MPI carries the addresses of the ranks, once. From then on the ranks talk over links of their own
// and watch each other, because MPI waits for a dead rank for ever. No call here waits in MPI: each
// tests a request until its time is over.
//
// Source: docs/deadlines.md.
#ifndef LMDBIO_RANKS_MPI_MPI_MEETING_H_
#define LMDBIO_RANKS_MPI_MPI_MEETING_H_

#include <chrono>
#include <string>
#include <vector>

#include <mpi.h>

#include "lmdbio/base/status.h"
#include "lmdbio/ranks/linked/meeting_place.h"

namespace lmdbio::ranks {

// Collective. A duplicate of `communicator`, whose failures are return codes.
// limit  how long the other ranks may take to come
// Errors: kPeerFailed  not all ranks have come in time. kInternal  MPI failed, with its message
Result<MPI_Comm> DuplicateWithin(MPI_Comm communicator, std::chrono::milliseconds limit);

// The result of a rank's attempt to connect to the others.
enum class MeetingEnd : int32_t {
  kConnected = 0,
  kNoLinks = 1,  // the ranks cannot reach each other, or not listen
  kFailed = 2,
};

class MpiMeeting final : public MeetingPlace {
 public:
  // communicator  of lmdbio alone; borrowed
  MpiMeeting(MPI_Comm communicator, std::chrono::milliseconds limit)
      : communicator_(communicator), limit_(limit) {}

  Result<MeetingResult> Exchange(Bytes mine, std::span<const int> wanted) override;
  Status Check() override { return {}; }
  void GiveUp(const Error& /*why*/) override {}
  void Finish() override {}

  // The end that all ranks have, and its words.
  struct CommonEnd {
    MeetingEnd end = MeetingEnd::kConnected;  // the worst
    std::string words;                        // of the lowest rank with that end
  };
  // Collective, after Exchange. All ranks learn how the others have ended.
  // Errors: as DuplicateWithin
  Result<CommonEnd> AgreeOnEnd(const Status& connected);

 private:
  MPI_Comm communicator_;
  std::chrono::milliseconds limit_;
};

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_MPI_MPI_MEETING_H_
