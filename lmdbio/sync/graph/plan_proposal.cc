#include "lmdbio/sync/graph/plan_proposal.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace lmdbio::sync {
namespace {

constexpr uint32_t kProposalVersion = 3;
constexpr size_t kVersionBytes = 4;
constexpr size_t kHeadBytes = 48;
constexpr size_t kNeedBytes = 4;
constexpr size_t kTimesBytes = 16;
constexpr size_t kSampleBytes = 16;
constexpr uint64_t kSamplesMax = 1024;

void Put(std::vector<std::byte>& bytes, uint64_t number, size_t size_bytes) {
  for (size_t i = 0; i < size_bytes; ++i)
    bytes.push_back(static_cast<std::byte>(number >> (8 * i)));
}

// Reads numbers one behind the other.
class ProposalReader {
 public:
  ProposalReader(Bytes bytes, size_t offset) : bytes_(bytes), offset_(offset) {}

  uint64_t Get(size_t size_bytes) {
    uint64_t number = 0;
    for (size_t i = 0; i < size_bytes; ++i) {
      number |= std::to_integer<uint64_t>(bytes_[offset_ + i]) << (8 * i);
    }
    offset_ += size_bytes;
    return number;
  }
  int64_t GetTime() { return static_cast<int64_t>(Get(8)); }

 private:
  const Bytes bytes_;
  size_t offset_;
};

bool IsTime(int64_t ns) { return ns >= 0 && ns <= kTimeMaxNs; }

Result<std::vector<TransferSample>> ReadSamples(ProposalReader& reader, uint64_t count) {
  std::vector<TransferSample> samples(count);
  for (TransferSample& sample : samples) {
    sample.bytes = reader.Get(8);
    sample.ns = reader.GetTime();
    if (!IsTime(sample.ns)) {
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("plan proposal: a transfer of {} bytes took {} ns", sample.bytes, sample.ns));
    }
  }
  return samples;
}

}  // namespace

std::vector<std::byte> WriteProposal(const PlanProposal& proposal) {
  std::vector<std::byte> bytes;
  bytes.reserve(kHeadBytes + kNeedBytes * proposal.needs.size() +
                kTimesBytes * proposal.times.size() + kSampleBytes * proposal.samples.size());
  Put(bytes, kProposalVersion, kVersionBytes);
  Put(bytes, proposal.needs.size(), 4);
  Put(bytes, proposal.epoch, 8);
  Put(bytes, proposal.digest, 8);
  Put(bytes, proposal.times.size(), 4);
  Put(bytes, proposal.samples.size(), 4);
  Put(bytes, static_cast<uint64_t>(proposal.length_ns), 8);
  Put(bytes, static_cast<uint64_t>(proposal.spread_ns), 8);
  for (const uint32_t need : proposal.needs) Put(bytes, need, kNeedBytes);
  for (const TensorTimes& times : proposal.times) {
    Put(bytes, static_cast<uint64_t>(times.ready_ns), 8);
    Put(bytes, static_cast<uint64_t>(times.due_ns), 8);
  }
  for (const TransferSample& sample : proposal.samples) {
    Put(bytes, sample.bytes, 8);
    Put(bytes, static_cast<uint64_t>(sample.ns), 8);
  }
  return bytes;
}

// Everything is checked that later steps require of their callers, because the bytes may be from a
// peer.
Result<PlanProposal> ReadProposal(Bytes bytes) {
  const uint64_t version =
      bytes.size() < kVersionBytes ? 0 : ProposalReader(bytes, 0).Get(kVersionBytes);
  if (version != kProposalVersion) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("plan proposal: {} bytes of version {}; expected version {}",
                            bytes.size(), version, kProposalVersion));
  }
  uint64_t count = 0;
  uint64_t time_count = 0;
  uint64_t sample_count = 0;
  PlanProposal proposal;
  ProposalReader reader(bytes, kVersionBytes);
  if (bytes.size() >= kHeadBytes) {
    count = reader.Get(4);
    proposal.epoch = reader.Get(8);
    proposal.digest = reader.Get(8);
    time_count = reader.Get(4);
    sample_count = reader.Get(4);
    proposal.length_ns = reader.GetTime();
    proposal.spread_ns = reader.GetTime();
  }
  if (bytes.size() !=
      kHeadBytes + kNeedBytes * count + kTimesBytes * time_count + kSampleBytes * sample_count) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("plan proposal: {} bytes do not match {} tensors, {} of them with "
                            "times, and {} transfers",
                            bytes.size(), count, time_count, sample_count));
  }
  const bool are_counts_right = (time_count == 0 || time_count == count) &&
                                sample_count <= kSamplesMax && IsTime(proposal.length_ns) &&
                                IsTime(proposal.spread_ns);
  if (!are_counts_right) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("plan proposal: {} tensors, {} of them with times, {} transfers and "
                            "{} ns, {} ns longer; expected times of all or none, and at most {} "
                            "transfers",
                            count, time_count, sample_count, proposal.length_ns, proposal.spread_ns,
                            kSamplesMax));
  }
  for (uint64_t i = 0; i < count; ++i) {
    const auto need = static_cast<uint32_t>(reader.Get(kNeedBytes));
    if (need > i) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("plan proposal: tensor {} needs {}, which is not before it", i,
                              uint64_t{need} - 1));
    }
    proposal.needs.push_back(need);
  }
  for (uint64_t i = 0; i < time_count; ++i) {
    TensorTimes times;
    times.ready_ns = reader.GetTime();
    times.due_ns = reader.GetTime();
    if (!IsTime(times.ready_ns) || !IsTime(times.due_ns)) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("plan proposal: tensor {} is ready at {} ns and due at {} ns", i,
                              times.ready_ns, times.due_ns));
    }
    proposal.times.push_back(times);
  }
  LMDBIO_TRY(proposal.samples, ReadSamples(reader, sample_count));
  return proposal;
}

Status CheckSameProposal(const PlanProposal& a, const PlanProposal& b) {
  if (a.epoch != b.epoch) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("plan proposals differ: epochs {} and {}", a.epoch, b.epoch));
  }
  if (a.needs.size() != b.needs.size()) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("plan proposals differ: {} and {} tensors",
                                                         a.needs.size(), b.needs.size()));
  }
  if (a.digest != b.digest) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("plan proposals differ: tensors or options with digests {:016x} and {:016x}",
                    a.digest, b.digest));
  }
  return {};
}

// A tensor must wait for every dependency that some rank has observed. The maximum covers all of
// them, because the plan puts the tensor behind every position up to that number.
Result<std::vector<std::byte>> MergeProposals(Bytes a, Bytes b) {
  LMDBIO_TRY(PlanProposal merged, ReadProposal(a));
  LMDBIO_TRY(PlanProposal other, ReadProposal(b));
  LMDBIO_TRY_VOID(CheckSameProposal(merged, other));
  for (size_t i = 0; i < merged.needs.size(); ++i) {
    merged.needs[i] = std::max(merged.needs[i], other.needs[i]);
  }
  if (other.times.empty()) merged.times.clear();
  for (size_t i = 0; i < merged.times.size(); ++i) {
    merged.times[i].ready_ns = std::max(merged.times[i].ready_ns, other.times[i].ready_ns);
    merged.times[i].due_ns = std::min(merged.times[i].due_ns, other.times[i].due_ns);
  }
  merged.length_ns = std::max(merged.length_ns, other.length_ns);
  merged.spread_ns = std::max(merged.spread_ns, other.spread_ns);
  if (!merged.samples.empty() && !other.samples.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "two plan proposals have times of transfers");
  }
  if (merged.samples.empty()) merged.samples = std::move(other.samples);
  return WriteProposal(merged);
}

}  // namespace lmdbio::sync
