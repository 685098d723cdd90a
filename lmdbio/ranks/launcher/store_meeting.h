// lmdbio/ranks/launcher/store_meeting.h - a meeting in a key-value store that the program has.
//
// torch.distributed has such a store, which all ranks reach. The store needs only to set a value
// and to look for one; nothing waits in it, because a wait that times out breaks some stores.
#ifndef LMDBIO_RANKS_LAUNCHER_STORE_MEETING_H_
#define LMDBIO_RANKS_LAUNCHER_STORE_MEETING_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/ranks/launcher/launch.h"
#include "lmdbio/ranks/linked/meeting_place.h"

namespace lmdbio::ranks {

// Called in the thread that makes the group.
struct KeyValueStore {
  // value  [at most 4,096 bytes]
  std::function<Status(const std::string& key, Bytes value)> set;
  // Returns at once: the value, or nothing if no rank has set the key.
  std::function<Result<std::optional<std::vector<std::byte>>>(const std::string& key)> get;
};

// Keys begin with "lmdbio/" and launch.meeting; they stay in the store.
// launch  rank, size, meeting and limit count
std::unique_ptr<MeetingPlace> MakeStoreMeeting(const Launch& launch, KeyValueStore store);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_LAUNCHER_STORE_MEETING_H_
