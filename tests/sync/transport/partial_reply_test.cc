// Goal: contributions add up to the same reply in any order and over any tree; malformed bytes of
// another rank are an error.
#include "lmdbio/sync/transport/partial_reply.h"

#include <span>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace lmdbio::sync {
namespace {

using Words = std::vector<uint64_t>;

Bytes BytesOfWords(const Words& words) { return std::as_bytes(std::span(words)); }
Bytes BytesOfText(const std::string& text) { return std::as_bytes(std::span(text)); }
std::string TextOf(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST_CASE("Intersections add up over a tree", "[sync][transport]") {
  PartialReply leaf(ExchangeKind::kIntersect, 2);
  REQUIRE(leaf.Add(0, BytesOfWords({7, 5})));
  PartialReply root(ExchangeKind::kIntersect, 2);
  REQUIRE(root.Add(1, BytesOfWords({6, 13})));
  REQUIRE(root.Merge(leaf.Pack()));
  REQUIRE(leaf.SetAnswer(root.Pack()));
  REQUIRE(root.TakeReply().words == Words{6, 5});
  REQUIRE(leaf.TakeReply().words == Words{6, 5});
}

TEST_CASE("Gathered messages are in the order of their numbers", "[sync][transport]") {
  PartialReply leaf(ExchangeKind::kGather, 0);
  REQUIRE(leaf.Add(4, BytesOfText("four")));
  REQUIRE(leaf.Add(1, BytesOfText("")));
  PartialReply root(ExchangeKind::kGather, 0);
  REQUIRE(root.Merge(leaf.Pack()));
  REQUIRE(root.Add(0, BytesOfText("zero")));
  const Reply reply = root.TakeReply();
  REQUIRE(reply.gathered.size() == 3);
  REQUIRE(TextOf(reply.gathered[0]) == "zero");
  REQUIRE(TextOf(reply.gathered[1]).empty());
  REQUIRE(TextOf(reply.gathered[2]) == "four");
}

TEST_CASE("A broadcast is the answer", "[sync][transport]") {
  PartialReply reply(ExchangeKind::kBroadcast, 0);
  REQUIRE(reply.SetAnswer(BytesOfText("news")));
  REQUIRE(TextOf(reply.Pack()) == "news");
  REQUIRE(TextOf(reply.TakeReply().bytes) == "news");
}

TEST_CASE("Messages of the wrong size are errors", "[sync][transport]") {
  PartialReply words(ExchangeKind::kIntersect, 2);
  REQUIRE_FALSE(words.Add(0, BytesOfWords({1})));
  REQUIRE_FALSE(words.Merge(BytesOfWords({1, 2, 3})));
  REQUIRE_FALSE(words.SetAnswer({}));

  PartialReply whole(ExchangeKind::kGather, 0);
  REQUIRE(whole.Add(3, BytesOfText("message")));
  const std::vector<std::byte> packed = whole.Pack();
  for (size_t size = 1; size < packed.size(); ++size) {
    CAPTURE(size);
    PartialReply reply(ExchangeKind::kGather, 0);
    const Status status = reply.Merge(std::span(packed).first(size));
    REQUIRE_FALSE(status);
    REQUIRE(status.error().code() == ErrorCode::kInternal);
  }
}

}  // namespace
}  // namespace lmdbio::sync
