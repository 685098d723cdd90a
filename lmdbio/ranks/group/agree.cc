// Two steps, and only the first where all is well:
//
//   AllGather   {code, errno, length of the text} of every rank; code 0 is success
//   Broadcast   the text of the rank that speaks for all: the lowest that failed by itself, or the
//               lowest that knows of another's failure only
//
// Every rank sees the same codes and lengths, so all of them take the second step or none does.
#include <cstring>
#include <string>

#include <fmt/format.h>

#include "lmdbio/ranks/group/group.h"

namespace lmdbio::ranks {
namespace {

struct Verdict {
  int32_t code = 0;
  int32_t error_number = 0;
  uint64_t text_bytes = 0;
};

// Whether a rank has failed only because it heard of another's failure.
bool IsHearsay(const Verdict& verdict) {
  return verdict.code == static_cast<int32_t>(ErrorCode::kPeerFailed);
}

// What others are told of a rank's failure.
std::string TextOf(const Group& group, const Error& error) {
  if (error.code() == ErrorCode::kPeerFailed) return error.message();  // it names a rank
  const std::string where = group.host_name().empty() ? "" : " on " + group.host_name();
  return fmt::format("rank {}{}: {}", group.rank(), where, error.message());
}

struct FailureReporter {
  int rank = -1;
  Verdict verdict;
};

// Who speaks for all ranks that have failed; nobody if none has.
FailureReporter ChooseSpeaker(Bytes gathered) {
  FailureReporter speaker;
  for (size_t rank = 0; rank < gathered.size() / sizeof(Verdict); ++rank) {
    Verdict verdict;
    std::memcpy(&verdict, &gathered[rank * sizeof(Verdict)], sizeof(Verdict));
    if (verdict.code == 0 || (speaker.rank >= 0 && IsHearsay(verdict))) continue;
    speaker = {static_cast<int>(rank), verdict};
    if (!IsHearsay(verdict)) break;
  }
  return speaker;
}

}  // namespace

Status Agree(Group& group, Status mine) {
  const std::string my_text = mine ? "" : TextOf(group, mine.error());
  Verdict my_verdict;
  if (!mine) {
    my_verdict = {static_cast<int32_t>(mine.error().code()), mine.error().error_number(),
                  my_text.size()};
  }
  auto gathered = group.AllGather(std::as_bytes(std::span(&my_verdict, 1)));
  if (!gathered && mine) return Fail(std::move(gathered).error());
  if (!gathered) return mine;
  const FailureReporter speaker = ChooseSpeaker(*gathered);
  if (speaker.rank < 0) return {};
  std::string text(speaker.verdict.text_bytes, '\0');
  if (speaker.rank == group.rank()) text = my_text;
  Status told = group.Broadcast(speaker.rank, std::as_writable_bytes(std::span(text)));
  // A rank's own failure says more to it than another's, and than a failure to tell the others.
  if (!mine && (!IsHearsay(my_verdict) || IsHearsay(speaker.verdict) || !told)) return mine;
  if (!told) return told;
  return Fail(ErrorCode::kPeerFailed, std::move(text), speaker.verdict.error_number);
}

Status AgreeOnWords(Group& group, std::string_view what, const std::string& mine) {
  uint64_t size = mine.size();
  LMDBIO_TRY_VOID(group.Broadcast(0, std::as_writable_bytes(std::span(&size, 1))));
  std::string first = mine;
  first.resize(size);
  LMDBIO_TRY_VOID(group.Broadcast(0, std::as_writable_bytes(std::span(first))));
  if (mine == first) return Agree(group, {});
  return Agree(group, Fail(ErrorCode::kInvalidArgument,
                           fmt::format("{} differ from those of rank 0: here {}; there {}", what,
                                       mine, first)));
}

}  // namespace lmdbio::ranks
