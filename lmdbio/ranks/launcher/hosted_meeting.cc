// A guest tries the ports of the meeting one after another, until the host of its own job answers.
// Other programs and other jobs may listen at some of them. It begins again after the last one,
// because rank 0 may start later.
#include "lmdbio/ranks/launcher/hosted_meeting.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lmdbio/ranks/launcher/meeting_frame.h"
#include "lmdbio/ranks/launcher/meeting_host.h"
#include "lmdbio/ranks/net/link_socket.h"
#include "lmdbio/ranks/net/peer_address.h"

namespace lmdbio::ranks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kAnswerLimit = std::chrono::seconds(3);  // of one port, to the first answer
constexpr auto kPauseMin = std::chrono::milliseconds(20);
constexpr auto kPauseMax = std::chrono::milliseconds(500);

// Sleeps until the connection has something to read, or room to send; false after the limit.
bool Await(const MeetingConnection& connection, Clock::time_point until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
  if (left.count() <= 0) return false;
  pollfd polled{connection.fd(),
                static_cast<short>(connection.has_unsent() ? POLLIN | POLLOUT : POLLIN), 0};
  ::poll(&polled, 1, static_cast<int>(std::min<int64_t>(left.count(), 60'000)));
  return true;
}

class HostedMeeting final : public MeetingPlace {
 public:
  HostedMeeting(const Launch& launch, std::unique_ptr<MeetingHost> host)
      : launch_(launch), host_(std::move(host)) {}

  // The connection ends before the host, which may be in this process.
  ~HostedMeeting() override { connection_.Close(); }

  Result<MeetingResult> Exchange(Bytes mine, std::span<const int> wanted) override;
  Status Check() override;
  void GiveUp(const Error& why) override;
  void Finish() override;

 private:
  std::string Place() const;
  std::vector<std::byte> Hello(Bytes mine, std::span<const int> wanted) const;
  Status Arrive(Bytes hello);
  Result<bool> TryAllPorts(Bytes hello, Clock::time_point until);
  Result<bool> TryPort(const PeerAddress& address, Bytes hello, Clock::time_point until);
  Result<bool> Heard(const MeetingMessage& answer, uint16_t port);
  tl::unexpected<Error> HostIsGone() const;
  static tl::unexpected<Error> FailureOf(const MeetingMessage& message);

  Launch launch_;
  std::unique_ptr<MeetingHost> host_;  // on rank 0
  MeetingConnection connection_;
  bool have_all_met_ = false;
  std::string trouble_ = "no answer";  // of the last port
};

std::string HostedMeeting::Place() const {
  return launch_.port_count == 1
             ? fmt::format("{} port {}", launch_.host, launch_.first_port)
             : fmt::format("{} ports {} to {}", launch_.host, launch_.first_port,
                           launch_.first_port + launch_.port_count - 1);
}

std::vector<std::byte> HostedMeeting::Hello(Bytes mine, std::span<const int> wanted) const {
  return EncodeHello(
      {.job = launch_.job, .meeting = launch_.meeting, .rank = launch_.rank, .size = launch_.size},
      mine, wanted);
}

// Whether the host of this meeting has welcomed the guest. False: the next port, or a later try.
Result<bool> HostedMeeting::Heard(const MeetingMessage& answer, uint16_t port) {
  const uint64_t value = answer.head.value;
  switch (answer.head.word) {
    case MeetingWord::kComeIn:
      return true;
    case MeetingWord::kOtherSize:
      return OtherSize(launch_.size, static_cast<int>(value));
    case MeetingWord::kTwice:
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("rank {} has come to the meeting at {} port {} before: two processes "
                              "have this number, or two jobs meet there; set LMDBIO_MEETING to "
                              "another HOST:PORT for one of the jobs",
                              launch_.rank, launch_.host, port));
    case MeetingWord::kOtherMeeting:
      trouble_ = fmt::format(
          "rank 0 is at its meeting number {}, this rank at number {}: ranks "
          "must make the same calls",
          value, launch_.meeting);
      if (value > launch_.meeting) return Fail(ErrorCode::kInvalidArgument, trouble_);
      return false;  // rank 0 may come to this one later
    case MeetingWord::kOtherJob:
      trouble_ = fmt::format(
          "another job meets at port {}, or this rank has another TORCHELASTIC_RUN_ID, "
          "SLURM_JOB_ID, SLURM_STEP_ID, MASTER_PORT or LMDBIO_JOB_SECRET than rank 0",
          port);
      if (launch_.port_count == 1) return Fail(ErrorCode::kInvalidArgument, trouble_);
      return false;
    default:
      trouble_ = fmt::format("a foreign program listens at port {}", port);
      return false;
  }
}

Result<bool> HostedMeeting::TryPort(const PeerAddress& address, Bytes hello,
                                    Clock::time_point until) {
  Result<UniqueFd> socket = BeginConnect(address);
  if (!socket) {
    trouble_ = socket.error().message();
    return false;
  }
  MeetingConnection connection(std::move(*socket));
  connection.Send(MeetingWord::kHello, 0, hello);
  until = std::min(until, Clock::now() + kAnswerLimit);
  while (!connection.is_broken() && Await(connection, until)) {
    connection.Flush();
    const std::optional<MeetingMessage> answer = connection.Receive();
    if (!answer) continue;
    LMDBIO_TRY(const bool is_welcome, Heard(*answer, address.port));
    if (is_welcome) connection_ = std::move(connection);
    return is_welcome;
  }
  trouble_ = connection.is_broken() ? fmt::format("port {} refuses the connection", address.port)
                                    : fmt::format("no answer from port {}", address.port);
  return false;
}

Result<bool> HostedMeeting::TryAllPorts(Bytes hello, Clock::time_point until) {
  Result<std::vector<PeerAddress>> addresses = ResolveHost(launch_.host);
  if (!addresses) {
    trouble_ = addresses.error().message();
    return false;
  }
  // Rank 0 itself knows its port. Its host may not be called what the others call it.
  if (host_) addresses = LoopbackAddresses();
  const uint16_t count = host_ ? uint16_t{1} : launch_.port_count;
  for (uint16_t i = 0; i < count; ++i) {
    for (PeerAddress address : *addresses) {
      address.port = host_ ? host_->port() : static_cast<uint16_t>(launch_.first_port + i);
      LMDBIO_TRY(const bool is_welcome, TryPort(address, hello, until));
      if (is_welcome) return true;
      if (Clock::now() >= until) return false;
    }
  }
  return false;
}

Status HostedMeeting::Arrive(Bytes hello) {
  const auto until = Clock::now() + launch_.limit;
  auto pause = kPauseMin;
  while (true) {
    LMDBIO_TRY(const bool is_welcome, TryAllPorts(hello, until));
    if (is_welcome) return {};
    const auto now = Clock::now();
    if (now >= until) break;
    std::this_thread::sleep_for(std::min<Clock::duration>(pause, until - now));
    pause = std::min(2 * pause, kPauseMax);
  }
  return Fail(ErrorCode::kIo,
              fmt::format("rank 0 of this job cannot be found at {} within {} s ({}): see whether "
                          "rank 0 is running there, or set LMDBIO_MEETING to a HOST:PORT that all "
                          "ranks can reach",
                          Place(), std::chrono::duration<double>(launch_.limit).count(), trouble_));
}

tl::unexpected<Error> HostedMeeting::HostIsGone() const {
  return Fail(ErrorCode::kPeerFailed,
              fmt::format("rank 0 has ended during the meeting of the ranks at {}", Place()));
}

tl::unexpected<Error> HostedMeeting::FailureOf(const MeetingMessage& message) {
  // Another number is of no version, and 0 would be success in C.
  const uint64_t code = message.head.value;
  const bool is_known = code >= static_cast<uint64_t>(ErrorCode::kInvalidArgument) &&
                        code <= static_cast<uint64_t>(ErrorCode::kPeerFailed);
  return Fail(is_known ? static_cast<ErrorCode>(code) : ErrorCode::kPeerFailed, message.text());
}

Result<MeetingResult> HostedMeeting::Exchange(Bytes mine, std::span<const int> wanted) {
  LMDBIO_TRY_VOID(Arrive(Hello(mine, wanted)));
  std::optional<MeetingMessage> message;
  while (true) {
    connection_.Flush();
    message = connection_.Receive();
    if (message && message->head.word == MeetingWord::kFailure) return FailureOf(*message);
    if (message && message->head.word == MeetingWord::kEntries) break;
    if (connection_.is_broken()) return HostIsGone();
    // The host has a limit of its own, and tells which ranks are missing.
    Await(connection_, Clock::time_point::max());
  }
  std::optional<MeetingResult> result = DecodeEntries(message->body, wanted.size());
  if (result) return std::move(*result);
  return Fail(ErrorCode::kInternal,
              fmt::format("rank 0 at {} has sent malformed entries", Place()));
}

// The host leaves when rank 0 knows that all ranks are connected, which others may not know yet.
Status HostedMeeting::Check() {
  if (!connection_.is_open() || have_all_met_) return {};
  const std::optional<MeetingMessage> message = connection_.Receive();
  if (message && message->head.word == MeetingWord::kFailure) return FailureOf(*message);
  have_all_met_ = message && message->head.word == MeetingWord::kAllMet;
  if (!have_all_met_ && connection_.is_broken()) return HostIsGone();
  return {};
}

void HostedMeeting::GiveUp(const Error& why) {
  if (!connection_.is_open()) return;
  const std::string words = WordsForOthers(launch_.rank, why);
  connection_.Send(MeetingWord::kGiveUp, 0, std::as_bytes(std::span(words)));
}

void HostedMeeting::Finish() {
  if (connection_.is_open()) connection_.Send(MeetingWord::kLeave);
}

}  // namespace

Result<std::unique_ptr<MeetingPlace>> OpenHostedMeeting(const Launch& launch) {
  std::unique_ptr<MeetingHost> host;
  if (launch.rank == 0) {
    LMDBIO_TRY(host, MeetingHost::Open(launch));
  }
  return std::make_unique<HostedMeeting>(launch, std::move(host));
}

}  // namespace lmdbio::ranks
