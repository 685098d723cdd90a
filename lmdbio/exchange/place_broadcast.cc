#include "lmdbio/exchange/place_broadcast.h"

#include <cstring>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

namespace lmdbio::exchange {

using layout::RecordPlace;

// The walker sends every message this many times.
constexpr int kChildrenMax = 2;

static_assert(std::is_trivially_copyable_v<RecordPlace>);

PlaceBroadcast::PlaceBroadcast(std::unique_ptr<comm::PeerLinks> links, std::optional<int> parent,
                               std::vector<int> children)
    : links_(std::move(links)), parent_(parent), children_(std::move(children)) {}

Result<std::unique_ptr<PlaceBroadcast>> PlaceBroadcast::Create(comm::Group& readers, int known_as) {
  comm::LinkPlan plan;
  plan.known_as = known_as;
  const auto [parent, children] = comm::NeighboursInTree(readers, kChildrenMax);
  if (parent) plan.receives_from.push_back(*parent);
  plan.sends_to = children;
  LMDBIO_TRY(auto links, comm::PeerLinks::Open(readers, plan));
  return std::unique_ptr<PlaceBroadcast>(
      new PlaceBroadcast(std::move(links), parent, std::move(plan.sends_to)));
}

Status PlaceBroadcast::Post(Bytes message) {
  for (const int child : children_) LMDBIO_TRY_VOID(links_->Post(child, message));
  return {};
}

Status PlaceBroadcast::Send(std::span<const RecordPlace> places) {
  return Post(std::as_bytes(places));
}

bool PlaceBroadcast::HasPlaces() { return !parent_ || links_->HasMessage(*parent_); }

Result<std::optional<std::vector<RecordPlace>>> PlaceBroadcast::Receive() {
  LMDBIO_TRY(const auto message, links_->Receive(*parent_));
  if (!message) return std::nullopt;
  if (message->size() % sizeof(RecordPlace) != 0) {
    return Fail(ErrorCode::kCorruption,
                fmt::format("malformed record-location message from another reader: {} bytes are "
                            "not a multiple of {}",
                            message->size(), sizeof(RecordPlace)));
  }
  LMDBIO_TRY_VOID(Post(*message));
  std::vector<RecordPlace> places(message->size() / sizeof(RecordPlace));
  std::memcpy(places.data(), message->data(), message->size());
  return places;
}

// A failed send is ignored, because a reader that is gone cannot receive it.
void PlaceBroadcast::SendFailure(const Error& error) {
  for (const int child : children_) static_cast<void>(links_->SendFailure(child, error));
}

}  // namespace lmdbio::exchange
