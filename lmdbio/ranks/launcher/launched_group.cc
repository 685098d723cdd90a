#include "lmdbio/ranks/launcher/launched_group.h"

#include <atomic>
#include <utility>

#include "lmdbio/ranks/launcher/hosted_meeting.h"
#include "lmdbio/ranks/linked/connected_group.h"
#include "lmdbio/ranks/linked/meeting_place.h"

namespace lmdbio::ranks {
namespace {

MeetingSeat SeatOf(const Launch& launch) { return {launch.rank, launch.size, launch.limit}; }

}  // namespace

Result<std::unique_ptr<Group>> LaunchedGroup(const Launch& launch) {
  if (launch.size == 1) return SoloGroup();
  LMDBIO_TRY(const auto place, OpenHostedMeeting(launch));
  return ConnectedGroup(*place, SeatOf(launch));
}

Result<std::unique_ptr<Group>> LaunchedGroup(const Launch& launch, KeyValueStore store) {
  if (launch.size == 1) return SoloGroup();
  const auto place = MakeStoreMeeting(launch, std::move(store));
  return ConnectedGroup(*place, SeatOf(launch));
}

uint64_t NextMeetingNumber() {
  static std::atomic<uint64_t> next{0};
  return next.fetch_add(1);
}

}  // namespace lmdbio::ranks
