// tests/fuzz/state_fuzz.cc - any text as a saved state of a stream.
//
// Input: byte 0 chooses the kind of input. The rest is the text of a state, or the fields of one.
// Oracle: the sanitizers; a state that is accepted continues, encodes to a text that decodes to the
// same text, and names records of its data set. The time of an input grows with its size alone, and
// not with the numbers in it.
#include <string>
#include <string_view>
#include <vector>

#include "lmdbio/load/order/stream_state.h"
#include "tests/fuzz/decode_check.h"
#include "tests/fuzz/input_parts.h"

namespace lmdbio::test {
namespace {

using load::BatchGroup;
using load::BatchSpan;
using load::Schedule;
using load::StreamState;

// The first, a middle and the last record of a batch, on all ways from a number to a record.
void UseBatch(const Schedule& schedule, uint64_t number) {
  const BatchSpan batch = schedule.Batch(number);
  LMDBIO_CHECK(batch.number == number && batch.record_count > 0);
  const BatchGroup group = schedule.Group(number);
  LMDBIO_CHECK(number - group.first_batch < group.batch_count);
  for (const uint64_t slot : {uint64_t{0}, batch.record_count / 2, batch.record_count - 1}) {
    LMDBIO_CHECK(schedule.RecordAt(number, slot).value < schedule.record_count());
    const uint64_t i = group.WalkIndexOf({number - group.first_batch, slot});
    LMDBIO_CHECK(i < group.record_count);
    const auto place = group.PlaceOf(i, batch.pass);
    LMDBIO_CHECK(place.batch == number - group.first_batch && place.slot == slot);
  }
  for (const load::Share share :
       {load::Share::kBlock, load::Share::kRoundRobin, load::Share::kFill}) {
    constexpr int kRanks = 3;
    uint64_t count = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      count += load::ShareCount(batch, share, rank, kRanks);
    }
    LMDBIO_CHECK(count == batch.record_count);
    const int owner = load::OwnerOf(batch, batch.first_position, share, kRanks);
    LMDBIO_CHECK(owner >= 0 && owner < kRanks);
  }
}

void UseState(const StreamState& state) {
  const std::string text = load::EncodeStreamState(state);
  const auto again = load::DecodeStreamState(text);
  LMDBIO_CHECK(again.has_value() && load::EncodeStreamState(*again) == text);
  const auto same = load::ContinueStream(state, state);
  LMDBIO_CHECK(same.has_value() && load::EncodeStreamState(*same) == text);
  UseBatch(Schedule(state.schedule), state.next_batch);
  StreamState wanted = state;
  wanted.schedule.batch_size += 1;
  const auto other = load::ContinueStream(state, wanted);
  if (!other) return CheckMessage(other.error());
  if (other->schedule.tail == load::Tail::kDrop &&
      other->schedule.batch_size > other->schedule.walk.record_count) {
    return;  // the loader refuses this option before it makes a schedule
  }
  UseBatch(Schedule(other->schedule), other->next_batch);
}

void DecodeText(std::string_view text) {
  // Ends where its memory ends, so that the sanitizers see a read behind it.
  const std::vector<char> exact(text.begin(), text.end());
  const auto state = load::DecodeStreamState({exact.data(), exact.size()});
  if (!state) return CheckMessage(state.error());
  UseState(*state);
}

// A state in the text of which every number may be wrong, but nothing else.
void DecodeFields(InputParts in) {
  const auto number = [&in] { return std::to_string(in.TakeScaled()); };
  constexpr std::string_view kOrders[] = {"sequential", "chunked", "shuffle"};
  constexpr std::string_view kShuffles[] = {"global", "block"};
  constexpr std::string_view kTails[] = {"wrap", "short", "drop"};
  std::string text = R"({"lmdbio_state":1,"dataset":{"database":"","records":)" + number();
  text += R"(,"transaction":1,"root_page":2,"page_bytes":4096},"order":{"order":")";
  text += kOrders[in.TakeBelow(std::size(kOrders))];
  text += R"(","shuffle":")";
  text += kShuffles[in.TakeBelow(std::size(kShuffles))];
  text += R"(","seed":)" + number() + R"(,"block_records":)" + number();
  text += R"(,"group_batches":)" + number() + R"(,"reuse":)" + number() + R"(,"tail":")";
  text += kTails[in.TakeBelow(std::size(kTails))];
  text += R"("},"batch_size":)" + number() + R"(,"epoch":)" + number();
  text += R"(,"position":)" + number() + R"(,"batch":)" + number();
  text += R"(,"origin":{"batch":)" + number() + R"(,"position":)" + number() + "}}";
  DecodeText(text);
}

// As DecodeFields, with numbers that a stream can have, so that the state is accepted.
void MakeState(InputParts in) {
  constexpr uint64_t kMost = uint64_t{1} << 60;
  StreamState state;
  load::ScheduleOptions& schedule = state.schedule;
  load::WalkOptions& walk = schedule.walk;
  walk.record_count = 1 + in.TakeScaled() % (uint64_t{1} << 48);
  walk.order = static_cast<load::Order>(in.TakeBelow(3));
  walk.shuffle = static_cast<load::Shuffle>(in.TakeBelow(2));
  walk.seed = in.Take<uint64_t>();
  walk.block_records = 1 + in.TakeScaled() % (uint64_t{1} << 48);
  schedule.tail = static_cast<load::Tail>(in.TakeBelow(3));
  schedule.reuse = 1 + in.TakeScaled() % Schedule::kReuseMax;
  schedule.batch_size = 1 + in.TakeScaled() % walk.record_count;
  const uint64_t group_batches = 1 + in.TakeScaled() % 1024;
  if (load::DealsOut(walk.order, walk.shuffle, schedule.reuse)) {
    schedule.group_batches = group_batches;
    const uint64_t epoch_positions = walk.record_count * schedule.reuse;
    schedule.origin.position = in.TakeScaled() % (kMost / epoch_positions) * epoch_positions;
  } else {
    schedule.origin.position = in.TakeScaled() % kMost;
  }
  schedule.origin.batch = in.TakeScaled() % kMost;
  const uint64_t batches = kMost / schedule.batch_size / schedule.reuse;
  state.next_batch = schedule.origin.batch + in.TakeScaled() % (batches + 1);
  const std::string text = load::EncodeStreamState(state);
  const auto decoded = load::DecodeStreamState(text);
  if (!decoded) return CheckMessage(decoded.error());  // it lies beyond the last position
  UseState(*decoded);
}

}  // namespace
}  // namespace lmdbio::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lmdbio;
  if (size == 0) return 0;
  const test::InputParts rest(std::as_bytes(std::span(data, size)).subspan(1));
  switch (data[0] % 3) {
    case 0:
      test::DecodeText(rest.text_rest());
      break;
    case 1:
      test::DecodeFields(rest);
      break;
    default:
      test::MakeState(rest);
  }
  return 0;
}
