// lmdbio/ranks/launcher/meeting_frame.h - the messages between rank 0, which hosts a meeting, and
// its guests.
#ifndef LMDBIO_RANKS_LAUNCHER_MEETING_FRAME_H_
#define LMDBIO_RANKS_LAUNCHER_MEETING_FRAME_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "lmdbio/base/types.h"
#include "lmdbio/base/unique_fd.h"
#include "lmdbio/ranks/linked/meeting_place.h"

namespace lmdbio::ranks {

// The kind of a message, and the bytes behind its head.
enum class MeetingWord : uint32_t {
  // Of a guest.
  kHello = 1,   // a GuestIntroduction, its entry, and the ranks that it wants as int32_t
  kGiveUp = 2,  // the reason, in words
  kLeave = 3,   // nothing; the guest is connected
  // Of the host.
  kComeIn = 16,        // nothing; the guest is expected
  kOtherJob = 17,      // nothing
  kOtherSize = 18,     // value: the number of ranks that the host expects
  kTwice = 19,         // nothing; another guest has the number of this one
  kOtherMeeting = 20,  // value: the number of the meeting of the host
  kEntries = 21,       // a JobKey, and for each wanted rank the length as uint32_t and the entry
  kFailure = 22,       // value: an ErrorCode; the reason, in words
  kAllMet = 23,        // nothing; the host is not needed any more, and leaves
};

// All ranks run one version of the program, so heads travel as the bytes of this struct. The magic
// number differs between versions.
struct MeetingHead {
  static constexpr std::array<char, 8> kMagic = {'L', 'M', 'D', 'B', 'M', 'E', 'T', '1'};
  std::array<char, 8> magic = kMagic;
  MeetingWord word{};
  uint32_t bytes = 0;  // behind the head
  uint64_t value = 0;
};
static_assert(std::is_trivially_copyable_v<MeetingHead>);

struct GuestIntroduction {
  uint64_t job = 0;
  uint64_t meeting = 0;
  int32_t rank = -1;
  int32_t size = 0;
  uint32_t entry_bytes = 0;
  uint32_t wanted_count = 0;
};
static_assert(std::is_trivially_copyable_v<GuestIntroduction>);

// The body of a kHello.
struct GuestHello {
  GuestIntroduction said;        // the counts are those of the members below
  std::vector<std::byte> entry;  // [at most kMeetingEntryBytesMax]
  std::vector<int32_t> wanted;   // [at most kMeetingWantedMax] any numbers
};
std::vector<std::byte> EncodeHello(GuestIntroduction said, Bytes entry,
                                   std::span<const int> wanted);
// Nothing: the sender speaks no such protocol.
std::optional<GuestHello> DecodeHello(Bytes body);

// The body of a kEntries.
std::vector<std::byte> EncodeEntries(const JobKey& key,
                                     std::span<const std::vector<std::byte>> entries);
// wanted_count  the number of entries
// Nothing: it is cut off, or has other lengths.
std::optional<MeetingResult> DecodeEntries(Bytes body, size_t wanted_count);

struct MeetingMessage {
  MeetingHead head;
  std::vector<std::byte> body;
  std::string text() const { return {reinterpret_cast<const char*>(body.data()), body.size()}; }
};

// One end of a connection between the host and a guest. Never waits.
class MeetingConnection {
 public:
  // Longer messages are those of a foreign program.
  static constexpr uint32_t kBodyBytesMax = 1 << 20;

  MeetingConnection() = default;
  explicit MeetingConnection(UniqueFd socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }
  bool is_open() const { return static_cast<bool>(socket_); }
  // Closed by the other side, broken, or not speaking this protocol.
  bool is_broken() const { return is_broken_; }
  bool has_unsent() const { return !out_.empty() && !is_broken_; }

  // Sends as much as there is room for; Flush sends the rest.
  void Send(MeetingWord word, uint64_t value, Bytes body);
  void Send(MeetingWord word, uint64_t value = 0) { Send(word, value, {}); }
  void Flush();

  // The next message, if it has come as a whole.
  std::optional<MeetingMessage> Receive();

  void Close() { socket_ = UniqueFd(); }

 private:
  void ReadMore();

  UniqueFd socket_;
  std::vector<std::byte> out_;
  std::vector<std::byte> in_;
  bool is_broken_ = false;
};

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_LAUNCHER_MEETING_FRAME_H_
