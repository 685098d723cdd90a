#include "lmdbio/sync/over_wire/wire_agreement.h"

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/sync/over_wire/wire_choice.h"
#include "lmdbio/sync/reduce/reduce.h"

namespace lmdbio::sync {

uint64_t DigestOf(std::span<const uint64_t> parts) {
  // A multiplication moves bits only upwards. The rotation brings the upper bits down again.
  uint64_t digest = 0xcbf29ce484222325U;  // FNV-1a over words, with a rotation
  for (const uint64_t part : parts) {
    digest = (digest ^ part) * 0x100000001b3U;
    digest ^= std::rotr(digest, 29);
  }
  return digest;
}

// The first 2 (P - W) ranks form the pairs (0, 1), (2, 3), ... The odd ranks of the pairs become
// workers 0, 1, ..., and all ranks behind the pairs follow them in order.
Folding::Folding(int rank, int size)
    : worker_count_(static_cast<int>(std::bit_floor(static_cast<unsigned>(size)))),
      pair_count_(size - worker_count_) {
  if (rank >= 2 * pair_count_) {
    worker_ = rank - pair_count_;
  } else {
    partner_ = rank ^ 1;
    worker_ = rank % 2 == 1 ? rank / 2 : -1;
  }
}

// A rank that declines sends the same messages as the others, without values.
void WireAgreement::Begin(const CallTag& tag, const CallShape& shape, Bytes payload) {
  mine_ = {.digest = tag.digest,
           .shape = shape,
           .is_declined = tag.is_declined ? 1U : 0U,
           .payload_bytes = tag.is_declined ? 0U : static_cast<uint32_t>(payload.size())};
  my_payload_.assign(payload.begin(), payload.begin() + mine_.payload_bytes);
}

Status WireAgreement::StartSend(int to) {
  // Two messages, because the receiver cannot know the size of the values: the sender may have
  // learned that some rank declines.
  const std::array<Bytes, 2> messages = {std::as_bytes(std::span(&mine_, 1)),
                                         Bytes(my_payload_).first(mine_.payload_bytes)};
  return wire_.StartSendAll(to, messages);
}

Status WireAgreement::AwaitSend(int to) {
  LMDBIO_TRY_VOID(wire_.AwaitSend(to));
  return wire_.AwaitSend(to);
}

Status WireAgreement::Receive(int from) {
  LMDBIO_TRY_VOID(wire_.StartReceive(from, std::as_writable_bytes(std::span(&theirs_, 1))));
  LMDBIO_TRY_VOID(wire_.AwaitReceive(from));
  if (theirs_.payload_bytes > kDoublingBytesMax) {
    return Fail(ErrorCode::kInternal,
                fmt::format("malformed header of a collective call from rank {}: {} bytes of "
                            "values, expected at most {}",
                            from, theirs_.payload_bytes, kDoublingBytesMax));
  }
  their_payload_.resize(theirs_.payload_bytes);
  LMDBIO_TRY_VOID(wire_.StartReceive(from, their_payload_));
  return wire_.AwaitReceive(from);
}

// Combines the received header and values with those of this rank. The values of the lower rank
// come first, so both ranks of an exchange get the same bits.
void WireAgreement::Combine(int from, double scale) {
  if (mine_.is_declined != 0 || theirs_.is_declined != 0 || mine_.digest != theirs_.digest ||
      mine_.shape != theirs_.shape || mine_.payload_bytes != theirs_.payload_bytes) {
    mine_.is_declined = 1;
    mine_.payload_bytes = 0;
    return;
  }
  if (mine_.payload_bytes == 0) return;
  if (from < wire_.rank()) std::swap(my_payload_, their_payload_);
  const auto type = static_cast<DataType>(mine_.shape.type);
  const auto op = static_cast<ReduceOp>(mine_.shape.op);
  Reduce(type, {op, scale}, my_payload_.data(), their_payload_.data(),
         mine_.payload_bytes / ElementBytes(type));
}

// Combine changes the header and the values of this rank, so it follows the end of their send.
Status WireAgreement::ExchangeAndCombine(int other, double scale) {
  LMDBIO_TRY_VOID(StartSend(other));
  LMDBIO_TRY_VOID(Receive(other));
  LMDBIO_TRY_VOID(AwaitSend(other));
  Combine(other, scale);
  return {};
}

// Recursive doubling: in the step with `mask`, worker w exchanges with worker w ^ mask. After the
// step both have combined the headers of all workers whose numbers differ in the bits up to `mask`.
// Only the last step scales.
//
// A rank that is no worker takes part in no step. It gives its header to its partner before the
// steps, and gets the combined one after them.
Status WireAgreement::Run(double scale) {
  const int partner = folding_.partner();
  if (!folding_.is_worker()) {
    LMDBIO_TRY_VOID(StartSend(partner));
    LMDBIO_TRY_VOID(Receive(partner));
    LMDBIO_TRY_VOID(AwaitSend(partner));
    // Unless it declines, the result has the size of the values, which the caller copies. No rank
    // makes a result of the header of one that declines.
    if (theirs_.is_declined == 0 &&
        (mine_.is_declined != 0 || theirs_.payload_bytes != mine_.payload_bytes)) {
      return Fail(ErrorCode::kInternal,
                  fmt::format("malformed header of a collective call from rank {}: {} bytes of "
                              "values, expected {}",
                              partner, theirs_.payload_bytes, mine_.payload_bytes));
    }
    mine_ = theirs_;
    std::swap(my_payload_, their_payload_);
    return {};
  }
  if (partner >= 0) {
    LMDBIO_TRY_VOID(Receive(partner));
    Combine(partner, 1);
  }
  for (int mask = 1; mask < folding_.worker_count(); mask *= 2) {
    const bool is_last = 2 * mask == folding_.worker_count();
    const int other = folding_.RankOf(folding_.worker() ^ mask);
    LMDBIO_TRY_VOID(ExchangeAndCombine(other, is_last ? scale : 1));
  }
  if (partner < 0) return {};
  LMDBIO_TRY_VOID(StartSend(partner));
  return AwaitSend(partner);
}

Result<CallOutcome> WireAgreement::Agree(const CallTag& tag, const CallShape& shape) {
  Begin(tag, shape, {});
  LMDBIO_TRY_VOID(Run(1));
  return mine_.is_declined != 0 ? CallOutcome::kDeclined : CallOutcome::kDone;
}

Result<CallOutcome> WireAgreement::AgreeAndReduce(const CallTag& tag, const CallShape& shape,
                                                  const Values& values,
                                                  const Reduction& reduction) {
  const size_t bytes = values.count * ElementBytes(values.type);
  LMDBIO_CHECK(bytes <= kDoublingBytesMax && shape.type == static_cast<uint8_t>(values.type) &&
               shape.op == static_cast<uint8_t>(reduction.op));
  Begin(tag, shape, Bytes(values.data, bytes));
  // Works on copies, so the values stay unchanged if the ranks differ.
  LMDBIO_TRY_VOID(Run(reduction.scale));
  if (mine_.is_declined != 0) return CallOutcome::kDeclined;
  if (bytes > 0) std::memcpy(values.data, my_payload_.data(), bytes);
  return CallOutcome::kDone;
}

}  // namespace lmdbio::sync
