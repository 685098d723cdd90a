// Two steps, and only the first where all is well:
//
//   AllGather   {code, length of the text} of every rank; code 0 is success
//   Broadcast   the text of the lowest failing rank
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
  uint64_t text_bytes = 0;
};

// What others are told of a rank's failure.
std::string TextOf(const Group& group, const Error& error) {
  const std::string where = group.host_name().empty() ? "" : " on " + group.host_name();
  return fmt::format("rank {}{}: {}", group.rank(), where, error.message());
}

// What the lowest failing rank has to say, if there is one.
Result<std::optional<std::string>> FirstFailure(Group& group, const Status& mine) {
  const std::string my_text = mine ? "" : TextOf(group, mine.error());
  Verdict my_verdict;
  if (!mine) my_verdict = {static_cast<uint64_t>(mine.error().code()), my_text.size()};
  LMDBIO_TRY(const std::vector<std::byte> gathered,
             group.AllGather(std::as_bytes(std::span(&my_verdict, 1))));
  for (int rank = 0; rank < group.size(); ++rank) {
    Verdict verdict;
    std::memcpy(&verdict, &gathered[static_cast<size_t>(rank) * sizeof(Verdict)], sizeof(Verdict));
    if (verdict.code == 0) continue;
    std::string text = rank == group.rank() ? my_text : std::string(verdict.text_bytes, '\0');
    LMDBIO_TRY_VOID(group.Broadcast(rank, std::as_writable_bytes(std::span(text))));
    return text;
  }
  return std::nullopt;
}

}  // namespace

Status Agree(Group& group, Status mine) {
  Result<std::optional<std::string>> first = FirstFailure(group, mine);
  if (!mine) return mine;  // says more than a failure to tell the others about it
  if (!first) return Fail(std::move(first).error());
  if (!first->has_value()) return {};
  return Fail(ErrorCode::kPeerFailed, std::move(**first));
}

}  // namespace lmdbio::comm
