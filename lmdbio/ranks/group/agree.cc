// An agreement has two steps; without a failure only the first:
//
//   AllGather   {code, errno, length of the text} of every rank; code 0 is success
//   Broadcast   the text of one failed rank, the reporter: the lowest rank with a failure of its
//               own, or else the lowest rank that knows of a failure of another rank
//
// Every rank sees the same codes and lengths. So all ranks take the second step, or none does.
#include <algorithm>
#include <cstring>
#include <string>

#include <fmt/format.h>

#include "lmdbio/ranks/group/group.h"

namespace lmdbio::ranks {
namespace {

struct AgreedFailure {
  int32_t code = 0;
  int32_t error_number = 0;
  uint64_t text_bytes = 0;
};

// The text of a failure is a line. More bytes come from no rank of this version, and are not
// allocated.
constexpr uint64_t kTextBytesMax = uint64_t{1} << 20;

// Whether a rank failed only because another rank had failed before.
bool IsSecondHand(const AgreedFailure& verdict) {
  return verdict.code == static_cast<int32_t>(ErrorCode::kPeerFailed);
}

// The failure of a rank in the words for the other ranks.
std::string TextOf(const Group& group, const Error& error) {
  if (error.code() == ErrorCode::kPeerFailed) return error.message();  // names a rank already
  const std::string where = group.host_name().empty() ? "" : " on " + group.host_name();
  return fmt::format("rank {}{}: {}", group.rank(), where, error.message());
}

struct FailureReporter {
  int rank = -1;
  AgreedFailure verdict;
};

// The rank whose failure all ranks report; rank -1 if no rank failed.
FailureReporter ChooseReporter(Bytes gathered) {
  FailureReporter reporter;
  for (size_t rank = 0; rank < gathered.size() / sizeof(AgreedFailure); ++rank) {
    AgreedFailure verdict;
    std::memcpy(&verdict, &gathered[rank * sizeof(AgreedFailure)], sizeof(AgreedFailure));
    if (verdict.code == 0 || (reporter.rank >= 0 && IsSecondHand(verdict))) continue;
    reporter = {static_cast<int>(rank), verdict};
    if (!IsSecondHand(verdict)) break;
  }
  return reporter;
}

}  // namespace

Status Agree(Group& group, Status mine) {
  std::string my_text = mine ? "" : TextOf(group, mine.error());
  my_text.resize(std::min<uint64_t>(my_text.size(), kTextBytesMax));
  AgreedFailure my_verdict;
  if (!mine) {
    my_verdict = {static_cast<int32_t>(mine.error().code()), mine.error().error_number(),
                  my_text.size()};
  }
  auto gathered = group.AllGather(std::as_bytes(std::span(&my_verdict, 1)));
  if (!gathered && mine) return Fail(std::move(gathered).error());
  if (!gathered) return mine;
  const FailureReporter reporter = ChooseReporter(*gathered);
  if (reporter.rank < 0) return {};
  if (reporter.verdict.text_bytes > kTextBytesMax) {
    return Fail(ErrorCode::kInternal,
                fmt::format("rank {} has sent a malformed failure", reporter.rank));
  }
  std::string text(reporter.verdict.text_bytes, '\0');
  if (reporter.rank == group.rank()) text = my_text;
  Status sent = group.Broadcast(reporter.rank, std::as_writable_bytes(std::span(text)));
  // A rank keeps its own failure, unless it is second-hand and the reporter has the cause.
  if (!mine && (!IsSecondHand(my_verdict) || IsSecondHand(reporter.verdict) || !sent)) return mine;
  if (!sent) return sent;
  return Fail(ErrorCode::kPeerFailed, std::move(text), reporter.verdict.error_number);
}

Status AgreeOnWords(Group& group, std::string_view what, const std::string& mine) {
  uint64_t size = mine.size();
  LMDBIO_TRY_VOID(group.Broadcast(0, std::as_writable_bytes(std::span(&size, 1))));
  std::string first = mine;
  first.resize(size);
  LMDBIO_TRY_VOID(group.Broadcast(0, std::as_writable_bytes(std::span(first))));
  if (mine == first) return Agree(group, {});
  return Agree(group,
               Fail(ErrorCode::kInvalidArgument,
                    fmt::format("{} differ from those of rank 0: this rank has {}; rank 0 has {}",
                                what, mine, first)));
}

}  // namespace lmdbio::ranks
