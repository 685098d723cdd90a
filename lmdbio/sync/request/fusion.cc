#include "lmdbio/sync/request/fusion.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>
#include <string>
#include <utility>

namespace lmdbio::sync {
namespace {

constexpr uint64_t kPlaceBytes = 64;

// The free bytes of all buffers, in the order of their creation, in a segment tree of maxima. The
// tree finds the first buffer with enough room in O(log n). Leaf i is node leaf_count_ + i, and
// node n has the children 2n and 2n + 1.
class Rooms {
 public:
  static constexpr size_t kNone = SIZE_MAX;

  // The first buffer with that much room, or kNone.
  size_t FirstWith(uint64_t bytes) const {
    if (!Fits(1, bytes)) return kNone;
    size_t node = 1;
    while (node < leaf_count_) node = Fits(2 * node, bytes) ? 2 * node : 2 * node + 1;
    return node - leaf_count_;
  }

  // Adds a buffer; buffers are numbered 0, 1, ...
  void Add(uint64_t room_bytes) {
    if (count_ == leaf_count_) Grow();
    Set(count_++, room_bytes + 1);
  }

  void Take(size_t buffer, uint64_t bytes) { Set(buffer, tree_[leaf_count_ + buffer] - bytes); }

 private:
  // A node stores the free bytes + 1. 0 means that there is no buffer, so that a full buffer still
  // takes a tensor of 0 bytes.
  bool Fits(size_t node, uint64_t bytes) const { return tree_[node] > bytes; }

  void Set(size_t buffer, uint64_t room_and_one) {
    size_t node = leaf_count_ + buffer;
    tree_[node] = room_and_one;
    for (node /= 2; node > 0; node /= 2) {
      tree_[node] = std::max(tree_[2 * node], tree_[2 * node + 1]);
    }
  }

  // Doubles the leaves. The rebuilding costs O(n log n) over all growths together.
  void Grow() {
    const std::vector<uint64_t> old = std::move(tree_);
    const size_t old_leaf_count = leaf_count_;
    leaf_count_ *= 2;
    tree_.assign(2 * leaf_count_, 0);
    for (size_t i = 0; i < old_leaf_count; ++i) Set(i, old[old_leaf_count + i]);
  }

  size_t leaf_count_ = 1;
  size_t count_ = 0;
  std::vector<uint64_t> tree_ = std::vector<uint64_t>(2);
};

// A response may already hold several tensors. They stay together, so all must be of one kind.
bool IsFusable(const Response& response) {
  if (!response.error.empty() || response.tensors.empty()) return false;
  const Request& first = response.tensors.front();
  return std::all_of(response.tensors.begin(), response.tensors.end(),
                     [&](const Request& tensor) { return MayFuse(first, tensor); });
}

// Joins the responses of one group, at the position of the first of them. Tensors of different
// kinds cannot share a buffer, so a group of two kinds becomes two responses.
std::vector<Response> JoinGroups(std::vector<Response> responses) {
  std::vector<Response> joined;
  joined.reserve(responses.size());
  std::map<std::pair<FusionKind, std::string>, size_t> places;
  for (Response& response : responses) {
    if (IsFusable(response) && !response.tensors.front().group.empty()) {
      const Request& first = response.tensors.front();
      const auto [place, is_new] =
          places.try_emplace({FusionKindOf(first), first.group}, joined.size());
      if (!is_new) {
        std::vector<Request>& tensors = joined[place->second].tensors;
        std::move(response.tensors.begin(), response.tensors.end(), std::back_inserter(tensors));
        continue;
      }
    }
    joined.push_back(std::move(response));
  }
  return joined;
}

}  // namespace

FusionKind FusionKindOf(const Request& tensor) {
  return {tensor.type, tensor.reduce_op, tensor.memory, std::bit_cast<uint64_t>(tensor.prescale),
          std::bit_cast<uint64_t>(tensor.postscale)};
}

bool MayFuse(const Request& a, const Request& b) {
  return a.operation == Operation::kAllReduce && b.operation == Operation::kAllReduce &&
         FusionKindOf(a) == FusionKindOf(b);
}

uint64_t FusedBytes(const Request& tensor) {
  const uint64_t bytes = tensor.byte_count();
  return (bytes + kPlaceBytes - 1) / kPlaceBytes * kPlaceBytes;
}

FusedOffsets PlacesOf(std::span<const Request> tensors) {
  FusedOffsets places;
  places.offsets.reserve(tensors.size());
  for (const Request& tensor : tensors) {
    places.offsets.push_back(places.size_bytes);
    places.size_bytes += FusedBytes(tensor);
  }
  return places;
}

// One pass. `buffers_of` has the open buffers of each kind, and the position of each in `fused`.
// The order of the list decides alone, so every rank fuses alike without a message.
std::vector<Response> Fuse(std::vector<Response> responses, const FusionOptions& options) {
  std::vector<Response> joined = JoinGroups(std::move(responses));
  if (options.threshold_bytes == 0) return joined;
  struct Buffers {
    Rooms rooms;
    std::vector<size_t> places;  // [buffers] in `fused`
  };
  std::map<FusionKind, Buffers> buffers_of;
  std::vector<Response> fused;
  fused.reserve(joined.size());
  for (Response& response : joined) {
    if (!IsFusable(response)) {
      fused.push_back(std::move(response));
      continue;
    }
    Buffers& buffers = buffers_of[FusionKindOf(response.tensors.front())];
    const uint64_t bytes = PlacesOf(response.tensors).size_bytes;
    const size_t buffer = buffers.rooms.FirstWith(bytes);
    if (buffer == Rooms::kNone) {
      // A tensor or group above the threshold has no room to offer, so it opens no buffer.
      if (bytes <= options.threshold_bytes) {
        buffers.rooms.Add(options.threshold_bytes - bytes);
        buffers.places.push_back(fused.size());
      }
      fused.push_back(std::move(response));
    } else {
      buffers.rooms.Take(buffer, bytes);
      std::vector<Request>& tensors = fused[buffers.places[buffer]].tensors;
      std::move(response.tensors.begin(), response.tensors.end(), std::back_inserter(tensors));
    }
  }
  return fused;
}

}  // namespace lmdbio::sync
