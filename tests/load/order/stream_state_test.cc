// Goal: a saved stream continues at its position, or is refused with the name of the field.
#include "lmdbio/load/order/stream_state.h"

#include <algorithm>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "tests/support/catch.h"
#include "tests/support/random.h"

namespace lmdbio::load {
namespace {

using nlohmann::json;

StreamState SomeState() {
  StreamState state;
  state.dataset = {"train", 77, 4096, 4096};
  state.schedule.walk = {1797, Order::kShuffle, Shuffle::kGlobal, 42, 250};
  state.schedule.batch_size = 64;
  state.schedule.tail = Tail::kShort;
  state.next_batch = 30;
  return state;
}

StreamState GroupedState() {
  StreamState state = SomeState();
  state.schedule.walk.shuffle = Shuffle::kBlock;
  state.schedule.group_batches = 8;
  state.schedule.reuse = 2;
  return state;
}

// The message of ContinueStream for a changed `saved` state and `wanted` options.
std::string Refusal(const StreamState& saved, const StreamState& wanted) {
  const auto next = ContinueStream(saved, wanted);
  return next ? "" : next.error().message();
}

std::string DecodeRefusal(const json& text) {
  const auto state = DecodeStreamState(text.dump());
  return state ? "" : state.error().message();
}

TEST_CASE("DecodeStreamState returns the encoded state", "[order][state]") {
  for (const StreamState& state : {SomeState(), GroupedState()}) {
    const std::string text = EncodeStreamState(state);
    CHECK(text.size() < kStreamStateBytesMax);
    const auto back = DecodeStreamState(text);
    REQUIRE(back);
    CHECK(EncodeStreamState(*back) == text);
    CHECK(back->next_batch == state.next_batch);
    CHECK(back->schedule.walk.seed == 42);
    CHECK(back->dataset.database_name == "train");
  }
}

TEST_CASE("The longest state is below 1 kB", "[order][state]") {
  StreamState state = GroupedState();
  state.dataset = {std::string(256, 'n'), ~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}};
  state.schedule.walk = {(uint64_t{1} << 48) - 1, Order::kShuffle, Shuffle::kGlobal, ~uint64_t{0},
                         (uint64_t{1} << 48) - 1};
  state.schedule.reuse = 1;
  state.schedule.group_batches = 1;
  state.schedule.batch_size = 12'345'678'901;
  state.schedule.origin = {(uint64_t{1} << 60) - 1, (uint64_t{1} << 60) - 1};
  state.next_batch = uint64_t{1} << 60;
  CHECK(EncodeStreamState(state).size() < kStreamStateBytesMax);
}

TEST_CASE("A state has the digest of its view, and continues with no other", "[order][state]") {
  StreamState state = SomeState();
  state.dataset.view_digest = 0x0123456789abcdef;
  const std::string text = EncodeStreamState(state);
  CHECK(json::parse(text)["dataset"]["view"] == "0123456789abcdef");
  const auto back = DecodeStreamState(text);
  REQUIRE(back);
  CHECK(back->dataset.view_digest == state.dataset.view_digest);
  CHECK(Refusal(*back, state).empty());
  StreamState other = state;
  other.dataset.view_digest = 0;
  other.schedule.walk.record_count = 5;  // the view is named first
  CHECK(Refusal(state, other) ==
        "the state was saved with view 0123456789abcdef, but the loader has 0000000000000000");
  CHECK(Refusal(SomeState(), state) ==
        "the state was saved with view none, but the loader has 0123456789abcdef");
  CHECK_FALSE(json::parse(EncodeStreamState(SomeState()))["dataset"].contains("view"));
  json wrong = json::parse(text);
  for (const char* digest :
       {"", "0123", "0123456789abcdeg", "0123456789abcdef0", "-123456789abcdef"}) {
    wrong["dataset"]["view"] = digest;
    CHECK(DecodeRefusal(wrong) ==
          "the saved state is invalid: dataset.view must be 16 hexadecimal digits");
  }
  wrong["dataset"]["view"] = 7;
  CHECK(DecodeRefusal(wrong) ==
        "the saved state is invalid: dataset.view must be a string of at most 256 bytes");
}

TEST_CASE("States of version 1 stay readable", "[order][state]") {
  const auto state = DecodeStreamState(
      R"({"lmdbio_state":1,"dataset":{"database":"train","records":1797,"transaction":77,)"
      R"("root_page":4096,"page_bytes":4096},"order":{"order":"shuffle","shuffle":"global",)"
      R"("seed":42,"block_records":250,"group_batches":1,"reuse":1,"tail":"short"},)"
      R"("batch_size":64,"epoch":1,"position":1861,"batch":30,"origin":{"batch":0,"position":0}})");
  REQUIRE(state);
  CHECK(EncodeStreamState(*state) == EncodeStreamState(SomeState()));
}

TEST_CASE("Another batch size cuts batches from the saved position on", "[order][state]") {
  const StreamState saved = SomeState();
  StreamState wanted = saved;
  wanted.schedule.batch_size = 48;
  const auto next = ContinueStream(saved, wanted);
  REQUIRE(next);
  const uint64_t position = Schedule(saved.schedule).Batch(30).first_position;
  CHECK(next->schedule.origin == StreamOrigin{30, position});
  CHECK(Schedule(next->schedule).Batch(30).first_position == position);
  CHECK(Schedule(next->schedule).Batch(31).first_position == position + 48);
}

TEST_CASE("Options that are left open keep their saved values", "[order][state]") {
  const StreamState saved = GroupedState();
  StreamState wanted = saved;
  wanted.schedule.walk.block_records = 0;
  wanted.schedule.group_batches = 0;
  const auto next = ContinueStream(saved, wanted);
  REQUIRE(next);
  CHECK(next->schedule.walk.block_records == 250);
  CHECK(next->schedule.group_batches == 8);
}

TEST_CASE("Another data set or order is refused, naming the field", "[order][state]") {
  const StreamState saved = GroupedState();
  const auto refusal = [&](auto change) {
    StreamState wanted = saved;
    change(wanted);
    return Refusal(saved, wanted);
  };
  CHECK_THAT(refusal([](auto& s) { s.dataset.database_name = "test"; }),
             ContainsSubstring("database name train, but the loader has test"));
  CHECK_THAT(refusal([](auto& s) { s.dataset.transaction_id = 78; }),
             ContainsSubstring("transaction 77"));
  CHECK_THAT(refusal([](auto& s) { s.dataset.root_page = 1; }),
             ContainsSubstring("root page 4096"));
  CHECK_THAT(refusal([](auto& s) { s.dataset.page_bytes = 512; }), ContainsSubstring("page size"));
  CHECK_THAT(refusal([](auto& s) { s.schedule.walk.record_count = 5; }),
             ContainsSubstring("record count"));
  CHECK_THAT(refusal([](auto& s) { s.schedule.walk.seed = 43; }),
             ContainsSubstring("seed 42, but the loader has 43"));
  CHECK_THAT(refusal([](auto& s) { s.schedule.walk.order = Order::kSequential; }),
             ContainsSubstring("order shuffle, but the loader has sequential"));
  CHECK_THAT(refusal([](auto& s) { s.schedule.walk.shuffle = Shuffle::kGlobal; }),
             ContainsSubstring("shuffle block"));
  CHECK_THAT(refusal([](auto& s) { s.schedule.walk.block_records = 3; }),
             ContainsSubstring("block_records 250"));
  CHECK_THAT(refusal([](auto& s) { s.schedule.group_batches = 3; }),
             ContainsSubstring("group_batches 8"));
  CHECK_THAT(refusal([](auto& s) { s.schedule.reuse = 1; }), ContainsSubstring("reuse 2"));
  CHECK_THAT(refusal([](auto& s) { s.schedule.tail = Tail::kWrap; }),
             ContainsSubstring("tail short"));
  CHECK_THAT(refusal([](auto& s) { s.schedule.batch_size = 65; }),
             ContainsSubstring("batch_size 64"));
  CHECK(ContinueStream(saved, saved));
  StreamState other = saved;
  other.dataset.transaction_id = 1;
  CHECK(ContinueStream(saved, other).error().code() == ErrorCode::kStale);
}

StreamState ListState() {
  StreamState state = SomeState();
  state.dataset.database_name = "";
  state.dataset.files = {{"a.mdb", "", 1000, 77, 9}, {"b.mdb", "train", 797, 3, 12}};
  return state;
}

TEST_CASE("The state of a list has its files, and another list is refused by name",
          "[order][state]") {
  const StreamState saved = ListState();
  const std::string text = EncodeStreamState(saved);
  CHECK_THAT(text,
             ContainsSubstring(R"("files":[["a.mdb","",1000,77,9],["b.mdb","train",797,3,12]])"));
  const auto back = DecodeStreamState(text);
  REQUIRE(back);
  CHECK(back->dataset.files == saved.dataset.files);
  CHECK(ContinueStream(*back, saved));
  const auto refusal = [&](auto change) {
    StreamState wanted = saved;
    change(wanted.dataset.files);
    const auto next = ContinueStream(saved, wanted);
    REQUIRE(!next);
    CHECK(next.error().code() == ErrorCode::kStale);
    return next.error().message();
  };
  const std::string begin = "the files have changed: ";
  CHECK(refusal([](auto& files) { std::swap(files[0], files[1]); }) ==
        begin + "the loader does not have a.mdb as file 1, as the saved state has, with 2 files");
  CHECK(refusal([](auto& files) { files.pop_back(); }) ==
        begin + "the loader does not have b.mdb as file 2, as the saved state has, with 2 files");
  CHECK(refusal([](auto& files) { files.push_back(files[0]); }) ==
        begin + "the saved state does not have a.mdb as file 3, as the loader has, with 3 files");
  CHECK(refusal([](auto& files) { files[1].database_name = "test"; }) ==
        begin +
            "the loader has b.mdb with the database name 'test', and the saved state with "
            "'train'");
  CHECK(refusal([](auto& files) { files[1].record_count = 1; }) ==
        begin + "the loader has b.mdb with a record count of 1, and the saved state with 797");
  CHECK(refusal([](auto& files) { files[0].transaction_id = 78; }) ==
        begin + "the loader has a.mdb with transaction 78, and the saved state with 77");
  CHECK(refusal([](auto& files) { files[0].root_page = 1; }) ==
        begin + "the loader has a.mdb with root page 1, and the saved state with 9");
  CHECK(refusal([](auto& files) { files.clear(); }) ==
        begin + "the loader does not have a.mdb as file 1, as the saved state has, with 2 files");
}

TEST_CASE("Damaged lists of files are refused", "[order][state]") {
  const json whole = json::parse(EncodeStreamState(ListState()));
  for (const json& bad : {json(nullptr), json("a.mdb"), json::array(), json::array({"a", "b"}),
                          json::array({json::array({"a.mdb", "", 1, 2, 3})})}) {
    json text = whole;
    text["dataset"]["files"] = bad;
    CHECK_THAT(DecodeRefusal(text), ContainsSubstring("dataset.files"));
  }
  for (size_t i = 0; i < 5; ++i) {
    json text = whole;
    text["dataset"]["files"][1][i] = -1;
    CHECK_THAT(DecodeRefusal(text), ContainsSubstring("dataset.files[1] must be [name"));
  }
}

// Removes each field in turn, and replaces it by a string, a negative and a huge number.
TEST_CASE("Damaged states are refused, naming the field", "[order][state]") {
  const json whole = json::parse(EncodeStreamState(GroupedState()));
  const json flat = whole.flatten();
  for (const auto& [pointer, value] : flat.items()) {
    const std::string field = pointer.substr(pointer.rfind('/') + 1);
    for (const json& bad : {json(nullptr), json("rubbish"), json(-1), json(1e300), json::array()}) {
      json text = whole;
      if (bad.is_string() && field == "database") continue;
      text[json::json_pointer(pointer)] = bad;
      CAPTURE(text.dump());
      CHECK_THAT(DecodeRefusal(text), ContainsSubstring(field));
    }
    json text = flat;
    text.erase(pointer);
    CHECK_THAT(DecodeRefusal(text.unflatten()), ContainsSubstring(field));
  }
  CHECK_THAT(DecodeRefusal(json("text")), ContainsSubstring("not a JSON object"));
  CHECK_FALSE(DecodeStreamState(""));
  CHECK_FALSE(DecodeStreamState("{"));
  json newer = whole;
  newer["lmdbio_state"] = 2;
  CHECK_THAT(DecodeRefusal(newer),
             ContainsSubstring("version 2 (lmdbio_state); this version of lmdbio reads version 1"));
  json contradicting = whole;
  contradicting["position"] = 5;
  CHECK_THAT(DecodeRefusal(contradicting), ContainsSubstring("position is 5, but batch"));
  // Groups of batches where records are not dealt out, and batches that do not begin an epoch.
  json grouped = json::parse(EncodeStreamState(SomeState()));
  grouped["order"]["group_batches"] = 2;
  CHECK_THAT(DecodeRefusal(grouped), ContainsSubstring("order.group_batches must be 1"));
  grouped["origin"]["position"] = 1;
  grouped["position"] = grouped["position"].get<uint64_t>() + 1;
  CHECK_THAT(DecodeRefusal(grouped), ContainsSubstring("order.group_batches must be 1"));
  json early = whole;
  early["origin"]["batch"] = 1000;
  CHECK_THAT(DecodeRefusal(early), ContainsSubstring("origin.batch"));
}

TEST_CASE("Random damage to a state does not crash the decoder", "[order][state]") {
  test::Random random(3);
  const std::string whole = EncodeStreamState(GroupedState());
  for (int i = 0; i < 20'000; ++i) {
    std::string text = whole;
    for (uint64_t change = random.Between(1, 4); change > 0; --change) {
      text[random.Below(text.size())] =
          static_cast<char>(random.Below(2) == 0 ? '0' + random.Below(10) : random.Below(256));
    }
    const auto state = DecodeStreamState(text);
    if (state) CHECK(DecodeStreamState(EncodeStreamState(*state)));
  }
}

}  // namespace
}  // namespace lmdbio::load
