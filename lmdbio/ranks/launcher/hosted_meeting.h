// lmdbio/ranks/launcher/hosted_meeting.h - a meeting at a port of rank 0.
#ifndef LMDBIO_RANKS_LAUNCHER_HOSTED_MEETING_H_
#define LMDBIO_RANKS_LAUNCHER_HOSTED_MEETING_H_

#include <memory>

#include "lmdbio/base/status.h"
#include "lmdbio/ranks/launcher/launch.h"
#include "lmdbio/ranks/linked/meeting_place.h"

namespace lmdbio::ranks {

// Makes the place of this rank. Rank 0 begins to listen; Exchange connects to it, within the limit.
// Errors: kIo, kResourceExhausted  rank 0 cannot listen; see MeetingHost::Open
Result<std::unique_ptr<MeetingPlace>> OpenHostedMeeting(const Launch& launch);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_LAUNCHER_HOSTED_MEETING_H_
