// tests/fuzz/readers_fuzz.cc - any bytes as messages between the readers of a job.
//
// Input: byte 0 chooses the kind of message. The rest is a part of a layout, a cursor that another
// reader hands over, or frames of the exchange of file pieces.
// Oracle: the sanitizers; a part of a layout encodes to bytes that decode to the same; a cursor
// that is accepted stands at a record of the database; a second reading of the frames says which
// are taken. Memory and time grow with the size of the input alone.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/file/layout/cursor.h"
#include "lmdbio/load/exchange/exchange_link.h"
#include "lmdbio/load/locate/cursor_handoff.h"
#include "lmdbio/load/locate/layout_all_gather.h"
#include "tests/fixtures/memory_source.h"
#include "tests/fixtures/tiny_db.h"
#include "tests/fuzz/decode_check.h"
#include "tests/fuzz/foreign_connection.h"
#include "tests/fuzz/input_parts.h"
#include "tests/fuzz/touch_bytes.h"
#include "tests/support/file_bytes.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

using load::ExchangeFrame;
using load::ExchangeLink;

// Runs of neighbours may be joined, so the bytes need not be the same, but the records must be.
void DecodeLayoutPart(Bytes input) {
  const std::vector<std::byte> exact(input.begin(), input.end());
  const auto part = load::DecodePiece(exact);
  if (!part) return CheckMessage(part.error());
  const auto again = load::DecodePiece(load::EncodePiece(*part));
  LMDBIO_CHECK(again.has_value() && again->record_count() == part->record_count());
  for (uint64_t i = 0; i < part->record_count(); ++i) {
    LMDBIO_CHECK(again->Value({i}) == part->Value({i}) && again->Key({i}) == part->Key({i}));
  }
}

// A database with several levels of pages, and keys with many values.
const std::vector<std::byte>& DataFile() {
  static const std::vector<std::byte> bytes = [] {
    const TempDir dir;
    TinyDb db(dir.path(), {.page_size_bytes = 512});
    db.Use("plain");
    for (int i = 0; i < 200; ++i) db.Put(fmt::format("{:04}", i), std::string(60, 'v'));
    db.Use("duplicates", MDB_DUPSORT);
    for (int i = 0; i < 150; ++i) db.Put(fmt::format("{:02}", i % 7), fmt::format("{:06}", i));
    db.Commit();
    return ReadWholeFile(db.data_file());
  }();
  return bytes;
}

// The databases of the file, in memory.
const std::vector<file::Database>& Databases() {
  static const MemorySource source(DataFile());
  static const std::vector<file::Database> databases = [] {
    const auto environment = file::Environment::Open(source);
    LMDBIO_CHECK(environment.has_value());
    const auto plain = environment->Named("plain");
    const auto duplicates = environment->Named("duplicates");
    LMDBIO_CHECK(plain.has_value() && duplicates.has_value());
    return std::vector<file::Database>{*plain, *duplicates};
  }();
  return databases;
}

std::vector<std::byte> HandedAt(const file::Database& database, uint64_t steps) {
  file::Cursor cursor(database);
  auto found = cursor.First();
  for (uint64_t i = 0; found && *found && i < steps; ++i) found = cursor.Next();
  load::HandedCursor handed;
  handed.record = steps;
  handed.is_standing = found && *found;
  if (handed.is_standing) handed.position = cursor.position();
  const Bytes bytes = std::as_bytes(std::span(&handed, 1));
  return {bytes.begin(), bytes.end()};
}

// A cursor that some reader could hand over, with some bytes changed, or any bytes.
void TakeCursor(InputParts in) {
  const file::Database& database = Databases()[in.TakeBelow(2)];
  std::vector<std::byte> message;
  if (in.TakeBelow(4) == 0) {
    message.assign(in.rest().begin(), in.rest().end());
  } else {
    message = HandedAt(database, in.TakeBelow(250));
    for (uint64_t i = in.TakeBelow(8); i > 0; --i) {
      const size_t at = in.Take<uint16_t>() % message.size();
      message[at] ^= in.Take<std::byte>();
    }
  }
  const auto handed = load::HandedCursorIn(message);
  if (!handed) return CheckMessage(handed.error());
  file::Cursor cursor(database);
  const Status stands = cursor.SeekPosition(handed->position);
  if (!stands) return CheckMessage(stands.error());
  TouchBytes(cursor.key());
  const auto value = cursor.Value();
  LMDBIO_CHECK(value.has_value());
  TouchBytes(*value);
  const std::vector<std::byte> key(cursor.key().begin(), cursor.key().end());
  file::Cursor again(database);
  LMDBIO_CHECK(again.SeekPosition(cursor.position()).has_value());
  LMDBIO_CHECK(std::ranges::equal(again.key(), key));
  CheckMessageOf(cursor.Next().map([](bool) {}));
}

// The reader that gets the frames. It has asked for a few pieces.
class AskingReader {
 public:
  static constexpr uint64_t kPieces = 4;
  static uint64_t OffsetOf(uint64_t id) { return 4096 * id; }
  static uint64_t SizeOf(uint64_t id) { return 1 + 700 * id; }

  MutableBytes DestinationOf(const ExchangeFrame& reply) {
    if (!IsAsked(reply)) return {};
    return pieces_[reply.id];
  }
  bool Take(const ExchangeFrame& frame) {
    if (!IsKnown(frame)) return false;
    taken_.push_back(frame);
    if (frame.kind == ExchangeFrame::Kind::kReply) bodies_.push_back(pieces_[frame.id]);
    return true;
  }

  // Reads all bytes once more.
  void Compare(InputParts in) const {
    size_t taken_count = 0;
    size_t body_count = 0;
    while (in.rest().size() >= sizeof(ExchangeFrame)) {
      const auto frame = in.Take<ExchangeFrame>();
      const bool is_reply = frame.kind == ExchangeFrame::Kind::kReply;
      if (is_reply ? !IsAsked(frame) : !IsKnown(frame)) break;
      if (is_reply && in.rest().size() < SizeOf(frame.id)) break;
      LMDBIO_CHECK(taken_count < taken_.size() && taken_[taken_count].id == frame.id);
      ++taken_count;
      if (!is_reply) continue;
      LMDBIO_CHECK(std::ranges::equal(bodies_[body_count++], in.TakeBytes(SizeOf(frame.id))));
    }
    LMDBIO_CHECK(taken_count == taken_.size());
  }

 private:
  static bool IsAsked(const ExchangeFrame& reply) {
    return reply.id < kPieces && reply.offset == OffsetOf(reply.id) &&
           reply.length_bytes == SizeOf(reply.id);
  }
  static bool IsKnown(const ExchangeFrame& frame) {
    return frame.kind == ExchangeFrame::Kind::kRequest ||
           frame.kind == ExchangeFrame::Kind::kReply || frame.kind == ExchangeFrame::Kind::kRefusal;
  }

  // Each on its own, so that the sanitizers see a byte behind one.
  std::array<std::vector<std::byte>, kPieces> pieces_ = [] {
    std::array<std::vector<std::byte>, kPieces> pieces;
    for (uint64_t id = 0; id < kPieces; ++id) pieces[id].resize(SizeOf(id));
    return pieces;
  }();
  std::vector<ExchangeFrame> taken_;
  std::vector<std::vector<std::byte>> bodies_;
};

void ReceivePieces(InputParts in) {
  const size_t piece_bytes = 1 + 8 * in.TakeBelow(256);
  ForeignConnection connection;
  ExchangeLink link(connection.TakeOurs());
  AskingReader reader;
  const ExchangeLink::Receiver receiver{
      .destination_of = [&](const ExchangeFrame& reply) { return reader.DestinationOf(reply); },
      .take = [&](const ExchangeFrame& frame) { return reader.Take(frame); }};
  bool is_open = true;
  connection.SendInPieces(in.rest(), piece_bytes, [&] {
    if (is_open) is_open = link.Receive(receiver);
  });
  LMDBIO_CHECK(!is_open);
  reader.Compare(in);
}

}  // namespace
}  // namespace lmdbio::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lmdbio;
  if (size == 0) return 0;
  constexpr size_t kMost = 64 << 10;  // what the buffer of a connection surely holds
  const test::InputParts rest(std::as_bytes(std::span(data, std::min(size, kMost))).subspan(1));
  switch (data[0] % 3) {
    case 0:
      test::DecodeLayoutPart(rest.rest());
      break;
    case 1:
      test::TakeCursor(rest);
      break;
    default:
      test::ReceivePieces(rest);
  }
  return 0;
}
