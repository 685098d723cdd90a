#include "tests/ranks/group/group_checks.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <set>

#include <fmt/format.h>

namespace lmdbio::test {
namespace {

using ranks::Group;
using ranks::SharedMemory;

std::vector<std::byte> Pattern(int rank, size_t size_bytes) {
  std::vector<std::byte> bytes(size_bytes);
  for (size_t i = 0; i < size_bytes; ++i) bytes[i] = PatternByte(rank, i);
  return bytes;
}

void GathersEverybodysBytes(Group& group, Complaints& complaints) {
  for (const size_t size_bytes : {0U, 1U, 7U, 4096U, 100001U}) {
    const auto all = group.AllGather(Pattern(group.rank(), size_bytes));
    std::vector<std::byte> expected;
    for (int rank = 0; rank < group.size(); ++rank) {
      const auto theirs = Pattern(rank, size_bytes);
      expected.insert(expected.end(), theirs.begin(), theirs.end());
    }
    complaints.Expect(all.has_value() && *all == expected,
                      fmt::format("rank {}: gathering {} bytes", group.rank(), size_bytes));
  }
}

void BroadcastsFromEveryRoot(Group& group, Complaints& complaints) {
  for (int root = 0; root < group.size(); ++root) {
    for (const size_t size_bytes : {0U, 1U, 4097U, 100001U}) {
      auto bytes = Pattern(group.rank(), size_bytes);
      const std::string what =
          fmt::format("rank {}: {} bytes from {}", group.rank(), size_bytes, root);
      complaints.Expect(group.Broadcast(root, bytes), what);
      complaints.Expect(bytes == Pattern(root, size_bytes), what);
    }
  }
}

// The ranks of `part` are `expected`, in this order, and it works as a group.
void ExpectPart(Group& group, Group& part, const std::vector<int>& expected,
                Complaints& complaints) {
  const std::string what = fmt::format("rank {}: a part of {}", group.rank(), expected.size());
  complaints.Expect(part.size() == static_cast<int>(expected.size()), what + ": size");
  const auto place = std::find(expected.begin(), expected.end(), group.rank());
  complaints.Expect(part.rank() == place - expected.begin(), what + ": rank");
  const int rank = group.rank();
  const auto gathered = part.AllGather(std::as_bytes(std::span(&rank, 1)));
  const Bytes expected_bytes = std::as_bytes(std::span(expected));
  complaints.Expect(
      gathered.has_value() && std::equal(gathered->begin(), gathered->end(), expected_bytes.begin(),
                                         expected_bytes.end()),
      what + ": members");
}

void SplitsByAnyColor(Group& group, Complaints& complaints) {
  const auto colors = std::to_array<int (*)(int)>({
      [](int /*rank*/) { return 5; },
      [](int rank) { return rank; },
      [](int rank) { return -(rank % 2); },
      [](int rank) { return rank % 3 == 0 ? std::numeric_limits<int>::min() : 1 << 30; },
      [](int rank) { return std::numeric_limits<int>::max() - rank / 2; },
  });
  for (const auto color_of : colors) {
    std::vector<int> expected;
    for (int rank = 0; rank < group.size(); ++rank) {
      if (color_of(rank) == color_of(group.rank())) expected.push_back(rank);
    }
    const auto part = group.Split(color_of(group.rank()));
    complaints.Expect(part.has_value(), "Split failed");
    if (!part) return;
    ExpectPart(group, **part, expected, complaints);
    // A part can be split again, and its parts outlive it.
    auto halves = (*part)->Split((*part)->rank() < (*part)->size() / 2 ? 0 : 1);
    complaints.Expect(halves.has_value() && (*halves)->Barrier().has_value(), "a part of a part");
  }
}

// Every set of failing ranks for small groups; one, neighbours, some and all for larger ones.
std::vector<std::set<int>> FailureSets(int size) {
  std::vector<std::set<int>> sets;
  if (size <= 3) {
    for (int mask = 0; mask < 1 << size; ++mask) {
      sets.emplace_back();
      for (int rank = 0; rank < size; ++rank) {
        if ((mask >> rank & 1) != 0) sets.back().insert(rank);
      }
    }
    return sets;
  }
  sets.emplace_back();
  for (int rank = 0; rank < size; ++rank) {
    sets.push_back({rank});
    sets.push_back({rank, (rank + 1) % size});
    sets.push_back({rank, size - 1});
  }
  sets.emplace_back();
  for (int rank = 0; rank < size; ++rank) sets.back().insert(rank);
  return sets;
}

Status FailureOf(int rank) {
  const auto code = static_cast<ErrorCode>(1 + rank % 9);
  return Fail(code, fmt::format("data.mdb: {}", std::string(static_cast<size_t>(rank) * 700, 'x')),
              /*error_number=*/rank % 5);
}

// "rank 3", or "rank 3 on NAME" where there are several hosts.
std::vector<std::string> NamesOfRanks(Group& group) {
  std::array<char, 256> mine = {};
  group.host_name().copy(mine.data(), mine.size() - 1);
  const auto all = group.AllGather(std::as_bytes(std::span(mine)));
  std::vector<std::string> names;
  for (int rank = 0; all && rank < group.size(); ++rank) {
    const auto* const host =
        reinterpret_cast<const char*>(all->data() + static_cast<size_t>(rank) * mine.size());
    names.push_back(fmt::format("rank {}{}{}", rank, *host == '\0' ? "" : " on ", host));
  }
  return names;
}

void NamesHostsWhereThereAreSeveral(Group& group, Complaints& complaints) {
  const auto host = group.SplitByHost();
  if (!host) return complaints.Expect(false, "SplitByHost failed");
  complaints.Expect((*host)->host_name().empty(), "the group of a host names it");
  complaints.Expect(group.host_name().empty() == ((*host)->size() == group.size()), "host name");
}

void AgreesOnFailures(Group& group, Complaints& complaints) {
  const std::vector<std::string> names = NamesOfRanks(group);
  if (names.empty()) return complaints.Expect(false, "AllGather failed");
  for (const std::set<int>& failing : FailureSets(group.size())) {
    const bool fails = failing.contains(group.rank());
    const Status verdict = Agree(group, fails ? FailureOf(group.rank()) : Status());
    const std::string what = fmt::format("rank {}: verdict on {} failures, lowest {}", group.rank(),
                                         failing.size(), failing.empty() ? -1 : *failing.begin());
    complaints.Expect(verdict.has_value() == failing.empty(), what);
    if (verdict) continue;
    const Status expected =
        fails ? FailureOf(group.rank())
              : Fail(ErrorCode::kPeerFailed,
                     fmt::format("{}: {}", names[static_cast<size_t>(*failing.begin())],
                                 FailureOf(*failing.begin()).error().message()),
                     FailureOf(*failing.begin()).error().error_number());
    complaints.Expect(verdict.error().code() == expected.error().code(), what + ": code");
    complaints.Expect(verdict.error().message() == expected.error().message(), what + ": message");
    complaints.Expect(verdict.error().error_number() == expected.error().error_number(),
                      what + ": errno");
  }
}

// All but the last rank have only heard that something failed.
void TellsTheFailureBehindHearsay(Group& group, Complaints& complaints) {
  const std::vector<std::string> names = NamesOfRanks(group);
  const bool is_last = group.rank() == group.size() - 1;
  const Status verdict =
      Agree(group, is_last ? Fail(ErrorCode::kIo, "data.mdb: broken")
                           : Fail(ErrorCode::kPeerFailed, "another rank has failed"));
  const std::string expected = is_last ? "data.mdb: broken" : names.back() + ": data.mdb: broken";
  complaints.Expect(!verdict && verdict.error().message() == expected, "behind hearsay");
  // If no rank knows the cause, each failed rank keeps its own error, and the others get one of
  // them.
  const std::string heard = is_last ? "rank 7: gone" : "another rank has failed";
  const bool is_fine = group.rank() == 0 && group.size() > 1;
  const Status rumour = Agree(group, is_fine ? Status() : Fail(ErrorCode::kPeerFailed, heard));
  const std::string told = !is_fine ? heard : group.size() == 2 ? "rank 7: gone" : heard;
  complaints.Expect(!rumour && rumour.error().code() == ErrorCode::kPeerFailed &&
                        rumour.error().message() == told,
                    "hearsay alone");
}

// Each rank writes its stretch, all read everything, then the next rank writes it anew.
void ExpectShared(Group& host, SharedMemory& memory, Complaints& complaints) {
  const MutableBytes bytes = memory.bytes();
  const size_t stretch = bytes.size() / static_cast<size_t>(host.size());
  for (int turn = 0; turn < 2; ++turn) {
    const int writes = (host.rank() + turn) % host.size();
    for (size_t i = 0; i < stretch; ++i) {
      bytes[static_cast<size_t>(writes) * stretch + i] = PatternByte(host.rank() + turn, i);
    }
    complaints.Expect(host.Barrier(), "Barrier");
    for (int rank = 0; rank < host.size(); ++rank) {
      const int written = (rank + turn) % host.size();
      const Bytes seen = bytes.subspan(static_cast<size_t>(written) * stretch, stretch);
      const auto expected = Pattern(rank + turn, stretch);
      complaints.Expect(std::equal(seen.begin(), seen.end(), expected.begin()),
                        fmt::format("rank {}: what rank {} wrote", host.rank(), rank));
    }
    complaints.Expect(host.Barrier(), "Barrier");
  }
}

void SharesMemory(Group& group, Complaints& complaints) {
  const auto host = group.SplitByHost();
  complaints.Expect(host.has_value(), "SplitByHost failed");
  if (!host) return;
  const auto page_bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  for (const uint64_t size_bytes : {1U, 24U, 4096U, 4097U, 300007U}) {
    const auto memory = (*host)->AllocateShared(size_bytes);
    const std::string what = fmt::format("rank {}: {} shared bytes", group.rank(), size_bytes);
    complaints.Expect(memory.has_value(), what + (memory ? "" : ": " + memory.error().message()));
    if (!memory) return;
    const MutableBytes bytes = (*memory)->bytes();
    complaints.Expect(bytes.size() == size_bytes, what + ": size");
    complaints.Expect(reinterpret_cast<uintptr_t>(bytes.data()) % page_bytes == 0,
                      what + ": alignment");
    complaints.Expect(std::all_of(bytes.begin(), bytes.end(),
                                  [](std::byte byte) { return byte == std::byte{0}; }),
                      what + ": not zero at first");
    complaints.Expect((*host)->Barrier(), "Barrier");  // all have looked before anyone writes
    ExpectShared(**host, **memory, complaints);
  }
}

void KeepsMemoryBeyondItsGroup(Group& group, Complaints& complaints) {
  int host_rank = -1;
  Result<std::unique_ptr<SharedMemory>> memory = Fail(ErrorCode::kInternal, "not made");
  {
    const auto host = group.SplitByHost();
    if (!host) return complaints.Expect(false, "SplitByHost failed");
    host_rank = (*host)->rank();
    memory = (*host)->AllocateShared(10000);
  }
  if (!memory) return complaints.Expect(false, "AllocateShared failed");
  if (host_rank == 0) (*memory)->bytes()[9999] = std::byte{1};
  complaints.Expect(group.Barrier(), "Barrier");
  complaints.Expect((*memory)->bytes()[9999] == std::byte{1}, "memory without its group");
}

void SharesNoBytes(Group& group, Complaints& complaints) {
  const auto host = group.SplitByHost();
  if (!host) return complaints.Expect(false, "SplitByHost failed");
  const auto memory = (*host)->AllocateShared(0);
  complaints.Expect(memory.has_value() && (*memory)->bytes().empty(), "no shared bytes");
}

// Goal: all ranks get the failure, and the group can be used afterwards.
void RefusesMemoryThatIsNotThere(Group& group, Complaints& complaints) {
  const auto host = group.SplitByHost();
  if (!host) return complaints.Expect(false, "SplitByHost failed");
  for (const uint64_t size_bytes :
       {uint64_t{1} << 55, uint64_t{1} << 63, std::numeric_limits<uint64_t>::max()}) {
    const auto memory = (*host)->AllocateShared(size_bytes);
    complaints.Expect(!memory && memory.error().code() == ErrorCode::kResourceExhausted,
                      fmt::format("rank {}: {} bytes: {}", group.rank(), size_bytes,
                                  memory ? "granted" : memory.error().message()));
  }
  complaints.Expect((*host)->Barrier(), "Barrier");
}

// MPI itself would take rank 0's word and let the others write beyond the end.
void RefusesMemoryOfDifferentSizes(Group& group, Complaints& complaints) {
  const auto host = group.SplitByHost();
  if (!host) return complaints.Expect(false, "SplitByHost failed");
  const bool is_last = (*host)->rank() == (*host)->size() - 1;
  const auto memory = (*host)->AllocateShared(is_last ? 8192 : 4096);
  if ((*host)->size() == 1) return complaints.Expect(memory.has_value(), "memory of one rank");
  const std::string expected = fmt::format(
      "rank {} asks for 8192 bytes of shared memory, rank 0 for 4096", (*host)->size() - 1);
  complaints.Expect(!memory && memory.error().code() == ErrorCode::kInvalidArgument &&
                        memory.error().message() == expected,
                    fmt::format("rank {}: different sizes: {}", group.rank(),
                                memory ? "granted" : memory.error().message()));
  complaints.Expect((*host)->Barrier(), "Barrier");
}

void NeedsNoReleaseOnceAbandoned(Group& group, Complaints& complaints) {
  const auto host = group.SplitByHost();
  if (!host) return complaints.Expect(false, "SplitByHost failed");
  auto memory = (*host)->AllocateShared(5000);
  if (!memory) return complaints.Expect(false, "AllocateShared failed");
  (*memory)->Abandon();
  if (group.rank() == 0) memory->reset();
  complaints.Expect(group.Barrier(),
                    "Barrier");  // waits for ever if rank 0's release is collective
}

constexpr auto kChecks = std::to_array<GroupCheck>({
    {"gathers everybody's bytes", GathersEverybodysBytes},
    {"broadcasts from every root", BroadcastsFromEveryRoot},
    {"splits by any color", SplitsByAnyColor},
    {"agrees on failures", AgreesOnFailures},
    {"shares memory", SharesMemory},
    {"keeps memory beyond its group", KeepsMemoryBeyondItsGroup},
    {"shares no bytes", SharesNoBytes},
    {"refuses memory that is not there", RefusesMemoryThatIsNotThere},
    {"tells the failure behind hearsay", TellsTheFailureBehindHearsay},
    {"names hosts where there are several", NamesHostsWhereThereAreSeveral},
    {"refuses memory of different sizes", RefusesMemoryOfDifferentSizes},
    {"needs no release once abandoned", NeedsNoReleaseOnceAbandoned},
});

}  // namespace

std::span<const GroupCheck> GroupChecks() { return kChecks; }

std::byte PatternByte(int rank, size_t index) {
  const uint64_t mixed =
      (static_cast<uint64_t>(rank) + 1) * 0x9E3779B97F4A7C15U + index * 0xD1B54A32D192ED03U;
  return static_cast<std::byte>(mixed >> 56);
}

}  // namespace lmdbio::test
