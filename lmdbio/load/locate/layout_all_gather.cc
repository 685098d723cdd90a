#include "lmdbio/load/locate/layout_all_gather.h"

#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

namespace lmdbio::load {
namespace {

using file::Layout;
using file::RecordRun;

// The encoding of a run, followed by value_count extents.
struct WireRun {
  uint64_t leaf;
  uint64_t home;
  uint32_t first_node;
  uint32_t kind;
  uint64_t value_count;
};
static_assert(std::is_trivially_copyable_v<WireRun> && std::is_trivially_copyable_v<Extent>);

template <typename T>
void Put(std::span<const T> values, std::vector<std::byte>& bytes) {
  const Bytes more = std::as_bytes(values);
  bytes.insert(bytes.end(), more.begin(), more.end());
}

class Encoder final : public file::RecordRunSink {
 public:
  Status Add(const RecordRun& run) override {
    const WireRun wire{run.leaf.value, run.home.value, run.first_node,
                       static_cast<uint32_t>(run.kind), run.values.size()};
    Put(std::span(&wire, 1), bytes_);
    Put(run.values, bytes_);
    return {};
  }
  std::vector<std::byte> TakeBytes() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

tl::unexpected<Error> NoPiece() {
  return Fail(ErrorCode::kCorruption, "malformed layout message from another reader");
}

}  // namespace

std::vector<std::byte> EncodePiece(const Layout& piece) {
  Encoder encoder;
  static_cast<void>(piece.Expand(encoder));  // the encoder returns no error
  return encoder.TakeBytes();
}

// The message comes from another host, so each count is compared with the bytes that are left
// before memory is taken for it. A part counts its records from 0; ScanLocator knows the true
// number.
Result<Layout> DecodePiece(Bytes bytes) {
  file::LayoutBuilder builder;
  std::vector<Extent> values;
  while (!bytes.empty()) {
    WireRun wire{};
    if (bytes.size() < sizeof wire) return NoPiece();
    std::memcpy(&wire, bytes.data(), sizeof wire);
    bytes = bytes.subspan(sizeof wire);
    if (wire.value_count == 0 || wire.value_count > bytes.size() / sizeof(Extent) ||
        wire.kind > static_cast<uint32_t>(file::RunKind::kDuplicates)) {
      return NoPiece();
    }
    values.resize(wire.value_count);
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(Extent));
    bytes = bytes.subspan(values.size() * sizeof(Extent));
    LMDBIO_TRY_VOID(builder.Add({{builder.record_count()},
                                 {wire.leaf},
                                 wire.first_node,
                                 static_cast<file::RunKind>(wire.kind),
                                 {wire.home},
                                 values,
                                 {}}));
  }
  return builder.Finish();
}

LayoutAllGather::LayoutAllGather(std::unique_ptr<ranks::PeerLinks> links,
                                 const ranks::Group& readers)
    : links_(std::move(links)),
      rank_(readers.rank()),
      size_(readers.size()),
      before_(ranks::RankBefore(readers)),
      behind_(ranks::RankBehind(readers)) {}

Result<std::unique_ptr<LayoutAllGather>> LayoutAllGather::Create(ranks::Group& readers,
                                                                 int known_as) {
  LMDBIO_TRY(auto links,
             ranks::PeerLinks::Open(
                 readers, {{ranks::RankBehind(readers)}, {ranks::RankBefore(readers)}, known_as}));
  return std::unique_ptr<LayoutAllGather>(new LayoutAllGather(std::move(links), readers));
}

// Each reader that receives the failure leaves too, so it reaches all readers.
void LayoutAllGather::Leave(const Error& why) {
  static_cast<void>(links_->SendFailure(behind_, why));
}

Result<std::vector<Layout>> LayoutAllGather::Exchange(const Layout& mine) {
  Result<std::vector<Layout>> pieces = GoRound(mine);
  if (!pieces) Leave(pieces.error());
  return pieces;
}

// A ring allgather in P - 1 steps. In step s a reader receives the part of the host s places before
// it, and forwards it unless it has been everywhere (the last step). A message is forwarded before
// it is decoded, so that decoding overlaps the transfer.
Result<std::vector<Layout>> LayoutAllGather::GoRound(const Layout& mine) {
  std::vector<Layout> pieces(static_cast<size_t>(size_));
  LMDBIO_TRY_VOID(links_->Post(behind_, EncodePiece(mine)));
  for (int step = 1; step < size_; ++step) {
    LMDBIO_TRY(const auto bytes, links_->ReceiveAndFlush(before_));
    if (!bytes) return Fail(ErrorCode::kPeerFailed, "the page walk was stopped");
    if (step + 1 < size_) LMDBIO_TRY_VOID(links_->Post(behind_, *bytes));
    const int owner = (rank_ - step + size_) % size_;
    LMDBIO_TRY(pieces[static_cast<size_t>(owner)], DecodePiece(*bytes));
    links_->Flush();
  }
  // The other hosts need these bytes before their next round, so they leave before the next walk.
  LMDBIO_TRY_VOID(links_->Drain());
  return pieces;
}

}  // namespace lmdbio::load
