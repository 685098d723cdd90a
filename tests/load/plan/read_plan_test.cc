// Goal: after the blocks of a plan were read, the bytes of every record are at the planned offsets,
// and the plan reads little else. Method: random layouts over random bytes; the test reads the
// blocks into a buffer.
#include "lmdbio/load/plan/read_plan.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <set>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/random.h"

namespace lmdbio::load {
namespace {

// A file with pages that are all different.
std::vector<std::byte> FileOf(uint64_t size_bytes) {
  const std::string bytes = test::Random(5).BytesOf(size_bytes);
  const Bytes view = std::as_bytes(std::span(bytes));
  return {view.begin(), view.end()};
}

// Runs with the values they view.
class RunList {
 public:
  void Add(file::RecordRun run, std::vector<Extent> values) {
    run.first_record = {record_count_};
    record_count_ += values.size();
    values_.push_back(std::move(values));
    run.values = values_.back();
    runs_.push_back(run);
  }
  const std::vector<file::RecordRun>& runs() const { return runs_; }

 private:
  std::vector<file::RecordRun> runs_;
  std::deque<std::vector<Extent>> values_;
  uint64_t record_count_ = 0;
};

class RandomRuns {
 public:
  RandomRuns(uint32_t page_bytes, uint64_t page_count, uint64_t seed)
      : page_bytes_(page_bytes), page_count_(page_count), random_(seed) {}

  RunList Make() {
    RunList list;
    const uint64_t run_count = random_.Between(1, 25);
    uint64_t leaf = 0;
    for (uint64_t i = 0; i < run_count; ++i) {
      // In file order, anywhere, or the same once more.
      if (random_.Below(3) > 0) leaf = std::min(page_count_ - 1, leaf + random_.Below(4));
      if (random_.Below(4) == 0) leaf = random_.Below(page_count_);
      file::RecordRun run;
      run.leaf = {leaf};
      run.home = {leaf};
      run.first_node = static_cast<uint32_t>(random_.Below(9));
      if (random_.Below(3) == 0) {
        run.kind = file::RunKind::kDuplicates;
        if (random_.Below(2) == 0) run.home = {random_.Below(page_count_)};
      }
      list.Add(run, Values(run));
    }
    return list;
  }

 private:
  std::vector<Extent> Values(const file::RecordRun& run) {
    std::vector<Extent> values;
    const uint64_t count = random_.Between(1, 6);
    for (uint64_t i = 0; i < count; ++i) {
      const bool overflows = run.kind == file::RunKind::kNodes && random_.Below(2) == 0;
      Extent value = overflows ? OverflowValue() : ValueOn(run.home.value);
      // No overflow run begins on the leaf that refers to it.
      const bool is_on_leaf = value.offset / page_bytes_ == run.leaf.value;
      if (overflows && is_on_leaf) value = ValueOn(run.home.value);
      values.push_back(value);
    }
    return values;
  }

  Extent ValueOn(uint64_t page) {
    if (random_.Below(6) == 0) return {(page + 1) * page_bytes_, 0};  // empty, at the page's end
    const uint64_t begin = random_.Below(page_bytes_);
    return {page * page_bytes_ + begin, random_.Between(0, page_bytes_ - begin)};
  }

  Extent OverflowValue() {
    constexpr uint64_t kHeaderBytes = 16;
    if (random_.Below(2) == 0) last_overflow_ = random_.Below(page_count_);
    const uint64_t first = std::min(last_overflow_, page_count_ - 1);
    const uint64_t pages = std::min(random_.Between(1, 9), page_count_ - first);
    last_overflow_ = first + pages;
    const uint64_t length_bytes_max = pages * page_bytes_ - kHeaderBytes;
    return {first * page_bytes_ + kHeaderBytes, random_.Between(1, length_bytes_max)};
  }

  uint64_t page_bytes_;
  uint64_t page_count_;
  uint64_t last_overflow_ = 0;
  test::Random random_;
};

bool AnyOverlap(std::vector<Extent> extents) {
  std::ranges::sort(extents, {}, &Extent::offset);
  for (size_t i = 1; i < extents.size(); ++i) {
    if (extents[i - 1].offset + extents[i - 1].length_bytes > extents[i].offset) return true;
  }
  return false;
}

// Reads the blocks of a plan, and checks that they are valid and not too many.
class PlannedBuffer {
 public:
  // plan  with its blocks cut as Finish does
  PlannedBuffer(const ReadPlan& plan, const ReadPlanOptions& options, Bytes file)
      : PlannedBuffer(plan.buffer_bytes(), file) {
    ReadBlocks(plan, options);
    CheckAllRead();
  }

  PlannedBuffer(uint64_t buffer_bytes, Bytes file)
      : file_(file), bytes_(buffer_bytes, std::byte{0}) {
    REQUIRE(buffer_bytes % kStretchAlignBytes == 0);
  }

  // Reads the blocks that are cut at present.
  void ReadBlocks(const ReadPlan& plan, const ReadPlanOptions& options) {
    uint64_t read_bytes = 0;
    for (const PlannedBlock& block : plan.blocks()) {
      const auto [offset, length_bytes] = block.file;
      REQUIRE(length_bytes > 0);
      REQUIRE(length_bytes <= options.block_bytes_max);
      REQUIRE(offset + length_bytes <= file_.size());
      REQUIRE(offset % kStretchAlignBytes == 0);
      in_file_.push_back(block.file);
      read_bytes += length_bytes;
      if (block.part_count == 0) {
        Copy({block.file, block.at, block.is_leaf});
        continue;
      }
      REQUIRE(block.part_count > 1);
      REQUIRE_FALSE(block.is_leaf);
      const auto parts = plan.parts().subspan(block.first_part, block.part_count);
      REQUIRE(parts.front().file.offset == offset);
      REQUIRE(parts.back().file.offset + parts.back().file.length_bytes == offset + length_bytes);
      for (const PlannedExtent& part : parts) Copy(part);
    }
    REQUIRE(read_bytes == plan.read_bytes());
    for (const PlannedExtent& piece : plan.had()) Copy(piece);
  }

  void CheckAllRead() const {
    REQUIRE_FALSE(AnyOverlap(in_file_));
    REQUIRE_FALSE(AnyOverlap(in_buffer_));
  }

  bool Holds(const Extent& extent, uint64_t at) const {
    if (extent.length_bytes == 0) return at <= bytes_.size();
    if (at > bytes_.size() || extent.length_bytes > bytes_.size() - at) return false;
    return std::memcmp(&bytes_[at], &file_[extent.offset], extent.length_bytes) == 0;
  }

 private:
  void Copy(const PlannedExtent& piece) {
    REQUIRE(piece.at + piece.file.length_bytes <= bytes_.size());
    REQUIRE(piece.at % kStretchAlignBytes == 0);
    std::copy_n(&file_[piece.file.offset], piece.file.length_bytes, &bytes_[piece.at]);
    in_buffer_.push_back({piece.at, piece.file.length_bytes});
  }

  Bytes file_;
  std::vector<std::byte> bytes_;
  std::vector<Extent> in_file_, in_buffer_;
};

// The pages that the records need, one by one.
std::set<uint64_t> NeededPages(const RunList& list, uint64_t page_bytes) {
  std::set<uint64_t> pages;
  for (const file::RecordRun& run : list.runs()) {
    pages.insert(run.leaf.value);
    pages.insert(run.home.value);
    for (const Extent& value : run.values) {
      for (uint64_t at = value.offset; at < value.offset + value.length_bytes; ++at) {
        pages.insert(at / page_bytes);
        at = (at / page_bytes + 1) * page_bytes - 1;
      }
    }
  }
  return pages;
}

void CheckPlaces(const ReadPlan& plan, const RunList& list, const PlannedBuffer& buffer,
                 uint64_t page_bytes) {
  REQUIRE(plan.runs().size() == list.runs().size());
  for (size_t i = 0; i < list.runs().size(); ++i) {
    const file::RecordRun& asked = list.runs()[i];
    const PlannedRun& run = plan.runs()[i];
    INFO("run " << i);
    REQUIRE(run.record_count == asked.values.size());
    REQUIRE(run.first_record == asked.first_record);
    REQUIRE(run.leaf == asked.leaf);
    REQUIRE(run.home == asked.home);
    REQUIRE(run.first_node == asked.first_node);
    REQUIRE(run.kind == asked.kind);
    REQUIRE(buffer.Holds({run.leaf.value * page_bytes, page_bytes}, run.leaf_at));
    REQUIRE(buffer.Holds({run.home.value * page_bytes, page_bytes}, run.home_at));
    for (uint64_t r = 0; r < run.record_count; ++r) {
      INFO("record " << r);
      const PlannedValue& value = plan.values()[run.first_value + r];
      REQUIRE(value.file == asked.values[r]);
      REQUIRE(buffer.Holds(value.file, value.at));
    }
  }
}

void CheckWaste(const ReadPlan& plan, const ReadPlanOptions& options, uint64_t needed_pages) {
  const uint64_t page_bytes = options.page_format.page_size_bytes();
  REQUIRE(plan.useful_bytes() == needed_pages * page_bytes);
  double waste_max = static_cast<double>(plan.useful_bytes()) * options.gap_share_max;
  if (options.coalescing == Coalescing::kNone) waste_max = 0;
  // Stretches of small pages are aligned at both ends.
  if (page_bytes < kStretchAlignBytes) {
    waste_max += static_cast<double>(plan.blocks().size() * 2 * kStretchAlignBytes);
  }
  REQUIRE(static_cast<double>(plan.read_bytes() - plan.useful_bytes()) <= waste_max);
}

ReadPlanOptions OptionsOf(uint32_t page_bytes, uint64_t file_size_bytes, Coalescing coalescing) {
  ReadPlanOptions options;
  options.page_format = {file::DataVersion::k1, page_bytes};
  options.file_size_bytes = file_size_bytes;
  options.coalescing = coalescing;
  return options;
}

TEST_CASE("ReadPlan places every needed byte and reads few others", "[layout][plan]") {
  const uint32_t page_bytes = GENERATE(512U, 1024U, 4096U, 16384U, 65536U);
  const Coalescing coalescing = GENERATE(Coalescing::kNeighbours, Coalescing::kNone);
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(page_bytes, static_cast<int>(coalescing), seed);
    test::Random random(seed);
    const uint64_t page_count = random.Between(1, page_bytes > 4096 ? 20 : 200);
    // A file may end with part of a page.
    const uint64_t tail_bytes = random.Below(2) * random.Below(page_bytes);
    ReadPlanOptions options =
        OptionsOf(page_bytes, page_count * page_bytes + tail_bytes, coalescing);
    options.block_bytes_max = kStretchAlignBytes * random.Between(1, 40);
    const std::vector<std::byte> file = FileOf(options.file_size_bytes);
    ReadPlan plan(options);
    // The same plan serves for one slot after the other.
    for (int round = 0; round < 2; ++round) {
      const RunList list = RandomRuns(page_bytes, page_count, seed * 2 + round % 2).Make();
      plan.Clear();
      for (const file::RecordRun& run : list.runs()) REQUIRE(plan.Add(run));
      const uint64_t pending_bytes = plan.pending_bytes();
      plan.Finish();
      const PlannedBuffer buffer(plan, options, file);
      CheckPlaces(plan, list, buffer, page_bytes);
      CheckWaste(plan, options, NeededPages(list, page_bytes).size());
      REQUIRE(pending_bytes >= plan.useful_bytes());
    }
  }
}

TEST_CASE("ReadPlan gives the same plan for the same runs", "[layout][plan]") {
  const RunList list = RandomRuns(4096, 100, 1).Make();
  const ReadPlanOptions options = OptionsOf(4096, 100 * 4096, Coalescing::kNeighbours);
  ReadPlan fresh(options);
  ReadPlan used(options);
  const RunList other = RandomRuns(4096, 100, 2).Make();
  for (const file::RecordRun& run : other.runs()) REQUIRE(used.Add(run));
  used.Finish();
  used.Clear();
  for (ReadPlan* plan : {&fresh, &used}) {
    for (const file::RecordRun& run : list.runs()) REQUIRE(plan->Add(run));
    plan->Finish();
  }
  REQUIRE(fresh.blocks().size() == used.blocks().size());
  for (size_t i = 0; i < fresh.blocks().size(); ++i) {
    CHECK(fresh.blocks()[i].file == used.blocks()[i].file);
    CHECK(fresh.blocks()[i].at == used.blocks()[i].at);
  }
  for (size_t i = 0; i < fresh.values().size(); ++i) {
    CHECK(fresh.values()[i].at == used.values()[i].at);
  }
  CHECK(fresh.buffer_bytes() == used.buffer_bytes());
  CHECK(fresh.read_bytes() == used.read_bytes());
  CHECK(fresh.useful_bytes() == used.useful_bytes());
}

// Part of a load in key order: each leaf page stands before the values of its nodes. Gaps lie
// between some of them. The first leaf page has nodes before the first record.
RunList OrderedRuns(uint32_t page_bytes, test::Random& random) {
  RunList list;
  const uint64_t nodes = random.Between(1, 200);  // of a leaf page
  uint64_t page = random.Between(2, 50);
  uint64_t skipped = random.Below(nodes);
  const uint64_t run_count = random.Between(1, 6);
  for (uint64_t i = 0; i < run_count; ++i) {
    file::RecordRun run;
    run.leaf = {page};
    run.home = {page++};
    run.first_node = static_cast<uint32_t>(skipped);
    page += skipped;  // the values of the nodes before the first record
    std::vector<Extent> values;
    for (uint64_t node = skipped; node < nodes; ++node) {
      const bool is_inline = random.Below(20) == 0;
      const uint64_t pages = random.Between(1, 3);
      const uint64_t at = is_inline ? run.leaf.value : page;
      values.push_back({at * page_bytes + 16, is_inline ? 20 : pages * page_bytes - 100});
      if (!is_inline) page += pages;
      if (random.Below(40) == 0) page += random.Below(8);
    }
    list.Add(run, values);
    skipped = 0;
  }
  return list;
}

TEST_CASE("ReadPlan does not depend on the order of the runs", "[layout][plan]") {
  const uint32_t page_bytes = GENERATE(512U, 4096U, 16384U);
  const bool is_in_place = GENERATE(false, true);
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(page_bytes, is_in_place, seed);
    test::Random random(seed);
    const RunList list = OrderedRuns(page_bytes, random);
    ReadPlanOptions options = OptionsOf(page_bytes, 5000 * page_bytes, Coalescing::kNeighbours);
    options.is_in_place = is_in_place;
    ReadPlan forward(options);
    ReadPlan backward(options);
    for (const file::RecordRun& run : list.runs()) REQUIRE(forward.Add(run));
    for (size_t i = list.runs().size(); i-- > 0;) REQUIRE(backward.Add(list.runs()[i]));
    forward.Finish();
    backward.Finish();
    REQUIRE(forward.blocks().size() == backward.blocks().size());
    for (size_t i = 0; i < forward.blocks().size(); ++i) {
      REQUIRE(forward.blocks()[i].file == backward.blocks()[i].file);
      REQUIRE(forward.blocks()[i].at == backward.blocks()[i].at);
      REQUIRE(forward.blocks()[i].is_leaf == backward.blocks()[i].is_leaf);
    }
    REQUIRE(forward.useful_bytes() == backward.useful_bytes());
    REQUIRE(forward.buffer_bytes() == backward.buffer_bytes());
    for (size_t i = 0; i < forward.runs().size(); ++i) {
      const PlannedRun& run = forward.runs()[i];
      const PlannedRun& same = backward.runs()[forward.runs().size() - 1 - i];
      REQUIRE(run.leaf_at == same.leaf_at);
      REQUIRE(run.home_at == same.home_at);
      for (uint64_t j = 0; j < run.record_count; ++j) {
        REQUIRE(forward.values()[run.first_value + j].at ==
                backward.values()[same.first_value + j].at);
      }
    }
  }
}

// A leaf page and the values of its nodes, one page each, behind it; the last behind a gap.
RunList LeafAndFourValues(uint64_t gap_pages) {
  file::RecordRun run;
  run.leaf = {10};
  run.home = {10};
  RunList list;
  list.Add(run, {{11 * 4096 + 16, 4000},
                 {12 * 4096 + 16, 4000},
                 {13 * 4096 + 16, 4000},
                 {(14 + gap_pages) * 4096 + 16, 4000}});
  return list;
}

std::vector<Extent> BlocksOf(const RunList& list, const ReadPlanOptions& options) {
  ReadPlan plan(options);
  for (const file::RecordRun& run : list.runs()) REQUIRE(plan.Add(run));
  plan.Finish();
  std::vector<Extent> blocks;
  for (const PlannedBlock& block : plan.blocks()) blocks.push_back(block.file);
  return blocks;
}

TEST_CASE("ReadPlan joins neighbours only with Coalescing::kNeighbours", "[layout][plan]") {
  const RunList list = LeafAndFourValues(0);
  ReadPlanOptions options = OptionsOf(4096, 100 * 4096, Coalescing::kNeighbours);
  CHECK(BlocksOf(list, options) == std::vector<Extent>{{10 * 4096, 5 * 4096}});
  options.block_bytes_max = 2 * 4096;
  CHECK(BlocksOf(list, options) ==
        std::vector<Extent>{{10 * 4096, 2 * 4096}, {12 * 4096, 2 * 4096}, {14 * 4096, 4096}});
  options.coalescing = Coalescing::kNone;
  CHECK(BlocksOf(list, options).size() == 5);
}

TEST_CASE("ReadPlan reads gaps that are small relative to the needed bytes", "[layout][plan]") {
  ReadPlanOptions options = OptionsOf(4096, 100 * 4096, Coalescing::kNeighbours);
  CHECK(BlocksOf(LeafAndFourValues(1), options).size() == 2);
  options.gap_share_max = 0.2;
  CHECK(BlocksOf(LeafAndFourValues(1), options).size() == 1);
  CHECK(BlocksOf(LeafAndFourValues(2), options).size() == 2);
}

TEST_CASE("ReadPlan reads nothing behind the end of a file", "[layout][plan]") {
  // Three pages of 512 bytes; the last is asked for.
  file::RecordRun run;
  run.leaf = {2};
  run.home = {2};
  RunList list;
  list.Add(run, {{3 * 512, 0}, {2 * 512 + 500, 12}});
  const ReadPlanOptions options = OptionsOf(512, 3 * 512, Coalescing::kNeighbours);
  CHECK(BlocksOf(list, options) == std::vector<Extent>{{0, 3 * 512}});
}

TEST_CASE("ReadPlan of no records reads nothing", "[layout][plan]") {
  ReadPlan plan(OptionsOf(4096, 4096, Coalescing::kNeighbours));
  plan.Finish();
  CHECK(plan.blocks().empty());
  CHECK(plan.buffer_bytes() == 0);
  CHECK(plan.read_bytes() == 0);
}

// Seconds that storage needs for the blocks.
double TimeOf(const ReadPlan& plan, const ReadCost& cost) {
  return std::max(static_cast<double>(plan.blocks().size()) * cost.request_s,
                  static_cast<double>(plan.read_bytes()) * cost.byte_s);
}

TEST_CASE("Parts of a plan, cut with gaps, fill the same buffer", "[layout][plan]") {
  const uint32_t page_bytes = GENERATE(512U, 4096U, 16384U);
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(page_bytes, seed);
    test::Random random(seed);
    const uint64_t page_count = random.Between(1, page_bytes > 4096 ? 40 : 300);
    ReadPlanOptions options =
        OptionsOf(page_bytes, page_count * page_bytes, Coalescing::kNeighbours);
    options.block_bytes_max = kStretchAlignBytes * random.Between(1, 60);
    const std::vector<std::byte> file = FileOf(options.file_size_bytes);
    const RunList list = RandomRuns(page_bytes, page_count, seed).Make();
    ReadPlan plan(options);
    for (const file::RecordRun& run : list.runs()) REQUIRE(plan.Add(run));
    plan.Finish();
    const uint64_t useful_bytes = plan.useful_bytes();
    BlockCut cut;
    cut.part_count = random.Between(1, 4);
    cut.cost = {1e-6 * static_cast<double>(random.Below(200)), 1e-9};
    if (random.Below(2) == 0) {
      cut.has_leaf = [](const Extent& leaf) { return leaf.offset / kStretchAlignBytes % 2 == 0; };
    }
    PlannedBuffer buffer(plan.buffer_bytes(), file);
    for (cut.part = 0; cut.part < cut.part_count; ++cut.part) {
      BlockCut no_gaps = cut;
      no_gaps.cost = {};
      plan.CutBlocks(no_gaps);
      REQUIRE(plan.parts().empty());
      const double time_without = TimeOf(plan, cut.cost);
      plan.CutBlocks(cut);
      REQUIRE(TimeOf(plan, cut.cost) <= time_without * (1 + 1e-9));
      buffer.ReadBlocks(plan, options);
    }
    buffer.CheckAllRead();
    CheckPlaces(plan, list, buffer, page_bytes);
    REQUIRE(plan.useful_bytes() == useful_bytes);
  }
}

// A hundred records of one page each, one in ten pages: 4 KiB needed, then a gap of 36 KiB.
TEST_CASE("ReadPlan reads along gaps that cost less than requests", "[layout][plan]") {
  ReadPlanOptions options = OptionsOf(4096, 1000 * 4096, Coalescing::kNeighbours);
  options.gap_share_max = 0;
  ReadPlan plan(options);
  for (uint64_t i = 0; i < 100; ++i) {
    file::RecordRun run;
    run.leaf = run.home = {i * 10};
    const Extent value{i * 10 * 4096 + 16, 4000};
    run.values = {&value, 1};
    REQUIRE(plan.Add(run));
  }
  REQUIRE(plan.Settle() == 100);
  REQUIRE(plan.pending_bytes() == 100 * 4096);
  plan.Finish();
  CHECK(plan.blocks().size() == 100);
  BlockCut cut;
  // Requests are expensive: one request per MiB remains.
  cut.cost = {1, 1e-9};
  plan.CutBlocks(cut);
  CHECK(plan.blocks().size() == 4);
  CHECK(plan.parts().size() == 100);
  CHECK(plan.buffer_bytes() == 100 * 4096);
  CHECK(plan.useful_bytes() == 100 * 4096);
  // Bytes are expensive: no gap is read.
  cut.cost = {1e-9, 1};
  plan.CutBlocks(cut);
  CHECK(plan.blocks().size() == 100);
  CHECK(plan.read_bytes() == 100 * 4096);
}

TEST_CASE("ReadPlan counts shared pages once when it is settled", "[layout][plan]") {
  const RunList list = LeafAndFourValues(3);
  ReadPlan plan(OptionsOf(4096, 100 * 4096, Coalescing::kNeighbours));
  for (int round = 0; round < 3; ++round) {
    for (const file::RecordRun& run : list.runs()) REQUIRE(plan.Add(run));
    CHECK(plan.pending_bytes() == (round == 0 ? 5 : 10) * 4096);
    CHECK(plan.Settle() == 2);
    CHECK(plan.pending_bytes() == 5 * 4096);
  }
  plan.Finish();
  CHECK(plan.useful_bytes() == 5 * 4096);
}

}  // namespace
}  // namespace lmdbio::load
