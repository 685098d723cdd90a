// Every call begins with Meet, an MPI_Allreduce of 80 bytes, also on a rank that declines. After it
// all ranks know that they make the same call with the same sizes. So all of them make the same
// calls of MPI next, or none. Numbers that decide between two ways (bytes in one call or in pieces)
// are among the compared ones, or Meet has computed their maximum.
#include "lmdbio/sync/over_mpi/mpi_collectives.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "lmdbio/base/check.h"
#include "lmdbio/base/kept_memory.h"
#include "lmdbio/ranks/mpi/mpi_waiter.h"
#include "lmdbio/sync/over_mpi/mpi_reduce_ops.h"
#include "lmdbio/sync/over_wire/wire_agreement.h"
#include "lmdbio/sync/over_wire/wire_chunks.h"
#include "lmdbio/sync/reduce/reduce.h"

namespace lmdbio::sync {
namespace {

using Outcome = Result<CallOutcome>;

constexpr int kCollectiveTag = 1;

// After Meet all ranks take part in the transfer, so it can be expected to move on. A network that
// is slower than this leaves time for sleeps.
constexpr uint64_t kBytesPerMicrosecond = 250;
std::chrono::microseconds TransferTime(uint64_t bytes) {
  return std::chrono::microseconds(bytes / kBytesPerMicrosecond);
}

// The digest of a call. MPI takes the maximum over all ranks, of each word and of its complement.
// All ranks have the same word exactly if the two maxima are complements of each other, because the
// maximum of the complements is the complement of the minimum.
struct CallSummary {
  uint64_t digest = 0;
  uint64_t kind = 0;  // with type, reduction and root
  uint64_t bytes = 0;
  uint64_t parts_digest = 0;
};
using AgreementWords = std::array<uint64_t, 10>;
constexpr size_t kDeclined = 8;
constexpr size_t kLargest = 9;  // a number of which all ranks need the maximum

// A rank that declines contributes 1, so the maximum is 0 only if no rank declines.
AgreementWords WordsOf(const CallTag& tag, const CallSummary& meaning, uint64_t number) {
  return {meaning.digest,
          ~meaning.digest,
          meaning.kind,
          ~meaning.kind,
          meaning.bytes,
          ~meaning.bytes,
          meaning.parts_digest,
          ~meaning.parts_digest,
          tag.is_declined ? 1U : 0U,
          number};
}

// `details` has at most 32 bits, so it does not reach the kind in the highest byte.
CallSummary MeaningOf(const CallTag& tag, WireCall kind, uint64_t details, uint64_t bytes,
                      uint64_t parts_digest = 0) {
  return {tag.digest, static_cast<uint64_t>(kind) << 56 | details, bytes, parts_digest};
}

// counts  of the parts of the ranks; may be empty
CallSummary MeaningOf(const CallTag& tag, WireCall kind, const Values& values,
                      const Reduction& reduction, std::span<const uint64_t> counts) {
  const std::array digests{std::bit_cast<uint64_t>(reduction.scale), DigestOf(counts)};
  return MeaningOf(tag, kind,
                   static_cast<uint64_t>(values.type) << 8 | static_cast<uint64_t>(reduction.op),
                   values.count * ElementBytes(values.type), DigestOf(digests));
}

// Memory of this object that MPI reads and writes. It is kept if a call was given up, because MPI
// continues the call.
struct HeldCollective {
  AgreementWords words = {};
  std::vector<uint64_t> sizes, own_sizes;
  std::vector<std::byte> apart;
  std::array<std::vector<int>, 4> counts;
};

class OverMpi final : public Collectives {
 public:
  // Takes ownership of the communicator.
  OverMpi(MPI_Comm communicator, ranks::Health& health, const MpiCollectiveOptions& options)
      : communicator_(communicator), options_(options), waiter_(health) {
    MPI_Comm_rank(communicator_, &rank_);
    MPI_Comm_size(communicator_, &size_);
  }
  ~OverMpi() override {
    // If a call was given up, MPI still uses its memory and the communicator, so neither is freed.
    if (request_ != MPI_REQUEST_NULL) {
      KeepForever(std::move(held_));
    } else if (ranks::IsMpiRunning()) {
      MPI_Comm_free(&communicator_);
    }
  }
  OverMpi(const OverMpi&) = delete;
  OverMpi& operator=(const OverMpi&) = delete;

  Status MakeOps() { return ops_.Make(); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Outcome AllReduce(const CallTag& tag, const Values& values, const Reduction& reduction) override;
  Outcome ReduceScatter(const CallTag& tag, const Values& input, std::byte* output,
                        std::span<const uint64_t> counts, const Reduction& reduction) override;
  Outcome AllGather(const CallTag& tag, Bytes mine, MutableBytes all,
                    std::span<const uint64_t> part_bytes) override;
  Outcome Broadcast(const CallTag& tag, MutableBytes bytes, int root) override;
  Outcome AllToAll(const CallTag& tag, Bytes send, std::span<const uint64_t> send_bytes,
                   MutableBytes receive, std::span<const uint64_t> receive_bytes) override;
  Outcome Barrier(const CallTag& tag) override {
    return Meet(tag, MeaningOf(tag, WireCall::kBarrier, 0, 0));
  }
  bool writes_after_failure() const override { return request_ != MPI_REQUEST_NULL; }
  void Stop(const Error& why) override { waiter_.Stop(why); }
  std::string Description() const override {
    return blocks() ? "MPI's collectives, blocking" : "MPI's collectives, nonblocking";
  }

 private:
  bool blocks() const { return options_.waiting == MpiWaiting::kBlock; }
  // MPI reads the counts until a nonblocking call is complete, so they do not lie on the stack.
  std::vector<int>& HeldCounts(size_t i, std::span<const uint64_t> from) {
    held_->counts[i].assign(from.begin(), from.end());
    return held_->counts[i];
  }
  // Makes one call of MPI, blocking or not.
  // bytes  that it moves; 0: it waits for ranks that may be late
  template <typename Block, typename Begin>
  Status Call(const char* name, uint64_t bytes, const Block& block, const Begin& begin);
  Outcome Meet(const CallTag& tag, const CallSummary& meaning, uint64_t number = 0);
  Status BroadcastPieces(MutableBytes bytes, int root);
  Status ReducePieces(const Values& input, uint64_t first, std::byte* output, uint64_t count,
                      ReduceOp op, int root);
  Status ReduceScatterAtOnce(const Values& input, std::byte* output,
                             std::span<const uint64_t> counts, ReduceOp op);
  Status GatherAtOnce(MutableBytes all, std::span<const uint64_t> part_bytes);
  Status ExchangeAtOnce(Bytes send, std::span<const uint64_t> send_bytes, MutableBytes receive,
                        std::span<const uint64_t> receive_bytes);
  Status ExchangePieces(Bytes send, const Bounds& sent, MutableBytes receive,
                        const Bounds& received);
  Status SendAndReceive(int to, Bytes send, int from, MutableBytes receive);

  MPI_Comm communicator_;
  const MpiCollectiveOptions options_;
  int rank_ = 0;
  int size_ = 0;
  ranks::MpiWaiter waiter_;
  MpiReduceOps ops_;
  MPI_Request request_ = MPI_REQUEST_NULL;  // of the call in progress
  std::unique_ptr<HeldCollective> held_ = std::make_unique<HeldCollective>();
};

// A blocking call cannot be stopped: Stop takes effect at the next one. A nonblocking call that is
// given up leaves request_ active, which is the sign that MPI may still write to memory.
template <typename Block, typename Begin>
Status OverMpi::Call(const char* name, uint64_t bytes, const Block& block, const Begin& begin) {
  LMDBIO_TRY_VOID(waiter_.CheckStopped());
  if (blocks()) return ranks::MpiStatus(block(), name);
  LMDBIO_TRY_VOID(ranks::MpiStatus(begin(&request_), name));
  return waiter_.Await(request_, ranks::MpiWaiter::kMessageYield + TransferTime(bytes));
}

// Afterwards held_->words[kLargest] is the largest `number` of all ranks.
Outcome OverMpi::Meet(const CallTag& tag, const CallSummary& meaning, uint64_t number) {
  AgreementWords& words = held_->words;
  words = WordsOf(tag, meaning, number);
  const auto count = static_cast<int>(words.size());
  LMDBIO_TRY_VOID(Call(
      "MPI_Allreduce", 0,
      [&] {
        return MPI_Allreduce(MPI_IN_PLACE, words.data(), count, MPI_UINT64_T, MPI_MAX,
                             communicator_);
      },
      [&](MPI_Request* request) {
        return MPI_Iallreduce(MPI_IN_PLACE, words.data(), count, MPI_UINT64_T, MPI_MAX,
                              communicator_, request);
      }));
  bool is_same = words[kDeclined] == 0;
  for (size_t i = 0; i < kDeclined; i += 2) is_same = is_same && words[i] == ~words[i + 1];
  return is_same ? CallOutcome::kDone : CallOutcome::kDeclined;
}

// The reductions of MPI have no scale, so a pass of sync/reduce follows each part.
Outcome OverMpi::AllReduce(const CallTag& tag, const Values& values, const Reduction& reduction) {
  const size_t element_bytes = ElementBytes(values.type);
  LMDBIO_TRY(const CallOutcome outcome,
             Meet(tag, MeaningOf(tag, WireCall::kAllReduce, values, reduction, {})));
  if (outcome == CallOutcome::kDeclined) return outcome;
  // MPI counts in int, so large values take several calls, each of whole elements.
  const uint64_t piece_count = options_.piece_bytes_max / element_bytes;
  const MPI_Datatype type = ops_.TypeOf(values.type);
  const MPI_Op mpi_op = ops_.OpOf(values.type, reduction.op);
  for (uint64_t at = 0; at < values.count; at += piece_count) {
    std::byte* const piece = values.data + at * element_bytes;
    const int count = static_cast<int>(std::min(piece_count, values.count - at));
    LMDBIO_TRY_VOID(Call(
        "MPI_Allreduce", static_cast<uint64_t>(count) * element_bytes,
        [&] { return MPI_Allreduce(MPI_IN_PLACE, piece, count, type, mpi_op, communicator_); },
        [&](MPI_Request* request) {
          return MPI_Iallreduce(MPI_IN_PLACE, piece, count, type, mpi_op, communicator_, request);
        }));
    Scale(values.type, reduction.scale, piece, piece, static_cast<size_t>(count));
  }
  return outcome;
}

// The root's output becomes the reduction of the first `count` elements.
Status OverMpi::ReducePieces(const Values& input, uint64_t first, std::byte* output, uint64_t count,
                             ReduceOp op, int root) {
  const size_t element_bytes = ElementBytes(input.type);
  const uint64_t piece_count = options_.piece_bytes_max / element_bytes;
  const MPI_Datatype type = ops_.TypeOf(input.type);
  const MPI_Op mpi_op = ops_.OpOf(input.type, op);
  for (uint64_t at = 0; at < count; at += piece_count) {
    const std::byte* const from = input.data + (first + at) * element_bytes;
    // Only the root receives, so the other ranks have no output.
    std::byte* const to = rank_ == root ? output + at * element_bytes : nullptr;
    const int piece = static_cast<int>(std::min(piece_count, count - at));
    LMDBIO_TRY_VOID(Call(
        "MPI_Reduce", static_cast<uint64_t>(piece) * element_bytes,
        [&] { return MPI_Reduce(from, to, piece, type, mpi_op, root, communicator_); },
        [&](MPI_Request* request) {
          return MPI_Ireduce(from, to, piece, type, mpi_op, root, communicator_, request);
        }));
  }
  return {};
}

Status OverMpi::ReduceScatterAtOnce(const Values& input, std::byte* output,
                                    std::span<const uint64_t> counts, ReduceOp op) {
  const std::vector<int>& int_counts = HeldCounts(0, counts);
  const MPI_Datatype type = ops_.TypeOf(input.type);
  const MPI_Op mpi_op = ops_.OpOf(input.type, op);
  return Call(
      "MPI_Reduce_scatter", input.count * ElementBytes(input.type),
      [&] {
        return MPI_Reduce_scatter(input.data, output, int_counts.data(), type, mpi_op,
                                  communicator_);
      },
      [&](MPI_Request* request) {
        return MPI_Ireduce_scatter(input.data, output, int_counts.data(), type, mpi_op,
                                   communicator_, request);
      });
}

Outcome OverMpi::ReduceScatter(const CallTag& tag, const Values& input, std::byte* output,
                               std::span<const uint64_t> counts, const Reduction& reduction) {
  const size_t element_bytes = ElementBytes(input.type);
  const uint64_t bytes = input.count * element_bytes;
  LMDBIO_TRY(const CallOutcome outcome,
             Meet(tag, MeaningOf(tag, WireCall::kReduceScatter, input, reduction, counts)));
  if (outcome == CallOutcome::kDeclined) return outcome;
  LMDBIO_CHECK(counts.size() == static_cast<size_t>(size_));
  // MPI requires that output and input do not overlap.
  std::vector<std::byte>& apart = held_->apart;
  const uint64_t own_count = counts[static_cast<size_t>(rank_)];
  apart.resize(own_count * element_bytes);
  if (bytes <= options_.piece_bytes_max) {
    // MPI_Reduce_scatter takes all parts in one call. If they are too large for one, each rank in
    // turn is the root of reductions of its part.
    LMDBIO_TRY_VOID(ReduceScatterAtOnce(input, apart.data(), counts, reduction.op));
  } else {
    uint64_t first = 0;
    for (int root = 0; root < size_; ++root) {
      const uint64_t count = counts[static_cast<size_t>(root)];
      LMDBIO_TRY_VOID(ReducePieces(input, first, apart.data(), count, reduction.op, root));
      first += count;
    }
  }
  Scale(input.type, reduction.scale, output, apart.data(), own_count);
  return outcome;
}

Status OverMpi::BroadcastPieces(MutableBytes bytes, int root) {
  for (uint64_t at = 0; at < bytes.size(); at += options_.piece_bytes_max) {
    std::byte* const piece = bytes.data() + at;
    const int count =
        static_cast<int>(std::min<uint64_t>(options_.piece_bytes_max, bytes.size() - at));
    LMDBIO_TRY_VOID(Call(
        "MPI_Bcast", static_cast<uint64_t>(count),
        [&] { return MPI_Bcast(piece, count, MPI_BYTE, root, communicator_); },
        [&](MPI_Request* request) {
          return MPI_Ibcast(piece, count, MPI_BYTE, root, communicator_, request);
        }));
  }
  return {};
}

Outcome OverMpi::Broadcast(const CallTag& tag, MutableBytes bytes, int root) {
  LMDBIO_TRY(
      const CallOutcome outcome,
      Meet(tag, MeaningOf(tag, WireCall::kBroadcast, static_cast<uint32_t>(root), bytes.size())));
  if (outcome == CallOutcome::kDone) LMDBIO_TRY_VOID(BroadcastPieces(bytes, root));
  return outcome;
}

Status OverMpi::GatherAtOnce(MutableBytes all, std::span<const uint64_t> part_bytes) {
  const std::vector<int>& counts = HeldCounts(0, part_bytes);
  const std::vector<int>& places = HeldCounts(1, BoundsOf(part_bytes));
  return Call(
      "MPI_Allgatherv", all.size(),
      [&] {
        return MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all.data(), counts.data(),
                              places.data(), MPI_BYTE, communicator_);
      },
      [&](MPI_Request* request) {
        return MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all.data(), counts.data(),
                               places.data(), MPI_BYTE, communicator_, request);
      });
}

Outcome OverMpi::AllGather(const CallTag& tag, Bytes mine, MutableBytes all,
                           std::span<const uint64_t> part_bytes) {
  LMDBIO_TRY(const CallOutcome outcome,
             Meet(tag, MeaningOf(tag, WireCall::kAllGather, 0, all.size(), DigestOf(part_bytes))));
  if (outcome == CallOutcome::kDeclined) return outcome;
  LMDBIO_CHECK(part_bytes.size() == static_cast<size_t>(size_));
  const Bounds bounds = BoundsOf(part_bytes);
  // MPI_IN_PLACE and MPI_Bcast both expect the part of this rank at its offset.
  const MutableBytes own = PartOf(all.data(), bounds, rank_);
  LMDBIO_CHECK(bounds.back() == all.size() && own.size() == mine.size());
  if (!mine.empty() && own.data() != mine.data()) {
    std::memmove(own.data(), mine.data(), mine.size());
  }
  if (all.size() <= options_.piece_bytes_max) {
    LMDBIO_TRY_VOID(GatherAtOnce(all, part_bytes));
    return outcome;
  }
  // The offsets of MPI_Allgatherv are int. A larger gather is one broadcast from each rank.
  for (int root = 0; root < size_; ++root) {
    LMDBIO_TRY_VOID(BroadcastPieces(PartOf(all.data(), bounds, root), root));
  }
  return outcome;
}

Status OverMpi::ExchangeAtOnce(Bytes send, std::span<const uint64_t> send_bytes,
                               MutableBytes receive, std::span<const uint64_t> receive_bytes) {
  const std::vector<int>& send_counts = HeldCounts(0, send_bytes);
  const std::vector<int>& receive_counts = HeldCounts(1, receive_bytes);
  const std::vector<int>& send_places = HeldCounts(2, BoundsOf(send_bytes));
  const std::vector<int>& receive_places = HeldCounts(3, BoundsOf(receive_bytes));
  return Call(
      "MPI_Alltoallv", std::max(send.size(), receive.size()),
      [&] {
        return MPI_Alltoallv(send.data(), send_counts.data(), send_places.data(), MPI_BYTE,
                             receive.data(), receive_counts.data(), receive_places.data(), MPI_BYTE,
                             communicator_);
      },
      [&](MPI_Request* request) {
        return MPI_Ialltoallv(send.data(), send_counts.data(), send_places.data(), MPI_BYTE,
                              receive.data(), receive_counts.data(), receive_places.data(),
                              MPI_BYTE, communicator_, request);
      });
}

// Sends and receives one message. The sizes may differ, and be 0. The receive is in request_, which
// after a failure shows that MPI may still write. A send only reads.
Status OverMpi::SendAndReceive(int to, Bytes send, int from, MutableBytes receive) {
  const auto send_count = static_cast<int>(send.size());
  const auto receive_count = static_cast<int>(receive.size());
  if (blocks()) {
    LMDBIO_TRY_VOID(waiter_.CheckStopped());
    return ranks::MpiStatus(MPI_Sendrecv(send.data(), send_count, MPI_BYTE, to, kCollectiveTag,
                                         receive.data(), receive_count, MPI_BYTE, from,
                                         kCollectiveTag, communicator_, MPI_STATUS_IGNORE),
                            "MPI_Sendrecv");
  }
  MPI_Request sending = MPI_REQUEST_NULL;
  LMDBIO_TRY_VOID(ranks::MpiStatus(MPI_Irecv(receive.data(), receive_count, MPI_BYTE, from,
                                             kCollectiveTag, communicator_, &request_),
                                   "MPI_Irecv"));
  LMDBIO_TRY_VOID(ranks::MpiStatus(
      MPI_Isend(send.data(), send_count, MPI_BYTE, to, kCollectiveTag, communicator_, &sending),
      "MPI_Isend"));
  const auto yield_time =
      ranks::MpiWaiter::kMessageYield + TransferTime(std::max(send.size(), receive.size()));
  LMDBIO_TRY_VOID(waiter_.Await(request_, yield_time));
  return waiter_.Await(sending, yield_time);
}

// In step s, rank r sends to rank r + s and receives from rank r - s, modulo P. Both ranks of a
// pair are in the same step, so each message meets its receive.
Status OverMpi::ExchangePieces(Bytes send, const Bounds& sent, MutableBytes receive,
                               const Bounds& received) {
  const auto piece_of = [&](auto part, uint64_t at) {
    const uint64_t begin = std::min<uint64_t>(at, part.size());
    return part.subspan(begin, std::min<uint64_t>(options_.piece_bytes_max, part.size() - begin));
  };
  for (int step = 0; step < size_; ++step) {
    const int to = (rank_ + step) % size_;
    const int from = (rank_ + size_ - step) % size_;
    const Bytes mine =
        PartOf(const_cast<std::byte*>(send.data()), sent, to);  // MPI does not write to it
    const MutableBytes theirs = PartOf(receive.data(), received, from);
    if (step == 0) {
      std::ranges::copy(mine, theirs.begin());
      continue;
    }
    const uint64_t most = std::max(mine.size(), theirs.size());
    for (uint64_t at = 0; at < most; at += options_.piece_bytes_max) {
      // If one of two ranks has no message left for the other, the other has none for it, either.
      LMDBIO_TRY_VOID(SendAndReceive(at < mine.size() ? to : MPI_PROC_NULL, piece_of(mine, at),
                                     at < theirs.size() ? from : MPI_PROC_NULL,
                                     piece_of(theirs, at)));
    }
  }
  return {};
}

// The ranks agree on the call, exchange the sizes of the parts, and then agree once more. The
// second agreement shows all ranks whether a size differs anywhere. It also finds the largest
// total, so all of them move the data alike.
Outcome OverMpi::AllToAll(const CallTag& tag, Bytes send, std::span<const uint64_t> send_bytes,
                          MutableBytes receive, std::span<const uint64_t> receive_bytes) {
  const CallSummary meaning = MeaningOf(tag, WireCall::kAllToAll, 0, 0);
  LMDBIO_TRY(CallOutcome outcome, Meet(tag, meaning));
  if (outcome == CallOutcome::kDeclined) return outcome;
  const auto count = static_cast<size_t>(size_);
  LMDBIO_CHECK(send_bytes.size() == count && receive_bytes.size() == count);
  std::vector<uint64_t>& heard = held_->sizes;
  heard.resize(count);
  // A copy, because MPI may read the sizes after the caller's memory is gone.
  std::vector<uint64_t>& told = held_->own_sizes;
  told.assign(send_bytes.begin(), send_bytes.end());
  LMDBIO_TRY_VOID(Call(
      "MPI_Alltoall", 0,
      [&] {
        return MPI_Alltoall(told.data(), 1, MPI_UINT64_T, heard.data(), 1, MPI_UINT64_T,
                            communicator_);
      },
      [&](MPI_Request* request) {
        return MPI_Ialltoall(told.data(), 1, MPI_UINT64_T, heard.data(), 1, MPI_UINT64_T,
                             communicator_, request);
      }));
  const bool fits = std::ranges::equal(heard, receive_bytes);
  LMDBIO_TRY(outcome, Meet({.digest = tag.digest, .is_declined = !fits}, meaning,
                           std::max(send.size(), receive.size())));
  if (outcome == CallOutcome::kDeclined) return outcome;
  if (held_->words[kLargest] <= options_.piece_bytes_max) {
    LMDBIO_TRY_VOID(ExchangeAtOnce(send, send_bytes, receive, receive_bytes));
  } else {
    LMDBIO_TRY_VOID(ExchangePieces(send, BoundsOf(send_bytes), receive, BoundsOf(receive_bytes)));
  }
  return outcome;
}

}  // namespace

Result<std::unique_ptr<Collectives>> MpiCollectives(MPI_Comm communicator, ranks::Health& health,
                                                    const MpiCollectiveOptions& options) {
  LMDBIO_CHECK(options.piece_bytes_max >= 8 && options.piece_bytes_max <= ranks::kPieceBytesMax);
  LMDBIO_TRY_VOID(ranks::CheckMpiThread(options.caller));
  // On a duplicate, calls of the program and of lmdbio cannot match each other. Its error handler
  // returns codes instead of ending the job.
  MPI_Comm duplicate = MPI_COMM_NULL;
  LMDBIO_TRY_VOID(ranks::MpiStatus(MPI_Comm_dup(communicator, &duplicate), "MPI_Comm_dup"));
  MPI_Comm_set_errhandler(duplicate, MPI_ERRORS_RETURN);
  auto collectives = std::make_unique<OverMpi>(duplicate, health, options);
  LMDBIO_TRY_VOID(collectives->MakeOps());
  return collectives;
}

}  // namespace lmdbio::sync
