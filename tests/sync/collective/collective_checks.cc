#include "tests/sync/collective/collective_checks.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <thread>

#include <fmt/format.h>

#include "lmdbio/ranks/group/thread_group.h"
#include "tests/support/random.h"
#include "tests/sync/reduce/number_oracle.h"

namespace lmdbio::test {
namespace {

using sync::CallOutcome;
using sync::CallTag;
using sync::Collectives;
using sync::DataType;
using sync::ReduceOp;
using sync::Reduction;

using ByteList = std::vector<std::byte>;

uint64_t Mixed(uint64_t rank, uint64_t index) {
  uint64_t z = rank * 0x9E3779B97F4A7C15U + index + 1;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  return z ^ (z >> 27);
}

// The value of rank `rank` at `index`; near 1 for products.
double RealAt(ReduceOp op, int rank, size_t index) {
  const auto number = static_cast<double>(Mixed(static_cast<uint64_t>(rank), index) % 2001);
  return op == ReduceOp::kProduct ? 1 + (number - 1000) / 9000 : (number - 1000) / 7;
}
uint64_t WholeAt(int rank, size_t index) { return Mixed(static_cast<uint64_t>(rank), index); }

void PutElement(DataType type, ReduceOp op, int rank, size_t index, std::byte* at) {
  const auto put = [at](auto value) { std::memcpy(at, &value, sizeof(value)); };
  const double real = RealAt(op, rank, index);
  switch (type) {
    case DataType::kFloat32:
      return put(static_cast<float>(real));
    case DataType::kFloat64:
      return put(real);
    case DataType::kFloat16:
      return put(Encode(kHalf, real));
    case DataType::kBFloat16:
      return put(Encode(kBrainHalf, real));
    case DataType::kInt32:
      return put(static_cast<int32_t>(WholeAt(rank, index)));
    case DataType::kInt64:
      return put(static_cast<int64_t>(WholeAt(rank, index)));
  }
}

ByteList ElementsOf(DataType type, ReduceOp op, int rank, size_t count) {
  const size_t bytes = sync::ElementBytes(type);
  ByteList values(count * bytes);
  for (size_t i = 0; i < count; ++i) PutElement(type, op, rank, i, values.data() + i * bytes);
  return values;
}

double RealOf(DataType type, const std::byte* at) {
  switch (type) {
    case DataType::kFloat32:
      return static_cast<double>(ElementAt<float>(at, 0));
    case DataType::kFloat64:
      return ElementAt<double>(at, 0);
    case DataType::kFloat16:
      return Decode(kHalf, ElementAt<uint16_t>(at, 0));
    default:
      return Decode(kBrainHalf, ElementAt<uint16_t>(at, 0));
  }
}

// The distance between neighbours, of numbers about 1.
double Grain(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return std::ldexp(1, -23);
    case DataType::kFloat64:
      return std::ldexp(1, -52);
    case DataType::kFloat16:
      return std::ldexp(1, -10);
    default:
      return std::ldexp(1, -7);
  }
}

bool IsWholeRight(DataType type, const Reduction& reduction, int rank_count, size_t index,
                  const std::byte* at) {
  const ReduceOp op = reduction.op;
  if (type == DataType::kInt32) {
    auto expected = static_cast<int32_t>(WholeAt(0, index));
    for (int r = 1; r < rank_count; ++r) {
      expected =
          CombineWhole<int32_t, uint32_t>(op, expected, static_cast<int32_t>(WholeAt(r, index)));
    }
    return ElementAt<int32_t>(at, 0) == ScaleNumber(expected, reduction.scale);
  }
  auto expected = static_cast<int64_t>(WholeAt(0, index));
  for (int r = 1; r < rank_count; ++r) {
    expected =
        CombineWhole<int64_t, uint64_t>(op, expected, static_cast<int64_t>(WholeAt(r, index)));
  }
  return ElementAt<int64_t>(at, 0) == ScaleNumber(expected, reduction.scale);
}

// Whether an element is the reduction of all ranks', in any order, rounded after each step, and
// scaled at the end, by a scale that may be rounded, too.
bool IsReduced(DataType type, const Reduction& reduction, int rank_count, size_t index,
               const std::byte* at) {
  if (!sync::IsFloating(type)) return IsWholeRight(type, reduction, rank_count, index, at);
  const ReduceOp op = reduction.op;
  std::array<std::byte, 8> element{};
  double expected = 0;
  double size = 0;
  for (int r = 0; r < rank_count; ++r) {
    PutElement(type, op, r, index, element.data());
    const double real = RealOf(type, element.data());
    expected = r == 0 ? real : Combine(op, expected, real);
    size += std::fabs(real);
  }
  const bool is_exact = op == ReduceOp::kMin || op == ReduceOp::kMax || rank_count == 1;
  const int step_count = (is_exact ? 0 : rank_count) + (reduction.scale == 1 ? 0 : 2);
  const double error = 1.01 * step_count * Grain(type) * size * std::fabs(reduction.scale);
  return std::fabs(RealOf(type, at) - expected * reduction.scale) <= error;
}

// The index of the first element that is wrong, or `count`. Elements of a rank begin at `first`.
size_t FirstWrong(DataType type, const Reduction& reduction, int rank_count, Bytes values,
                  size_t first = 0) {
  const size_t bytes = sync::ElementBytes(type);
  const size_t count = values.size() / bytes;
  for (size_t i = 0; i < count; ++i) {
    if (!IsReduced(type, reduction, rank_count, first + i, values.data() + i * bytes)) return i;
  }
  return count;
}

uint64_t DigestOf(Bytes bytes) {
  uint64_t digest = 14695981039346656037U;
  for (const std::byte byte : bytes)
    digest = (digest ^ static_cast<uint64_t>(byte)) * 1099511628211U;
  return digest;
}

CallTag TagOf(std::string_view what, bool is_declined = false) {
  return {.digest = DigestOf(std::as_bytes(std::span(what))), .is_declined = is_declined};
}

void ExpectOutcome(const Result<CallOutcome>& got, CallOutcome wanted, const std::string& what,
                   Complaints& complaints) {
  if (!got) return complaints.Expect(false, what + ": " + got.error().message());
  complaints.Expect(*got == wanted, what + (wanted == CallOutcome::kDone ? ": was declined"
                                                                         : ": was not declined"));
}
void ExpectDone(const Result<CallOutcome>& got, const std::string& what, Complaints& complaints) {
  ExpectOutcome(got, CallOutcome::kDone, what, complaints);
}

void ExpectSameEverywhere(Collectives& all, Bytes values, const std::string& what,
                          Complaints& complaints) {
  const uint64_t mine = DigestOf(values);
  std::vector<uint64_t> digests(static_cast<size_t>(all.size()));
  const std::vector<uint64_t> parts(digests.size(), sizeof(mine));
  ExpectDone(all.AllGather(TagOf("digests"), std::as_bytes(std::span(&mine, 1)),
                           std::as_writable_bytes(std::span(digests)), parts),
             what, complaints);
  for (const uint64_t theirs : digests) complaints.Expect(theirs == mine, what + ": other bits");
}

void AllReduceOnce(Collectives& all, DataType type, const Reduction& reduction, size_t count,
                   std::byte* place, Complaints& complaints) {
  const auto what = fmt::format("AllReduce {} {} x {}, scaled by {}", sync::NameOf(reduction.op),
                                sync::NameOf(type), count, reduction.scale);
  ByteList own;
  const size_t bytes = count * sync::ElementBytes(type);
  const ByteList mine = ElementsOf(type, reduction.op, all.rank(), count);
  if (place == nullptr) {
    own.resize(bytes + 1);
    place = own.data();
  }
  if (bytes > 0) std::memcpy(place, mine.data(), bytes);
  ExpectDone(all.AllReduce(TagOf(what), {place, count, type}, reduction), what, complaints);
  const size_t wrong = FirstWrong(type, reduction, all.size(), {place, bytes});
  complaints.Expect(wrong == count, fmt::format("{}: element {} is wrong", what, wrong));
  ExpectSameEverywhere(all, {place, bytes}, what, complaints);
}

void AllReduceSmall(Collectives& all, const CollectiveSizes& sizes, Complaints& complaints) {
  for (const DataType type : kTypes) {
    for (const ReduceOp op : kOps) {
      for (const size_t bytes : sizes.small) {
        AllReduceOnce(all, type, op, bytes / sync::ElementBytes(type), nullptr, complaints);
      }
    }
  }
}

void AllReduceLarge(Collectives& all, const CollectiveSizes& sizes, Complaints& complaints) {
  for (const size_t bytes : sizes.large) {
    AllReduceOnce(all, DataType::kFloat32, ReduceOp::kSum, bytes / 4, nullptr, complaints);
    AllReduceOnce(all, DataType::kInt64, ReduceOp::kProduct, bytes / 8, nullptr, complaints);
    AllReduceOnce(all, DataType::kInt32, ReduceOp::kMin, bytes / 4, nullptr, complaints);
    AllReduceOnce(all, DataType::kBFloat16, ReduceOp::kSum, bytes / 8, nullptr, complaints);
  }
}

// In memory that the others can look into: at one place on all ranks, and at several.
void AllReduceRegistered(Collectives& all, const CollectiveSizes& sizes, Complaints& complaints) {
  const MutableBytes registered = all.registered();
  std::vector<size_t> all_sizes = sizes.small;
  all_sizes.insert(all_sizes.end(), sizes.large.begin(), sizes.large.end());
  for (const size_t bytes : all_sizes) {
    const size_t shift = 64 * static_cast<size_t>(all.rank());
    // Whether there is room is the same on every rank.
    if (registered.size() < bytes + 64 * static_cast<size_t>(all.size()) + 64) continue;
    AllReduceOnce(all, DataType::kFloat32, ReduceOp::kSum, bytes / 4, registered.data() + 64,
                  complaints);
    AllReduceOnce(all, DataType::kFloat16, ReduceOp::kMax, bytes / 2, registered.data() + 2,
                  complaints);
    AllReduceOnce(all, DataType::kFloat32, ReduceOp::kSum, bytes / 4, registered.data() + shift,
                  complaints);
    AllReduceOnce(all, DataType::kInt32, ReduceOp::kSum, bytes / 4,
                  all.rank() == 0 ? registered.data() : nullptr, complaints);
  }
}

// Scaled once, on every rank alike; of odd numbers of elements.
void AllReduceScaled(Collectives& all, const CollectiveSizes& sizes, Complaints& complaints) {
  for (const DataType type : kTypes) {
    for (const ReduceOp op : kOps) {
      for (const size_t count : {size_t{1}, size_t{7}, sizes.small.back() | 1}) {
        AllReduceOnce(all, type, {op, -0.7}, count, nullptr, complaints);
      }
    }
  }
  const Reduction average(ReduceOp::kSum, 1.0 / (all.size() + 1));
  const size_t count = sizes.large.back() / sizeof(float) - 1;
  AllReduceOnce(all, DataType::kFloat32, average, count, nullptr, complaints);
  AllReduceOnce(all, DataType::kBFloat16, average, count, nullptr, complaints);
  if (all.registered().size() < sizes.large.back()) return;
  AllReduceOnce(all, DataType::kFloat32, average, count, all.registered().data(), complaints);
}

// Parts with a sum of about `total`. With an odd `pattern` some of them are empty.
std::vector<uint64_t> PartsOf(uint64_t total, int rank_count, int pattern) {
  std::vector<uint64_t> parts;
  for (int r = 0; r < rank_count; ++r) {
    const uint64_t even = total / static_cast<uint64_t>(rank_count);
    const bool is_empty = pattern % 2 == 1 && r % 3 == 1;
    parts.push_back(is_empty ? 0 : even + static_cast<uint64_t>(pattern * r) % 7);
  }
  return parts;
}
uint64_t Before(const std::vector<uint64_t>& parts, int rank) {
  return std::accumulate(parts.begin(), parts.begin() + rank, uint64_t{0});
}
uint64_t TotalOf(const std::vector<uint64_t>& parts) {
  return Before(parts, static_cast<int>(parts.size()));
}

enum class ResultPlacement { kApart, kOwnPart, kFront };

void ReduceScatterOnce(Collectives& all, DataType type, const std::vector<uint64_t>& counts,
                       ResultPlacement where, Complaints& complaints, double scale = 1) {
  const Reduction reduction(ReduceOp::kSum, scale);
  const size_t bytes = sync::ElementBytes(type);
  const uint64_t total = TotalOf(counts);
  const auto what =
      fmt::format("ReduceScatter {} x {}, scaled by {}", sync::NameOf(type), total, scale);
  ByteList input = ElementsOf(type, reduction.op, all.rank(), total);
  input.resize(input.size() + 1);
  const uint64_t first = Before(counts, all.rank());
  const uint64_t mine = counts[static_cast<size_t>(all.rank())];
  ByteList apart(mine * bytes + 1);
  std::byte* const output = where == ResultPlacement::kApart     ? apart.data()
                            : where == ResultPlacement::kOwnPart ? input.data() + first * bytes
                                                                 : input.data();
  ExpectDone(all.ReduceScatter(TagOf(what), {input.data(), total, type}, output, counts, reduction),
             what, complaints);
  const size_t wrong = FirstWrong(type, reduction, all.size(), {output, mine * bytes}, first);
  complaints.Expect(wrong == mine, fmt::format("{}: element {} is wrong", what, wrong));
}

std::vector<size_t> AllSizes(const CollectiveSizes& sizes) {
  std::vector<size_t> list = sizes.small;
  list.insert(list.end(), sizes.large.begin(), sizes.large.end());
  return list;
}

void ReduceScatters(Collectives& all, const CollectiveSizes& sizes, Complaints& complaints) {
  for (const size_t bytes : AllSizes(sizes)) {
    for (const int pattern : {0, 1, 2}) {
      const auto counts = PartsOf(bytes / 4, all.size(), pattern);
      ReduceScatterOnce(all, DataType::kFloat32, counts, ResultPlacement::kApart, complaints);
      ReduceScatterOnce(all, DataType::kInt32, counts, ResultPlacement::kOwnPart, complaints);
      ReduceScatterOnce(all, DataType::kFloat16, counts, ResultPlacement::kFront, complaints);
    }
  }
}

void ReduceScattersScaled(Collectives& all, const CollectiveSizes& sizes, Complaints& complaints) {
  for (const size_t bytes : {sizes.small.back(), sizes.large.front()}) {
    for (size_t i = 0; i < kTypes.size(); ++i) {
      const auto pattern = static_cast<int>(i % 3);
      const auto counts = PartsOf(bytes / sync::ElementBytes(kTypes[i]), all.size(), pattern);
      const auto where = std::array{ResultPlacement::kApart, ResultPlacement::kOwnPart,
                                    ResultPlacement::kFront}[i % 3];
      ReduceScatterOnce(all, kTypes[i], counts, where, complaints, -0.7);
    }
  }
}

// The values move between the two calls, and another call comes between.
void ReduceByHalves(Collectives& all, DataType type, const Reduction& reduction, size_t count,
                    Complaints& complaints) {
  const auto what = fmt::format("by halves: {} {} x {}, scaled by {}", sync::NameOf(reduction.op),
                                sync::NameOf(type), count, reduction.scale);
  ByteList before = ElementsOf(type, reduction.op, all.rank(), count);
  const size_t bytes = before.size();
  before.resize(bytes + 1);
  ExpectDone(all.ReduceToParts(TagOf(what), {before.data(), count, type}, reduction),
             what + ", ReduceToParts", complaints);
  ExpectDone(all.Barrier(TagOf("between halves")), what + ", Barrier", complaints);
  ByteList after = before;
  ExpectDone(all.GatherParts(TagOf(what), {after.data(), count, type}), what + ", GatherParts",
             complaints);
  const size_t wrong = FirstWrong(type, reduction, all.size(), {after.data(), bytes});
  complaints.Expect(wrong == count, fmt::format("{}: element {} is wrong", what, wrong));
  ExpectSameEverywhere(all, {after.data(), bytes}, what, complaints);
}

void Halves(Collectives& all, const CollectiveSizes& sizes, Complaints& complaints) {
  for (const size_t bytes : AllSizes(sizes)) {
    ReduceByHalves(all, DataType::kFloat32, ReduceOp::kSum, bytes / 4, complaints);
    ReduceByHalves(all, DataType::kInt64, ReduceOp::kMax, bytes / 8, complaints);
    ReduceByHalves(all, DataType::kFloat16, {ReduceOp::kSum, -0.7}, bytes / 2, complaints);
  }
}

void FillPattern(int rank, MutableBytes bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(Mixed(static_cast<uint64_t>(rank), i));
  }
}
bool HasPattern(int rank, Bytes bytes, size_t first = 0) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != static_cast<std::byte>(Mixed(static_cast<uint64_t>(rank), first + i))) {
      return false;
    }
  }
  return true;
}

void AllGatherOnce(Collectives& all, const std::vector<uint64_t>& parts, ResultPlacement where,
                   Complaints& complaints) {
  const auto what = fmt::format("AllGather of {} bytes", TotalOf(parts));
  ByteList everything(TotalOf(parts) + 1, std::byte{0});
  const MutableBytes out(everything.data(), TotalOf(parts));
  const auto part = [&](int rank) {
    return out.subspan(Before(parts, rank), parts[static_cast<size_t>(rank)]);
  };
  ByteList apart(part(all.rank()).size() + 1);
  const MutableBytes mine = where == ResultPlacement::kApart
                                ? MutableBytes(apart.data(), part(all.rank()).size())
                                : part(all.rank());
  FillPattern(all.rank(), mine);
  ExpectDone(all.AllGather(TagOf(what), mine, out, parts), what, complaints);
  for (int r = 0; r < all.size(); ++r) {
    complaints.Expect(HasPattern(r, part(r)), fmt::format("{}: part {} is wrong", what, r));
  }
}

void AllGathers(Collectives& all, const CollectiveSizes& sizes, Complaints& complaints) {
  for (const size_t bytes : AllSizes(sizes)) {
    for (const int pattern : {0, 1, 2}) {
      const auto parts = PartsOf(bytes, all.size(), pattern);
      AllGatherOnce(all, parts, ResultPlacement::kApart, complaints);
      AllGatherOnce(all, parts, ResultPlacement::kOwnPart, complaints);
    }
  }
}

void Broadcasts(Collectives& all, const CollectiveSizes& sizes, Complaints& complaints) {
  for (const size_t bytes : AllSizes(sizes)) {
    for (int root = 0; root < all.size(); ++root) {
      const auto what = fmt::format("Broadcast of {} bytes from {}", bytes, root);
      ByteList place(bytes + 1);
      const MutableBytes out(place.data(), bytes);
      FillPattern(all.rank() == root ? root : root + 100, out);
      ExpectDone(all.Broadcast(TagOf(what), out, root), what, complaints);
      complaints.Expect(HasPattern(root, out), what + ": wrong bytes");
    }
  }
}

// The bytes from one rank to another.
uint64_t SentBytes(size_t bytes, int from, int to, int pattern) {
  if (pattern == 1 && (from + to) % 3 == 0) return 0;
  return bytes / 4 + static_cast<uint64_t>(pattern * (3 * from + to));
}

void AllToAllOnce(Collectives& all, size_t bytes, int pattern, Complaints& complaints) {
  const auto what = fmt::format("AllToAll of about {} bytes, pattern {}", bytes, pattern);
  std::vector<uint64_t> sent;
  std::vector<uint64_t> received;
  for (int r = 0; r < all.size(); ++r) {
    sent.push_back(SentBytes(bytes, all.rank(), r, pattern));
    received.push_back(SentBytes(bytes, r, all.rank(), pattern));
  }
  ByteList from(TotalOf(sent) + 1);
  ByteList to(TotalOf(received) + 1);
  FillPattern(all.rank(), {from.data(), TotalOf(sent)});
  ExpectDone(all.AllToAll(TagOf(what), {from.data(), TotalOf(sent)}, sent,
                          {to.data(), TotalOf(received)}, received),
             what, complaints);
  for (int r = 0; r < all.size(); ++r) {
    uint64_t first = 0;
    for (int i = 0; i < all.rank(); ++i) first += SentBytes(bytes, r, i, pattern);
    const Bytes part(to.data() + Before(received, r), received[static_cast<size_t>(r)]);
    complaints.Expect(HasPattern(r, part, first), fmt::format("{}: part {} is wrong", what, r));
  }
}

void AllToAlls(Collectives& all, const CollectiveSizes& sizes, Complaints& complaints) {
  for (const size_t bytes : AllSizes(sizes)) {
    for (const int pattern : {0, 1, 2}) AllToAllOnce(all, bytes, pattern, complaints);
  }
}

// Makes one call of each kind with `tag`, with about `bytes` bytes for each rank. An output that
// must not be written must keep its values.
void ExpectOneOfEach(Collectives& all, const CallTag& tag, size_t bytes, CallOutcome wanted,
                     const std::string& what, Complaints& complaints) {
  const auto rank_count = static_cast<size_t>(all.size());
  const std::vector<uint64_t> parts(rank_count, bytes);
  const std::vector<uint64_t> counts(rank_count, bytes / 4);
  ByteList input(rank_count * bytes + 1, std::byte{1});
  ByteList output(rank_count * bytes + 1, std::byte{7});
  const sync::DataType type = DataType::kFloat32;
  const MutableBytes out(output.data(), rank_count * bytes);
  const Bytes in(input.data(), rank_count * bytes);
  ExpectOutcome(all.AllReduce(tag, {out.data(), counts[0], type}, ReduceOp::kSum), wanted,
                what + "AllReduce", complaints);
  ExpectOutcome(all.ReduceScatter(tag, {input.data(), rank_count * counts[0], type}, out.data(),
                                  counts, ReduceOp::kSum),
                wanted, what + "ReduceScatter", complaints);
  ExpectOutcome(all.ReduceToParts(tag, {out.data(), counts[0], type}, ReduceOp::kSum), wanted,
                what + "ReduceToParts", complaints);
  ExpectOutcome(all.GatherParts(tag, {out.data(), counts[0], type}), wanted, what + "GatherParts",
                complaints);
  ExpectOutcome(all.AllGather(tag, in.first(bytes), out, parts), wanted, what + "AllGather",
                complaints);
  ExpectOutcome(all.Broadcast(tag, out, all.size() - 1), wanted, what + "Broadcast", complaints);
  ExpectOutcome(all.AllToAll(tag, in, parts, out, parts), wanted, what + "AllToAll", complaints);
  // A barrier has no size of its own.
  ExpectOutcome(all.Barrier({tag.digest + bytes, tag.is_declined}), wanted, what + "Barrier",
                complaints);
  if (wanted == CallOutcome::kDone) return;
  complaints.Expect(
      std::all_of(out.begin(), out.end(), [](std::byte byte) { return byte == std::byte{7}; }),
      what + "wrote");
}

void Declines(Collectives& all, const CollectiveSizes& sizes, Complaints& complaints) {
  for (const size_t bytes : {size_t{0}, size_t{8}, sizes.large.back() & ~size_t{3}}) {
    for (int who = 0; who < all.size(); ++who) {
      const auto what = fmt::format("declined by {}, {} bytes: ", who, bytes);
      const CallTag tag = TagOf("declined", all.rank() == who);
      ExpectOneOfEach(all, tag, bytes, CallOutcome::kDeclined, what, complaints);
      ExpectOutcome(all.Barrier(tag), CallOutcome::kDeclined, what + "Barrier", complaints);
    }
    ExpectOneOfEach(all, TagOf("declined"), bytes, CallOutcome::kDone, "afterwards: ", complaints);
  }
}

void OtherDigests(Collectives& all, const CollectiveSizes& sizes, Complaints& complaints) {
  if (all.size() == 1) return;
  for (const size_t bytes : {size_t{8}, sizes.large.back() & ~size_t{3}}) {
    const CallTag tag = TagOf(all.rank() == all.size() - 1 ? "one thing" : "another");
    ExpectOneOfEach(all, tag, bytes, CallOutcome::kDeclined, "other digest: ", complaints);
    ExpectOutcome(all.Barrier(tag), CallOutcome::kDeclined, "other digest: Barrier", complaints);
    ExpectOneOfEach(all, TagOf("same"), bytes, CallOutcome::kDone, "afterwards: ", complaints);
  }
}

void OtherSizes(Collectives& all, const CollectiveSizes& sizes, Complaints& complaints) {
  if (all.size() == 1) return;
  const bool is_odd_one = all.rank() == all.size() / 2;
  const size_t large = sizes.large.back() & ~size_t{3};
  const std::vector<std::pair<size_t, size_t>> pairs{
      {4, 8}, {0, 4}, {40, large}, {large, large - 4}};
  for (const auto& [one, other] : pairs) {
    const auto what = fmt::format("{} bytes and {}: ", one, other);
    ExpectOneOfEach(all, TagOf("sizes"), is_odd_one ? other : one, CallOutcome::kDeclined, what,
                    complaints);
    ExpectOneOfEach(all, TagOf("sizes"), one, CallOutcome::kDone, "afterwards: ", complaints);
  }
}

void OtherScales(Collectives& all, const CollectiveSizes& sizes, Complaints& complaints) {
  if (all.size() == 1) return;
  const Reduction mine(ReduceOp::kSum, all.rank() == all.size() / 2 ? 0.5 : 0.25);
  for (const size_t bytes : {size_t{8}, sizes.large.back() & ~size_t{3}}) {
    const std::vector<uint64_t> counts(static_cast<size_t>(all.size()), bytes / 4);
    ByteList values(bytes * counts.size(), std::byte{1});
    ByteList output(bytes, std::byte{1});
    ExpectOutcome(
        all.AllReduce(TagOf("scales"), {values.data(), bytes / 4, DataType::kFloat32}, mine),
        CallOutcome::kDeclined, "other scale: AllReduce", complaints);
    ExpectOutcome(
        all.ReduceScatter(TagOf("scales"), {values.data(), values.size() / 4, DataType::kFloat32},
                          output.data(), counts, mine),
        CallOutcome::kDeclined, "other scale: ReduceScatter", complaints);
    ExpectOutcome(
        all.ReduceToParts(TagOf("scales"), {values.data(), bytes / 4, DataType::kFloat32}, mine),
        CallOutcome::kDeclined, "other scale: ReduceToParts", complaints);
    const auto is_kept = [](std::byte byte) { return byte == std::byte{1}; };
    complaints.Expect(std::ranges::all_of(values, is_kept) && std::ranges::all_of(output, is_kept),
                      "other scale: wrote");
    ExpectOneOfEach(all, TagOf("same"), bytes, CallOutcome::kDone, "afterwards: ", complaints);
  }
}

// Calls of all kinds in a random order, without a pause.
void Mixture(Collectives& all, const CollectiveSizes& sizes, Complaints& complaints) {
  Random random(4711);
  for (int i = 0; i < 300; ++i) {
    const size_t bytes = random.Below(50) == 0 ? sizes.large.back() / (1 + random.Below(9))
                                               : random.Below(i % 2 == 0 ? 64 : 5000);
    const auto pattern = static_cast<int>(random.Below(3));
    const auto kind = random.Below(8);
    const auto parts = PartsOf(bytes / 4, all.size(), pattern);
    if (kind <= 1) {
      AllReduceOnce(all, DataType::kFloat32, ReduceOp::kSum, bytes / 4, nullptr, complaints);
    } else if (kind == 2) {
      ReduceScatterOnce(all, DataType::kInt32, parts, ResultPlacement::kOwnPart, complaints);
    } else if (kind == 3) {
      AllGatherOnce(all, parts, ResultPlacement::kApart, complaints);
    } else if (kind == 4) {
      AllToAllOnce(all, bytes / 4, pattern, complaints);
    } else if (kind == 5) {
      ExpectDone(all.Barrier(TagOf("mixture")), "Barrier", complaints);
    } else if (kind == 6) {
      ReduceByHalves(all, DataType::kFloat32, ReduceOp::kSum, bytes / 4, complaints);
    } else {
      ExpectOutcome(
          all.Barrier(TagOf("mixture", static_cast<int>(bytes) % all.size() == all.rank())),
          CallOutcome::kDeclined, "declined Barrier", complaints);
    }
  }
}

constexpr std::array kChecks{
    CollectiveCheck{"AllReduce of every type", AllReduceSmall},
    CollectiveCheck{"AllReduce of many bytes", AllReduceLarge},
    CollectiveCheck{"AllReduce of registered memory", AllReduceRegistered},
    CollectiveCheck{"AllReduce, scaled", AllReduceScaled},
    CollectiveCheck{"ReduceScatter", ReduceScatters},
    CollectiveCheck{"ReduceScatter, scaled", ReduceScattersScaled},
    CollectiveCheck{"ReduceToParts and GatherParts", Halves},
    CollectiveCheck{"AllGather", AllGathers},
    CollectiveCheck{"Broadcast", Broadcasts},
    CollectiveCheck{"AllToAll", AllToAlls},
    CollectiveCheck{"a rank declines", Declines},
    CollectiveCheck{"digests differ", OtherDigests},
    CollectiveCheck{"sizes differ", OtherSizes},
    CollectiveCheck{"scales differ", OtherScales},
    CollectiveCheck{"calls of all kinds", Mixture},
};

}  // namespace

std::span<const CollectiveCheck> CollectiveChecks() { return kChecks; }

void CheckStop(Collectives& all, Complaints& complaints) {
  if (all.rank() == all.size() - 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    all.Stop(Error(ErrorCode::kInternal, "the disk is full of bees"));
  }
  for (int i = 0; i < 2; ++i) {
    float value = 1;
    const auto got = all.AllReduce(TagOf("stopped"),
                                   {reinterpret_cast<std::byte*>(&value), 1, DataType::kFloat32},
                                   ReduceOp::kSum);
    complaints.Expect(!got && got.error().code() == ErrorCode::kPeerFailed, "goes on after Stop");
    if (got) return;
    complaints.Expect(got.error().message().find("full of bees") != std::string::npos,
                      "after Stop, without its words: " + got.error().message());
  }
}

std::vector<std::string> RunCollectiveChecks(int rank_count, const CollectivesFactory& make,
                                             const CollectiveSizes& sizes) {
  std::vector<Complaints> complaints(static_cast<size_t>(rank_count));
  ranks::RunAsThreads({.rank_count = rank_count}, [&](ranks::Group& group) {
    Complaints& mine = complaints[static_cast<size_t>(group.rank())];
    const std::unique_ptr<Collectives> all = make(group);
    mine.Expect(all != nullptr, "no object");
    if (all == nullptr) return;
    for (const CollectiveCheck& check : CollectiveChecks()) check.run(*all, sizes, mine);
    if (rank_count > 1) CheckStop(*all, mine);
  });
  std::vector<std::string> list;
  for (const Complaints& one : complaints)
    list.insert(list.end(), one.list().begin(), one.list().end());
  return list;
}

}  // namespace lmdbio::test
