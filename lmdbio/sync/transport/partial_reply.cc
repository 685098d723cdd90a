#include "lmdbio/sync/transport/partial_reply.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace lmdbio::sync {
namespace {

// A packed message of kGather: number i32, size u64, bytes. In the byte order of the machine,
// because all hosts of a job have the same.
template <typename T>
void Append(std::vector<std::byte>& bytes, T value) {
  const Bytes raw = std::as_bytes(std::span(&value, 1));
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

std::vector<std::byte> CopyOf(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

Status WrongSize() {
  return Fail(ErrorCode::kInternal,
              "an exchange of control messages: a message of another rank has the wrong size");
}

}  // namespace

PartialReply::PartialReply(ExchangeKind kind, size_t word_count) : kind_(kind) {
  // All ones: the neutral element of the intersection.
  if (kind == ExchangeKind::kIntersect) words_.assign(word_count, ~uint64_t{0});
}

Status PartialReply::Add(int number, Bytes contribution) {
  if (kind_ != ExchangeKind::kIntersect) {
    messages_.emplace_back(number, CopyOf(contribution));
    return {};
  }
  if (contribution.size() != words_.size() * sizeof(uint64_t)) return WrongSize();
  for (size_t i = 0; i < words_.size(); ++i) {
    uint64_t word = 0;
    std::memcpy(&word, &contribution[i * sizeof word], sizeof word);
    words_[i] &= word;
  }
  return {};
}

Status PartialReply::Merge(Bytes packed) {
  if (kind_ == ExchangeKind::kIntersect) return Add(0, packed);
  while (!packed.empty()) {
    int32_t number = 0;
    uint64_t size = 0;
    if (packed.size() < sizeof number + sizeof size) return WrongSize();
    std::memcpy(&number, packed.data(), sizeof number);
    std::memcpy(&size, &packed[sizeof number], sizeof size);
    packed = packed.subspan(sizeof number + sizeof size);
    if (size > packed.size()) return WrongSize();
    messages_.emplace_back(number, CopyOf(packed.first(size)));
    packed = packed.subspan(size);
  }
  return {};
}

std::vector<std::byte> PartialReply::Pack() const {
  if (kind_ == ExchangeKind::kIntersect) return CopyOf(std::as_bytes(std::span(words_)));
  if (kind_ == ExchangeKind::kBroadcast) return bytes_;
  std::vector<std::byte> packed;
  for (const auto& [number, bytes] : messages_) {
    Append(packed, static_cast<int32_t>(number));
    Append(packed, uint64_t{bytes.size()});
    packed.insert(packed.end(), bytes.begin(), bytes.end());
  }
  return packed;
}

Status PartialReply::SetAnswer(Bytes answer) {
  if (kind_ == ExchangeKind::kIntersect) {
    if (answer.size() != words_.size() * sizeof(uint64_t)) return WrongSize();
    if (!answer.empty()) std::memcpy(words_.data(), answer.data(), answer.size());
    return {};
  }
  bytes_ = CopyOf(answer);
  return {};
}

Reply PartialReply::TakeReply() {
  Reply reply;
  reply.words = std::move(words_);
  reply.bytes = std::move(bytes_);
  // Hosts merge in the order in which messages arrive. The numbers restore the order of the ranks.
  std::ranges::sort(messages_, {}, [](const auto& message) { return message.first; });
  for (auto& [number, bytes] : messages_) reply.gathered.push_back(std::move(bytes));
  messages_.clear();
  return reply;
}

}  // namespace lmdbio::sync
