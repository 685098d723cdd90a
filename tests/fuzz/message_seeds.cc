#include "tests/fuzz/message_seeds.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "lmdbio/base/check.h"
#include "lmdbio/file/keys/key_index.h"
#include "lmdbio/file/provenance/exact_codec.h"
#include "lmdbio/file/provenance/provenance.h"
#include "lmdbio/load/exchange/exchange_link.h"
#include "lmdbio/load/locate/layout_all_gather.h"
#include "lmdbio/load/order/stream_state.h"
#include "lmdbio/ranks/launcher/meeting_frame.h"
#include "lmdbio/ranks/net/peer_address.h"
#include "lmdbio/ranks/net/peer_door.h"
#include "lmdbio/sync/graph/plan_proposal.h"
#include "lmdbio/sync/request/message_codec.h"
#include "lmdbio/sync/transport/partial_reply.h"
#include "lmdbio/trace/timeline_writer.h"
#include "tests/fuzz/kept_database.h"
#include "tests/fuzz/seed_directory.h"
#include "tests/support/good.h"
#include "tests/support/random.h"

namespace lmdbio::test {
namespace {

template <typename T>
Bytes BytesOf(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

void Append(std::vector<std::byte>& to, Bytes bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

// Inputs that are made of numbers need no form.
void WriteRandom(const SeedDirectory& seeds, uint8_t kind_count, size_t size_bytes) {
  Random random(7);
  for (uint8_t kind = 0; kind < kind_count; ++kind) {
    for (int i = 0; i < 4; ++i) {
      const std::string bytes = random.BytesOf(size_bytes);
      seeds.Write("random-" + std::to_string(kind) + "-" + std::to_string(i), {kind}, bytes);
    }
  }
}

void WriteStates(const std::filesystem::path& directory) {
  const SeedDirectory seeds(directory, "state");
  load::StreamState state;
  state.dataset = {.database_name = "train", .transaction_id = 7, .root_page = 9};
  state.schedule.walk.record_count = 1000;
  state.schedule.batch_size = 64;
  state.next_batch = 20;
  seeds.Write("sequential", {0}, load::EncodeStreamState(state));
  state.dataset.view_digest = 0x0123456789ABCDEF;
  state.dataset.files = {{"data.1.mdb", "", 600, 7, 9}, {"data.2.mdb", "", 400, 8, 3}};
  state.schedule.walk.order = load::Order::kShuffle;
  state.schedule.walk.shuffle = load::Shuffle::kBlock;
  state.schedule.walk.block_records = 30;
  state.schedule.group_batches = 4;
  state.schedule.reuse = 2;
  state.schedule.tail = load::Tail::kShort;
  seeds.Write("list-in-blocks", {0}, load::EncodeStreamState(state));
  Random random(3);
  for (uint8_t i = 0; i < 12; ++i) {
    const auto kind = static_cast<uint8_t>(1 + i % 2);
    seeds.Write("numbers-" + std::to_string(i), {kind}, random.BytesOf(150));
  }
}

sync::Request SomeRequest() {
  sync::Request request;
  request.name = "layer1.weight";
  request.shape = {64, 3};
  request.group = "first";
  request.group_size = 1;
  return request;
}

sync::PlanProposal SomeProposal() {
  return {.epoch = 2,
          .digest = 99,
          .needs = {0, 1, 1},
          .times = {{10, 500}, {20, 400}, {30, 300}},
          .length_ns = 1000,
          .spread_ns = 50,
          .samples = {{1000, 5}, {2000, 8}}};
}

void WriteControl(const std::filesystem::path& directory) {
  const SeedDirectory seeds(directory, "control");
  sync::RequestList asks;
  asks.asks = {{SomeRequest(), {0, 2}, 5}, {SomeRequest(), {1}, 0}};
  asks.stalled = {"layer2.weight"};
  seeds.Write("requests", {0, 3}, Encode(asks));
  sync::ResponseList answer;
  answer.responses.push_back({{SomeRequest(), SomeRequest()}, "", {}, -1});
  sync::Request gather = SomeRequest();
  gather.operation = sync::Operation::kAllGather;
  answer.responses.push_back({{gather}, "", {1, 2, 3, 4}, -1});
  answer.responses.push_back({{gather}, "rank 1 differs", {}, -1});
  seeds.Write("responses", {1, 3}, Encode(answer));
  const std::vector<std::byte> proposal = sync::WriteProposal(SomeProposal());
  seeds.Write("proposal", {2, 0}, proposal);
  std::vector<std::byte> two{std::byte{1}, std::byte{48}, std::byte{0}, std::byte{1}};
  Append(two, proposal);
  seeds.Write("proposals", {3, 0}, two);
  sync::PartialReply reply(sync::ExchangeKind::kGather, 0);
  Must(reply.Add(3, proposal));
  Must(reply.Add(1, {}));
  std::vector<std::byte> packed{std::byte{1}, std::byte{0}};
  Append(packed, reply.Pack());
  seeds.Write("packed", {4, 0}, packed);
  Random random(17);
  for (uint8_t ranks = 0; ranks < 6; ++ranks) {
    seeds.Write("call-" + std::to_string(ranks), {5, ranks}, random.BytesOf(60));
  }
}

void WriteLinks(const std::filesystem::path& directory) {
  const SeedDirectory seeds(directory, "links");
  // Two messages and a failure, as {kind, errno, length, bytes}.
  std::vector<std::byte> frames;
  for (const uint32_t kind : {1U, 1U, 2U}) {
    const std::string text = "some words";
    Append(frames, BytesOf(kind));
    Append(frames, BytesOf(int32_t{5}));
    Append(frames, BytesOf(uint64_t{text.size()}));
    Append(frames, AsBytes(text));
  }
  seeds.Write("frames", {0, 0}, frames);
  const std::vector<std::byte> entry(20, std::byte{3});
  const int wanted[] = {1, 2};
  const std::vector<std::byte> hello =
      ranks::EncodeHello({.job = 5, .rank = 1, .size = 3}, entry, wanted);
  const std::vector<std::vector<std::byte>> all = {entry, {}};
  const std::vector<std::byte> entries = ranks::EncodeEntries({}, all);
  std::vector<std::byte> meeting;
  for (const std::vector<std::byte>& body : {hello, entries}) {
    const ranks::MeetingHead head{.word = ranks::MeetingWord::kHello,
                                  .bytes = static_cast<uint32_t>(body.size()),
                                  .value = 2};
    Append(meeting, BytesOf(head));
    Append(meeting, body);
  }
  seeds.Write("meeting", {1, 7}, meeting);
  std::vector<std::byte> counted{std::byte{2}};
  Append(counted, hello);
  seeds.Write("hello", {2, 0}, counted);
  counted.resize(1);
  Append(counted, entries);
  seeds.Write("entries", {2, 0}, counted);
  ranks::Reachability there;
  there.address_count = 2;
  there.addresses[1] = ranks::LoopbackAddresses().front();
  std::vector<std::byte> addresses{std::byte{1}};
  Append(addresses, BytesOf(there));
  seeds.Write("addresses", {3, 0}, addresses);
  const ranks::Introduction said{{}, 3, 1};
  seeds.Write("introduction", {4, 0}, BytesOf(said));
  Random random(11);
  for (int i = 0; i < 12; ++i) {
    seeds.Write("calls-" + std::to_string(i), {5, 0}, random.BytesOf(200));
  }
}

void WriteReaders(const std::filesystem::path& directory, const KeptDatabase& kept) {
  const SeedDirectory seeds(directory, "readers");
  seeds.Write("layout", {0}, load::EncodePiece(kept.layout()));
  Random random(5);
  for (int i = 0; i < 8; ++i) {
    seeds.Write("cursor-" + std::to_string(i), {1}, random.BytesOf(30));
  }
  using load::ExchangeFrame;
  std::vector<std::byte> frames{std::byte{200}};
  Append(frames, BytesOf(ExchangeFrame{ExchangeFrame::Kind::kRequest, 9, 4096, 100}));
  Append(frames, BytesOf(ExchangeFrame{ExchangeFrame::Kind::kReply, 1, 4096, 701}));
  Append(frames, std::vector<std::byte>(701, std::byte{6}));
  Append(frames, BytesOf(ExchangeFrame{ExchangeFrame::Kind::kRefusal, 2, 8192, 1401}));
  seeds.Write("pieces", {2}, frames);
}

void WriteKept(const std::filesystem::path& directory, const KeptDatabase& kept) {
  const SeedDirectory seeds(directory, "kept");
  file::ExactEncoder encoder(kept.database().pages().page_format());
  Must(kept.layout().Expand(encoder));
  const std::vector<std::byte> layout =
      file::EncodeExactLayout(kept.fingerprint(), KeptDatabase::kRecordCount, encoder.Finish());
  file::KeyIndexBuilder builder(KeptDatabase::kRecordCount);
  for (uint64_t i = 0; i < KeptDatabase::kRecordCount; ++i) {
    const std::string key = fmt::format("{:05}", i);
    builder.Add(AsBytes(key), i);
  }
  const std::vector<std::byte> index = std::move(builder).Finish().Encode(kept.fingerprint());
  seeds.Write("layout", {0, static_cast<uint8_t>(file::ProvenanceKind::kExactLayout)},
              kept.TailOf(layout));
  seeds.Write("layout-whole", {2}, layout);
  seeds.Write("index", {1, 0}, kept.TailOf(index));
  seeds.Write("index-whole", {3}, index);
  // The six items of an ordered load with one size of keys and one of values.
  file::ByteWriter load;
  load.Put(uint64_t{0});
  for (const uint32_t number : {20U, 20U, 0U, 2U}) load.Put(number);
  load.Put(uint8_t{0});
  load.Put(uint32_t{5});
  load.Put(uint8_t{0});
  load.Put(uint32_t{20});
  seeds.Write("load", {0, static_cast<uint8_t>(file::ProvenanceKind::kOrderedLoad)}, load.bytes());
}

void WriteTexts(const std::filesystem::path& directory) {
  const SeedDirectory seeds(directory, "texts");
  constexpr std::string_view kLaunches[] = {
      "RANK=1\nWORLD_SIZE=3\nMASTER_ADDR=node7\nMASTER_PORT=65530\nLMDBIO_MEETING_LIMIT_S=9",
      "SLURM_PROCID=2\nSLURM_STEP_NUM_TASKS=4\nSLURM_STEP_NODELIST=node[07-09,12],gpu1\n"
      "SLURM_JOB_ID=11\nSLURM_STEP_ID=3",
      "SLURM_PROCID=0\nSLURM_NTASKS=2\nLMDBIO_MEETING=[fe80::1]:4711\nTORCHELASTIC_RUN_ID=x"};
  for (size_t i = 0; i < std::size(kLaunches); ++i) {
    seeds.Write("launch-" + std::to_string(i), {0}, kLaunches[i]);
  }
  seeds.Write("hosts", {1}, "node[07-09,12],gpu1");
  seeds.Write("cores", {2}, "0-5,8,7-12,1048575");
  constexpr std::string_view kPlacements[] = {"scp", "compute=0-5,input=6,sync=7",
                                              "compute=core:0-1,input=numa:1,sync=near",
                                              "compute=0-2,sync=3;compute=4-6,sync=7"};
  for (size_t i = 0; i < std::size(kPlacements); ++i) {
    const auto ranks = static_cast<uint8_t>(i == 3 ? 1 : 0);
    seeds.Write("placement-" + std::to_string(i), {3, 0, ranks, 0}, kPlacements[i]);
  }
  Random random(13);
  for (int i = 0; i < 6; ++i) {
    seeds.Write("view-" + std::to_string(i), {4}, random.BytesOf(120));
  }
  // Order, one excluded key, no other database, two fields with templates, and a start.
  seeds.Write(
      "view-templates", {4},
      std::string("\0\1\6length\0\2\5image\0\14image-{:09d}\0\5label\0\10label-{}\0\0\1\1", 52));
}

void WriteTimeline(const std::filesystem::path& directory) {
  const SeedDirectory seeds(directory, "timeline");
  const std::string path = (seeds.path() / "two-tensors").string();
  UniqueFd file(::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644));
  LMDBIO_CHECK(file);
  using trace::TimelineEvent;
  using EventKind = TimelineEvent::EventKind;
  trace::TimelineWriter writer(path, std::move(file), 1, 0);
  Must(writer.WriteHead(2, "node-7"));
  const TimelineEvent events[] = {
      {.kind = EventKind::kRow, .row = 0, .name = "weight"},
      {.kind = EventKind::kNegotiate, .row = 0, .begin_ns = 1000, .number = 1, .bytes = 400},
      {.kind = EventKind::kAgreed, .row = 0, .begin_ns = 2000},
      {.kind = EventKind::kTransfer, .begin_ns = 3000, .end_ns = 5000, .bytes = 400},
      {.kind = EventKind::kBucket,
       .begin_ns = 2500,
       .end_ns = 6000,
       .number = 1,
       .bytes = 400,
       .tensor_count = 1},
      {.kind = EventKind::kOperation,
       .row = 0,
       .name = "allreduce",
       .begin_ns = 2000,
       .end_ns = 7000,
       .number = 1},
      {.kind = EventKind::kWait, .row = 0, .begin_ns = 4000, .end_ns = 7000},
      {.kind = EventKind::kMark, .name = "plan", .begin_ns = 8000}};
  Must(writer.WriteEvents(events));
  Must(writer.WriteEnd(0));
}

}  // namespace

void WriteMessageSeeds(const std::filesystem::path& directory) {
  const KeptDatabase kept;
  WriteStates(directory);
  WriteControl(directory);
  WriteLinks(directory);
  WriteReaders(directory, kept);
  WriteKept(directory, kept);
  WriteTexts(directory);
  WriteTimeline(directory);
  WriteRandom(SeedDirectory(directory, "rounds"), 3, 400);
  WriteRandom(SeedDirectory(directory, "structs"), 3, 300);
}

}  // namespace lmdbio::test
