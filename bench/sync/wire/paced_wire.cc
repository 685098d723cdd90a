#include "bench/sync/wire/paced_wire.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "lmdbio/base/check.h"

namespace lmdbio::bench {
namespace {

using PaceClock = std::chrono::steady_clock;
using PaceTime = PacedLink::Time;

// While this thread sleeps the inner wire stands still, so the sleep has parts.
constexpr auto kPacePart = std::chrono::microseconds(200);

// A message behind the time at which it leaves: two messages of the inner wire. One without bytes
// is not sent, so it has no such time.
struct PacedMessage {
  int64_t leaves_ns = 0;  // travels
  uint64_t bytes = 0;
  int missing_count = 0;         // of the messages of the inner wire, not yet done
  std::optional<PaceTime> over;  // sent, or received
};

class PacedWire final : public sync::Wire {
 public:
  PacedWire(std::unique_ptr<sync::Wire> inner, const WirePace& pace)
      : inner_(std::move(inner)),
        delay_(pace.delay),
        outgoing_(pace.bits_per_s),
        incoming_(pace.bits_per_s),
        sends_(static_cast<size_t>(inner_->size())),
        receives_(static_cast<size_t>(inner_->size())) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }

  Status StartSend(int to, Bytes bytes) override { return StartSendAll(to, std::span(&bytes, 1)); }
  Status StartSendAll(int to, std::span<const Bytes> messages) override;
  Status StartReceive(int from, MutableBytes bytes) override;
  Status AwaitSend(int to) override;
  Status AwaitReceive(int from) override;
  Result<bool> IsSent(int to) override;
  Result<bool> IsReceived(int from) override;

  bool writes_after_failure() const override { return inner_->writes_after_failure(); }
  void Stop(const Error& why) override { inner_->Stop(why); }

 private:
  using Messages = std::deque<PacedMessage>;  // their places stay while others come and go

  Status GoOn();
  Status GoOnSending();
  Status GoOnReceiving();
  Status SleepUntil(PaceTime time);
  Messages& To(int rank) { return sends_[static_cast<size_t>(rank)]; }
  Messages& From(int rank) { return receives_[static_cast<size_t>(rank)]; }

  const std::unique_ptr<sync::Wire> inner_;
  const std::chrono::nanoseconds delay_;
  PacedLink outgoing_;
  PacedLink incoming_;
  std::vector<Messages> sends_;     // [ranks] not awaited
  std::vector<Messages> receives_;  // [ranks] not awaited
};

Status PacedWire::StartSendAll(int to, std::span<const Bytes> messages) {
  std::vector<Bytes> parts;
  for (const Bytes bytes : messages) {
    PacedMessage& message = To(to).emplace_back();
    message.bytes = bytes.size();
    message.missing_count = 1;
    message.over = PaceTime();
    if (!bytes.empty()) {
      const PacedLink::Passage passage = outgoing_.Reserve(PaceClock::now(), bytes.size());
      message.leaves_ns = passage.begin.time_since_epoch() / std::chrono::nanoseconds(1);
      message.over = passage.end;
      message.missing_count = 2;
      parts.push_back(std::as_bytes(std::span(&message.leaves_ns, 1)));
    }
    parts.push_back(bytes);
  }
  return inner_->StartSendAll(to, parts);
}

Status PacedWire::StartReceive(int from, MutableBytes bytes) {
  PacedMessage& message = From(from).emplace_back();
  message.bytes = bytes.size();
  message.missing_count = 1;
  if (!bytes.empty()) {
    message.missing_count = 2;
    LMDBIO_TRY_VOID(
        inner_->StartReceive(from, std::as_writable_bytes(std::span(&message.leaves_ns, 1))));
  }
  return inner_->StartReceive(from, bytes);
}

Status PacedWire::AwaitSend(int to) {
  LMDBIO_CHECK(!To(to).empty());
  PacedMessage& message = To(to).front();
  for (; message.missing_count > 0; --message.missing_count) {
    LMDBIO_TRY_VOID(inner_->AwaitSend(to));
  }
  LMDBIO_TRY_VOID(SleepUntil(*message.over));
  To(to).pop_front();
  return {};
}

Status PacedWire::AwaitReceive(int from) {
  LMDBIO_CHECK(!From(from).empty());
  PacedMessage& message = From(from).front();
  LMDBIO_TRY_VOID(GoOnReceiving());
  while (!message.over) {
    LMDBIO_TRY_VOID(inner_->AwaitReceive(from));
    --message.missing_count;
    LMDBIO_TRY_VOID(GoOnReceiving());
  }
  LMDBIO_TRY_VOID(SleepUntil(*message.over));
  From(from).pop_front();
  return {};
}

Result<bool> PacedWire::IsSent(int to) {
  LMDBIO_TRY_VOID(GoOn());
  const PacedMessage& message = To(to).front();
  return message.missing_count == 0 && PaceClock::now() >= *message.over;
}

Result<bool> PacedWire::IsReceived(int from) {
  LMDBIO_TRY_VOID(GoOn());
  const PacedMessage& message = From(from).front();
  return message.over && PaceClock::now() >= *message.over;
}

Status PacedWire::GoOn() {
  LMDBIO_TRY_VOID(GoOnSending());
  return GoOnReceiving();
}

Status PacedWire::GoOnSending() {
  for (int to = 0; to < size(); ++to) {
    for (PacedMessage& message : To(to)) {
      for (; message.missing_count > 0; --message.missing_count) {
        LMDBIO_TRY(const bool is_sent, inner_->IsSent(to));
        if (!is_sent) break;
        LMDBIO_TRY_VOID(inner_->AwaitSend(to));
      }
      if (message.missing_count > 0) break;
    }
  }
  return {};
}

// Messages of several ranks share the network of this one. Those that are here by now pass it in
// the order in which they left.
Status PacedWire::GoOnReceiving() {
  std::vector<PacedMessage*> arrived;
  for (int from = 0; from < size(); ++from) {
    for (PacedMessage& message : From(from)) {
      for (; message.missing_count > 0; --message.missing_count) {
        LMDBIO_TRY(const bool is_received, inner_->IsReceived(from));
        if (!is_received) break;
        LMDBIO_TRY_VOID(inner_->AwaitReceive(from));
      }
      if (message.missing_count > 0) break;
      if (!message.over) arrived.push_back(&message);
    }
  }
  std::ranges::stable_sort(arrived, {}, &PacedMessage::leaves_ns);
  for (PacedMessage* const message : arrived) {
    const PaceTime left{std::chrono::nanoseconds(message->leaves_ns)};
    message->over =
        message->bytes == 0 ? PaceTime() : incoming_.Reserve(left + delay_, message->bytes).end;
  }
  return {};
}

Status PacedWire::SleepUntil(PaceTime time) {
  while (PaceClock::now() < time) {
    std::this_thread::sleep_until(std::min(time, PaceClock::now() + kPacePart));
    LMDBIO_TRY_VOID(GoOn());
  }
  return {};
}

constexpr int kPingCount = 20;
constexpr size_t kRateMessageBytes = size_t{256} << 10;
constexpr size_t kRateMessageCount = 8;

double SecondsSince(PaceTime start) {
  return std::chrono::duration<double>(PaceClock::now() - start).count();
}

}  // namespace

PacedLink::Passage PacedLink::Reserve(Time earliest, uint64_t bytes) {
  const Time begin = std::max(earliest, free_);
  free_ = begin;
  if (bits_per_s_ > 0) {
    const std::chrono::duration<double> length(static_cast<double>(bytes) * 8 / bits_per_s_);
    free_ += std::chrono::duration_cast<Time::duration>(length);
  }
  return {begin, free_};
}

std::unique_ptr<sync::Wire> MakePacedWire(std::unique_ptr<sync::Wire> inner, const WirePace& pace) {
  return std::make_unique<PacedWire>(std::move(inner), pace);
}

Result<WireFigures> MeasureWire(sync::Wire& wire) {
  const int next = (wire.rank() + 1) % wire.size();
  const int before = (wire.rank() + wire.size() - 1) % wire.size();
  WireFigures figures;
  uint64_t sent = 0;
  uint64_t received = 0;
  std::vector<double> pings;
  for (int i = 0; i < kPingCount; ++i) {
    const PaceTime start = PaceClock::now();
    LMDBIO_TRY_VOID(wire.Exchange(next, std::as_bytes(std::span(&sent, 1)), before,
                                  std::as_writable_bytes(std::span(&received, 1))));
    pings.push_back(SecondsSince(start));
  }
  std::ranges::nth_element(pings, pings.begin() + kPingCount / 2);
  figures.ping_us = pings[kPingCount / 2] * 1e6;
  const std::vector<std::byte> from(kRateMessageBytes);
  std::vector<std::byte> to(kRateMessageBytes * kRateMessageCount);
  const PaceTime start = PaceClock::now();
  for (size_t i = 0; i < kRateMessageCount; ++i) {
    LMDBIO_TRY_VOID(wire.StartReceive(
        before, MutableBytes(to).subspan(i * kRateMessageBytes, kRateMessageBytes)));
    LMDBIO_TRY_VOID(wire.StartSend(next, from));
  }
  for (size_t i = 0; i < kRateMessageCount; ++i) {
    LMDBIO_TRY_VOID(wire.AwaitReceive(before));
    LMDBIO_TRY_VOID(wire.AwaitSend(next));
  }
  figures.bits_per_s = static_cast<double>(to.size()) * 8 / SecondsSince(start);
  return figures;
}

}  // namespace lmdbio::bench
