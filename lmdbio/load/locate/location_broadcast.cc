#include "lmdbio/load/locate/location_broadcast.h"

#include <cstring>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

namespace lmdbio::load {

using file::RecordLocation;

// The walker sends every message this many times.
constexpr int kChildrenMax = 2;

static_assert(std::is_trivially_copyable_v<RecordLocation>);

LocationBroadcast::LocationBroadcast(std::unique_ptr<ranks::PeerLinks> links,
                                     std::optional<int> parent, std::vector<int> children)
    : links_(std::move(links)), parent_(parent), children_(std::move(children)) {}

Result<std::unique_ptr<LocationBroadcast>> LocationBroadcast::Create(ranks::Group& readers,
                                                                     int known_as) {
  ranks::LinkSpec plan;
  plan.known_as = known_as;
  const auto [parent, children] = ranks::NeighboursInTree(readers, kChildrenMax);
  if (parent) plan.receives_from.push_back(*parent);
  plan.sends_to = children;
  LMDBIO_TRY(auto links, ranks::PeerLinks::Open(readers, plan));
  return std::unique_ptr<LocationBroadcast>(
      new LocationBroadcast(std::move(links), parent, std::move(plan.sends_to)));
}

Status LocationBroadcast::Post(Bytes message) {
  for (const int child : children_) LMDBIO_TRY_VOID(links_->Post(child, message));
  return {};
}

Status LocationBroadcast::Send(std::span<const RecordLocation> places) {
  return Post(std::as_bytes(places));
}

bool LocationBroadcast::HasPlaces() { return !parent_ || links_->HasMessage(*parent_); }

Result<std::optional<std::vector<RecordLocation>>> LocationBroadcast::Receive() {
  LMDBIO_TRY(const auto message, links_->Receive(*parent_));
  if (!message) return std::nullopt;
  if (message->size() % sizeof(RecordLocation) != 0) {
    return Fail(ErrorCode::kCorruption,
                fmt::format("malformed record-location message from another reader: {} bytes are "
                            "not a multiple of {}",
                            message->size(), sizeof(RecordLocation)));
  }
  // Forwarded before it is unpacked, so the deeper levels of the tree wait less. A reader with
  // another number of records than the walker refuses the message later.
  LMDBIO_TRY_VOID(Post(*message));
  std::vector<RecordLocation> places(message->size() / sizeof(RecordLocation));
  std::memcpy(places.data(), message->data(), message->size());
  return places;
}

// A failed send is ignored, because a reader that is gone cannot receive it.
void LocationBroadcast::SendFailure(const Error& error) {
  for (const int child : children_) static_cast<void>(links_->SendFailure(child, error));
}

}  // namespace lmdbio::load
