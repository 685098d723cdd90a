// Two steps, and only the first where all is well:
//
//   AllGather   {code, length of the message} of every rank; code 0 is success
//   Broadcast   the message of the lowest failing rank
//
// Every rank sees the same codes and lengths, so all of them take the second step or none does.
#include <cstring>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "lmdbio/comm/group.h"

namespace lmdbio::comm {
namespace {

struct Verdict {
  uint64_t code = 0;
  uint64_t message_bytes = 0;
};

Verdict VerdictOf(const Status& mine) {
  if (mine) return {};
  return {.code = static_cast<uint64_t>(mine.error().code()),
          .message_bytes = mine.error().message().size()};
}

struct Failure {
  int rank;
  std::string message;
};

// The lowest failing rank and its message, if there is one.
Result<std::optional<Failure>> FirstFailure(Group& group, const Status& mine) {
  const Verdict my_verdict = VerdictOf(mine);
  LMDBIO_TRY(const std::vector<std::byte> gathered,
             group.AllGather(std::as_bytes(std::span(&my_verdict, 1))));
  for (int rank = 0; rank < group.size(); ++rank) {
    Verdict verdict;
    std::memcpy(&verdict, &gathered[static_cast<size_t>(rank) * sizeof(Verdict)], sizeof(Verdict));
    if (verdict.code == 0) continue;
    std::string message(verdict.message_bytes, '\0');
    if (rank == group.rank()) message = mine.error().message();
    LMDBIO_TRY_VOID(group.Broadcast(rank, std::as_writable_bytes(std::span(message))));
    return Failure{.rank = rank, .message = std::move(message)};
  }
  return std::nullopt;
}

}  // namespace

Status Agree(Group& group, Status mine) {
  const Result<std::optional<Failure>> first = FirstFailure(group, mine);
  if (!mine) return mine;  // says more than a failure to tell the others about it
  if (!first) return Fail(first.error().code(), first.error().message());
  if (!first->has_value()) return {};
  return Fail(ErrorCode::kPeerFailed,
              fmt::format("rank {}: {}", (*first)->rank, (*first)->message));
}

}  // namespace lmdbio::comm
