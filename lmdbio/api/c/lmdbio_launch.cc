// The calls that open a handle for all ranks of a launcher, without MPI.
#include "lmdbio/api/c/launch_group.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/api/c/c_struct.h"
#include "lmdbio/api/c/handles.h"
#include "lmdbio/api/c/lmdbio_sync.h"
#include "lmdbio/api/c/sync_handles.h"
#include "lmdbio/ranks/launcher/launched_group.h"
#include "lmdbio/ranks/linked/meeting_place.h"

namespace lmdbio::api {
namespace {

// The status of a callback, which may be any number.
tl::unexpected<Error> CallbackFailed(std::string_view call, const std::string& key, int status) {
  return Fail(ErrorCode::kIo, fmt::format("launch.{}(\"{}\") of the program has failed with {}",
                                          call, key, status));
}

ranks::KeyValueStore StoreOf(const lmdbio_launch& launch) {
  return {.set = [set = launch.set, context = launch.context](const std::string& key,
                                                              Bytes value) -> Status {
            const int status = set(context, key.c_str(), value.data(), value.size());
            if (status == LMDBIO_OK) return {};
            return CallbackFailed("set", key, status);
          },
          .get = [get = launch.get, context = launch.context](
                     const std::string& key) -> Result<std::optional<std::vector<std::byte>>> {
            std::vector<std::byte> value(ranks::kMeetingEntryBytesMax);
            size_t value_bytes = 0;
            const int status = get(context, key.c_str(), value.data(), value.size(), &value_bytes);
            if (status == LMDBIO_NOT_FOUND) return std::nullopt;
            if (status != LMDBIO_OK || value_bytes > value.size()) {
              return CallbackFailed("get", key, status);
            }
            value.resize(value_bytes);
            return value;
          }};
}

Result<lmdbio_launch> CompleteLaunch(const lmdbio_launch* launch) {
  LMDBIO_TRY(const lmdbio_launch from, CompleteStruct("launch", "LMDBIO_LAUNCH_INIT", launch));
  if (from.set == nullptr || from.get == nullptr) {
    return Fail(ErrorCode::kInvalidArgument,
                "launch.set or launch.get is NULL; pass NULL in place of the struct to take the "
                "ranks from the environment");
  }
  if (from.rank_count < 1 || from.rank < 0 || from.rank >= from.rank_count) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("launch.rank is {}, and launch.rank_count {}: ranks are numbered from 0",
                    from.rank, from.rank_count));
  }
  return from;
}

ranks::Launch LaunchIn(const lmdbio_launch& from) {
  ranks::Launch launch;
  launch.rank = from.rank;
  launch.size = from.rank_count;
  launch.meeting = from.meeting;
  if (from.limit_ms > 0) launch.limit = std::chrono::milliseconds(from.limit_ms);
  return launch;
}

// Writes as much of `text` as fits, with a zero at its end.
void CopyText(const std::string& text, char* to, size_t to_bytes) {
  if (to == nullptr || to_bytes == 0) return;
  const size_t count = std::min(text.size(), to_bytes - 1);
  std::memcpy(to, text.data(), count);
  to[count] = 0;
}

}  // namespace

Result<ranks::Launch> LaunchOf(const lmdbio_launch* launch) {
  if (launch == nullptr) return ranks::ReadLaunch();
  LMDBIO_TRY(const lmdbio_launch from, CompleteLaunch(launch));
  return LaunchIn(from);
}

Result<std::unique_ptr<ranks::Group>> GroupOf(const lmdbio_launch* launch) {
  if (launch == nullptr) {
    // The meetings are counted on all ranks, also those that fail here.
    const uint64_t meeting = ranks::NextMeetingNumber();
    LMDBIO_TRY(ranks::Launch from, ranks::ReadLaunch());
    from.meeting = meeting;
    return ranks::LaunchedGroup(from);
  }
  LMDBIO_TRY(const lmdbio_launch from, CompleteLaunch(launch));
  return ranks::LaunchedGroup(LaunchIn(from), StoreOf(from));
}

}  // namespace lmdbio::api

using namespace lmdbio;       // NOLINT: the calls translate between C and C++
using namespace lmdbio::api;  // NOLINT

int lmdbio_launch_rank(const lmdbio_launch* launch, int* out_rank, int* out_rank_count,
                       char* message, size_t message_bytes) {
  return Guarded(nullptr, [&]() -> int {
    const Result<ranks::Launch> found = LaunchOf(launch);
    CopyText(found ? "" : found.error().message(), message, message_bytes);
    if (!found) return static_cast<int>(found.error().code());
    if (out_rank != nullptr) *out_rank = found->rank;
    if (out_rank_count != nullptr) *out_rank_count = found->size;
    return LMDBIO_OK;
  });
}

int lmdbio_open_launched(const lmdbio_launch* launch, const char* path,
                         const lmdbio_options* options, lmdbio_loader** out_loader) {
  return Guarded(nullptr, [&] {
    auto group = GroupOf(launch);
    return OpenInGroup(group, path, options, out_loader);
  });
}

int lmdbio_open_launched_files(const lmdbio_launch* launch, const lmdbio_files* files,
                               const lmdbio_options* options, lmdbio_loader** out_loader) {
  return Guarded(nullptr, [&] {
    auto group = GroupOf(launch);
    return OpenInGroup(group, files, options, out_loader);
  });
}

int lmdbio_sync_open_launched(const lmdbio_launch* launch, const lmdbio_sync_options* options,
                              lmdbio_sync** out_sync) {
  return Guarded(nullptr, [&] {
    auto group = GroupOf(launch);
    return OpenSyncInGroup(group, options, /*maker=*/{}, out_sync);
  });
}
