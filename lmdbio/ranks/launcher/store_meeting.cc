// The keys of meeting M:
//
//   lmdbio/M/job      the key of the job and the number of ranks, of rank 0
//   lmdbio/M/rank/R   the entry of rank R
//   lmdbio/M/failure  the reason of a rank that gave up, in words
#include "lmdbio/ranks/launcher/store_meeting.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/ranks/net/job_addresses.h"

namespace lmdbio::ranks {
namespace {

using Clock = std::chrono::steady_clock;
using Value = std::optional<std::vector<std::byte>>;

// Looks are rarer the longer they are in vain, so many ranks do not overload the store.
constexpr auto kLookPauseMin = std::chrono::milliseconds(1);
constexpr auto kLookPauseMax = std::chrono::milliseconds(250);
constexpr auto kStoreCheckPeriod = std::chrono::milliseconds(500);
// A rank that tells who is missing looks for each of the others.
constexpr size_t kMissingNamedMax = 16;

struct JobValue {
  JobKey key{};
  int32_t size = 0;
};
static_assert(std::is_trivially_copyable_v<JobValue>);

class StoreMeeting final : public MeetingPlace {
 public:
  StoreMeeting(const Launch& launch, KeyValueStore store)
      : launch_(launch), store_(std::move(store)), until_(Clock::now() + launch.limit) {}

  Result<MeetingResult> Exchange(Bytes mine, std::span<const int> wanted) override {
    MeetingResult result;
    if (launch_.rank == 0) {
      LMDBIO_TRY(const JobKey key, DrawJobKey());
      const JobValue job{key, launch_.size};
      LMDBIO_TRY_VOID(Set("job", std::as_bytes(std::span(&job, 1))));
    }
    LMDBIO_TRY_VOID(Set(RankKey(launch_.rank), mine));
    LMDBIO_TRY(const auto value, Await("job"));
    JobValue job;
    if (value.size() != sizeof job) {
      return Fail(ErrorCode::kInternal, "the store returns another value than rank 0 has set");
    }
    std::memcpy(&job, value.data(), sizeof job);
    if (job.size != launch_.size) return OtherSize(launch_.size, job.size);
    result.key = job.key;
    for (const int rank : wanted) {
      LMDBIO_TRY(auto entry, Await(RankKey(rank)));
      result.entries.push_back(std::move(entry));
    }
    return result;
  }

  Status Check() override {
    const auto now = Clock::now();
    if (now < next_check_) return {};
    next_check_ = now + kStoreCheckPeriod;
    LMDBIO_TRY(const Value failure, Get("failure"));
    if (!failure) return {};
    is_told_ = true;
    return Fail(ErrorCode::kPeerFailed,
                std::string(reinterpret_cast<const char*>(failure->data()), failure->size()));
  }

  void GiveUp(const Error& why) override {
    if (is_told_) return;
    is_told_ = true;
    const std::string words = WordsForOthers(launch_.rank, why);
    static_cast<void>(Set("failure", std::as_bytes(std::span(words))));
  }

  void Finish() override {}

 private:
  static std::string RankKey(int rank) { return fmt::format("rank/{}", rank); }

  std::string FullKey(const std::string& key) const {
    return fmt::format("lmdbio/{}/{}", launch_.meeting, key);
  }
  Status Set(const std::string& key, Bytes value) {
    return store_.set(FullKey(key), value.first(std::min(value.size(), kMeetingEntryBytesMax)));
  }
  Result<Value> Get(const std::string& key) { return store_.get(FullKey(key)); }

  Result<std::vector<std::byte>> Await(const std::string& key) {
    auto pause = kLookPauseMin;
    while (true) {
      LMDBIO_TRY(Value value, Get(key));
      if (value) return std::move(*value);
      LMDBIO_TRY_VOID(Check());
      if (Clock::now() >= until_) return Missing();
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, kLookPauseMax);
    }
  }

  tl::unexpected<Error> Missing() {
    std::vector<int> missing;
    for (int rank = 0; rank < launch_.size && missing.size() < kMissingNamedMax; ++rank) {
      const Result<Value> value = Get(RankKey(rank));
      if (value && !*value) missing.push_back(rank);
    }
    return Fail(ErrorCode::kPeerFailed,
                fmt::format("{} not come to the meeting in the store within {} s: all ranks must "
                            "make the same calls, and have the same number of ranks, {}",
                            missing.empty()
                                ? "some ranks have"
                                : NamesOfRanks(missing) + (missing.size() == 1 ? " has" : " have"),
                            std::chrono::duration<double>(launch_.limit).count(), launch_.size));
  }

  Launch launch_;
  KeyValueStore store_;
  Clock::time_point until_;
  Clock::time_point next_check_{};
  bool is_told_ = false;  // a failure is in the store
};

}  // namespace

std::unique_ptr<MeetingPlace> MakeStoreMeeting(const Launch& launch, KeyValueStore store) {
  return std::make_unique<StoreMeeting>(launch, std::move(store));
}

}  // namespace lmdbio::ranks
