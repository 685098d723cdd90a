// Goal: pieces of a file are looked at as rarely as promised, and their reads are never trusted
// before they succeed.
// Method: a page cache that is a list of extents and counts the looks at it, and times of its own.
#include "lmdbio/load/reader/file_pieces.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "tests/support/catch.h"

namespace lmdbio::load {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kPieceBytes = 1000;
constexpr uint64_t kFileBytes = 2500;  // the last piece is half as long
constexpr Extent kFirstPiece = {0, 1000};
constexpr Extent kBlock = {100, 50};  // of the first piece
constexpr Extent kNeighbour = {800, 200};
constexpr FilePieces::Clock::time_point kStart = FilePieces::Clock::time_point(milliseconds(5));

struct FakeCache {
  bool Has(const Extent& bytes) {
    ++looks;
    for (const Extent& part : parts) {
      if (part.offset <= bytes.offset &&
          bytes.offset + bytes.length_bytes <= part.offset + part.length_bytes) {
        return true;
      }
    }
    return false;
  }
  FilePieces Pieces() {
    return {kPieceBytes, kFileBytes, [this](const Extent& bytes) { return Has(bytes); }};
  }

  std::vector<Extent> parts;
  int looks = 0;
};

TEST_CASE("a block belongs to a piece if it is a small part of one", "[pieces]") {
  FakeCache cache;
  const FilePieces pieces = cache.Pieces();
  CHECK(pieces.Contains(kBlock));
  CHECK(pieces.Contains({500, 500}));
  CHECK_FALSE(pieces.Contains({0, 501}));    // too large
  CHECK_FALSE(pieces.Contains({900, 101}));  // of two pieces
  CHECK(pieces.Around({1100, 1}) == Extent{1000, 1000});
  CHECK(pieces.Around({2400, 100}) == Extent{2000, 500});
}

TEST_CASE("a cached piece is looked at once a second", "[pieces]") {
  FakeCache cache{{kFirstPiece}};
  FilePieces pieces = cache.Pieces();
  CHECK(pieces.IsThere(kBlock, kStart));
  CHECK(pieces.IsThere(kNeighbour, kStart + milliseconds(999)));
  CHECK(cache.looks == 1);
  cache.parts.clear();  // the kernel needs the memory
  CHECK(pieces.IsThere(kBlock, kStart + milliseconds(999)));
  CHECK_FALSE(pieces.IsThere(kBlock, kStart + milliseconds(1000)));
}

TEST_CASE("blocks of a piece that is cached in part are looked at each", "[pieces]") {
  FakeCache cache{{kBlock}};
  FilePieces pieces = cache.Pieces();
  CHECK(pieces.IsThere(kBlock, kStart));
  CHECK_FALSE(pieces.IsThere(kNeighbour, kStart));
  CHECK(cache.looks == 3);  // the piece, and two blocks
}

TEST_CASE("blocks that are no part of a piece are looked at each time", "[pieces]") {
  FakeCache cache{{{0, kFileBytes}}};
  FilePieces pieces = cache.Pieces();
  const Extent large = {0, 2000};
  CHECK(pieces.IsThere(large, kStart));
  CHECK(pieces.IsThere(large, kStart));
  CHECK(cache.looks == 2);
}

TEST_CASE("the first missing block brings its piece once", "[pieces]") {
  FakeCache cache;
  FilePieces pieces = cache.Pieces();
  CHECK(pieces.BeginRead(kBlock, 7) == kFirstPiece);
  CHECK(pieces.BeginRead(kNeighbour, 7) == std::nullopt);
  CHECK(pieces.BeginRead(kNeighbour, 8) == kNeighbour);

  // The kernel counts pages that are on their way.
  cache.parts = {kFirstPiece};
  CHECK_FALSE(pieces.IsThere(kBlock, kStart));
  pieces.EndRead(kNeighbour, 8, Status());  // a read of a block says nothing of the piece
  CHECK_FALSE(pieces.IsThere(kBlock, kStart));
  pieces.EndRead(kBlock, 7, Status());
  CHECK(pieces.IsThere(kBlock, kStart));

  // Pages that were dropped since come back block by block.
  cache.parts.clear();
  CHECK_FALSE(pieces.IsThere(kBlock, kStart + milliseconds(1000)));
  CHECK(pieces.BeginRead(kBlock, 9) == kBlock);
}

TEST_CASE("a piece that could not be read is read block by block", "[pieces]") {
  FakeCache cache{{kFirstPiece}};  // the kernel counts pages that could not be read
  FilePieces pieces = cache.Pieces();
  CHECK(pieces.BeginRead(kBlock, 7) == kFirstPiece);
  pieces.EndRead(kBlock, 7, Fail(ErrorCode::kIo, "no such sector"));
  CHECK_FALSE(pieces.IsThere(kBlock, kStart));
  CHECK(pieces.BeginRead(kBlock, 7) == kBlock);
  pieces.EndRead(kBlock, 7, Status());
  CHECK_FALSE(pieces.IsThere(kNeighbour, kStart));
}

TEST_CASE("a failed read of a block puts no trust in the look before it", "[pieces]") {
  FakeCache cache{{kFirstPiece}};
  FilePieces pieces = cache.Pieces();
  CHECK(pieces.IsThere(kBlock, kStart));
  pieces.EndRead(kNeighbour, 3, Fail(ErrorCode::kIo, "no such sector"));
  CHECK_FALSE(pieces.IsThere(kBlock, kStart));
}

}  // namespace
}  // namespace lmdbio::load
