// tests/fuzz/control_fuzz.cc - any bytes as the control messages of a synchronizer.
//
// Input: byte 0 chooses the kind of message, byte 1 the number of ranks. The rest is a list of
// requests, a list of responses, a proposal of a plan, two of them, the packed messages of several
// ranks, or the heads and small values of a call between hosts.
// Oracle: the sanitizers; what decodes encodes to the same bytes; two proposals merge to the same
// bytes in both orders. Memory and time grow with the size of the input alone.
#include <cstring>
#include <utility>
#include <vector>

#include "lmdbio/sync/graph/plan_proposal.h"
#include "lmdbio/sync/over_wire/wire_agreement.h"
#include "lmdbio/sync/request/fusion.h"
#include "lmdbio/sync/request/message_codec.h"
#include "lmdbio/sync/transport/partial_reply.h"
#include "tests/fuzz/decode_check.h"
#include "tests/fuzz/input_parts.h"
#include "tests/sync/over_wire/forged_wire.h"

namespace lmdbio::test {
namespace {

constexpr uint64_t kRanksMax = 9;

void DecodeRequests(Bytes message, int rank_count) {
  const auto list = CheckCodec(
      message, [&](Bytes bytes) { return sync::DecodeAsks(bytes, rank_count); },
      [](const sync::RequestList& decoded) { return Encode(decoded); });
  for (size_t i = 0; list && i < list->asks.size(); ++i) {
    for (const int32_t rank : list->asks[i].ranks) LMDBIO_CHECK(rank >= 0 && rank < rank_count);
  }
}

uint64_t TensorCount(const std::vector<sync::Response>& responses) {
  uint64_t count = 0;
  for (const sync::Response& response : responses) count += response.tensors.size();
  return count;
}

// Goes on as the receiver does: it computes sizes and offsets, and fuses.
void DecodeResponses(Bytes message, int rank_count) {
  auto list = CheckCodec(
      message, [&](Bytes bytes) { return sync::DecodeResponses(bytes, rank_count); },
      [](const sync::ResponseList& decoded) { return Encode(decoded); });
  if (!list) return;
  for (const sync::Response& response : list->responses) {
    (void)response.digest();
    for (const sync::Request& tensor : response.tensors) {
      if (!response.error.empty()) continue;  // never executed
      LMDBIO_CHECK(tensor.byte_count() <= uint64_t{1} << 52);
      LMDBIO_CHECK(tensor.row_element_count() <= uint64_t{1} << 48);
    }
  }
  const uint64_t count = TensorCount(list->responses);
  const auto fused = sync::Fuse(std::move(list->responses), {});
  LMDBIO_CHECK(TensorCount(fused) == count);
  for (const sync::Response& response : fused) {
    if (!response.error.empty()) continue;
    LMDBIO_CHECK(sync::PlacesOf(response.tensors).offsets.size() == response.tensors.size());
  }
}

auto DecodeProposal(Bytes message) {
  return CheckCodec(message, sync::ReadProposal, sync::WriteProposal);
}

// The second is the first with some bytes changed, so that both may be for one plan.
void MergeTwo(InputParts in) {
  std::vector<std::byte> changed;
  const uint64_t change_count = in.TakeBelow(8);
  std::vector<std::pair<uint16_t, std::byte>> changes;
  for (uint64_t i = 0; i < change_count; ++i) {
    const auto at = in.Take<uint16_t>();
    changes.emplace_back(at, in.Take<std::byte>());
  }
  changed.assign(in.rest().begin(), in.rest().end());
  for (const auto& [at, byte] : changes) {
    if (at < changed.size()) changed[at] ^= byte;
  }
  (void)DecodeProposal(in.rest());
  (void)DecodeProposal(changed);
  const auto merged = sync::MergeProposals(in.rest(), changed);
  const auto reversed = sync::MergeProposals(changed, in.rest());
  LMDBIO_CHECK(merged.has_value() == reversed.has_value());
  if (!merged) return CheckMessage(merged.error());
  LMDBIO_CHECK(*merged == *reversed && DecodeProposal(*merged).has_value());
}

// The bytes of another rank, in addition to those of this one.
void UnpackReplies(InputParts in) {
  const auto kind = static_cast<sync::ExchangeKind>(in.TakeBelow(3));
  const uint64_t word_count = in.TakeBelow(20);
  sync::PartialReply reply(kind, word_count);
  const std::vector<std::byte> mine(word_count * sizeof(uint64_t), std::byte{0xF5});
  CheckMessageOf(reply.Add(1, mine));
  const Bytes rest = in.rest();
  const std::vector<std::byte> packed(rest.begin(), rest.end());
  const Status merged = reply.Merge(packed);
  if (!merged) return CheckMessage(merged.error());
  const std::vector<std::byte> sum = reply.Pack();
  sync::PartialReply again(kind, word_count);
  LMDBIO_CHECK(again.Merge(sum).has_value() || kind == sync::ExchangeKind::kBroadcast);
  if (kind == sync::ExchangeKind::kGather) LMDBIO_CHECK(again.Pack() == sum);
  CheckMessageOf(reply.SetAnswer(packed));
  const sync::Reply whole = reply.TakeReply();
  LMDBIO_CHECK(whole.words.size() == (kind == sync::ExchangeKind::kIntersect ? word_count : 0));
}

// The head that a rank expects, with some bytes changed; or the values.
void FillMessage(InputParts& in, const ForgedCallHead& head, MutableBytes message) {
  if (message.size() == sizeof head) {
    std::memcpy(message.data(), &head, sizeof head);
  }
  for (uint64_t i = in.TakeBelow(4); i > 0; --i) {
    const size_t at = in.Take<uint16_t>() % message.size();
    message[at] ^= in.Take<std::byte>();
  }
}

void ReduceWithForeignRanks(InputParts in, int rank_count) {
  const auto rank = static_cast<int>(in.TakeBelow(static_cast<uint64_t>(rank_count)));
  constexpr sync::DataType kTypes[] = {sync::DataType::kFloat32, sync::DataType::kFloat16,
                                       sync::DataType::kInt64};
  const sync::DataType type = kTypes[in.TakeBelow(std::size(kTypes))];
  const uint64_t count = in.TakeBelow(30);
  const uint64_t bytes = count * sync::ElementBytes(type);
  const sync::CallTag tag{.digest = 5, .is_declined = in.TakeBelow(8) == 1};
  const sync::CallShape shape{.kind = sync::WireCall::kAllReduce,
                              .type = static_cast<uint8_t>(type),
                              .op = static_cast<uint8_t>(sync::ReduceOp::kSum),
                              .bytes = bytes};
  const ForgedCallHead head{tag.digest, shape, 0, static_cast<uint32_t>(bytes)};
  ForgedWire wire(rank, rank_count,
                  [&](int, MutableBytes message) { FillMessage(in, head, message); });
  std::vector<std::byte> memory(bytes);
  const auto outcome = sync::WireAgreement(wire).AgreeAndReduce(
      tag, shape, {memory.data(), count, type}, sync::Reduction(sync::ReduceOp::kSum));
  if (!outcome) return CheckMessage(outcome.error());
  const bool is_alone = rank_count == 1;
  LMDBIO_CHECK(*outcome == sync::CallOutcome::kDeclined || !tag.is_declined || is_alone);
}

}  // namespace
}  // namespace lmdbio::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lmdbio;
  if (size < 2) return 0;
  const test::InputParts rest(std::as_bytes(std::span(data, size)).subspan(2));
  const auto rank_count = static_cast<int>(1 + data[1] % test::kRanksMax);
  switch (data[0] % 6) {
    case 0:
      test::DecodeRequests(rest.rest(), rank_count);
      break;
    case 1:
      test::DecodeResponses(rest.rest(), rank_count);
      break;
    case 2:
      (void)test::DecodeProposal(rest.rest());
      break;
    case 3:
      test::MergeTwo(rest);
      break;
    case 4:
      test::UnpackReplies(rest);
      break;
    default:
      test::ReduceWithForeignRanks(rest, rank_count);
  }
  return 0;
}
