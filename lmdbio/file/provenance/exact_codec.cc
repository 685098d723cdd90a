#include "lmdbio/file/provenance/exact_codec.h"

#include <fmt/format.h>

#include "lmdbio/file/provenance/location_predictor.h"
#include "lmdbio/file/provenance/number_codec.h"

namespace lmdbio::file {
namespace {

// A chunk ends with the run that brings it to this many records. A run holds the records of one
// page, 32,764 at most, so the lists of a chunk stay far below kNumbersMax.
constexpr size_t kChunkRecords = size_t{1} << 18;

// The locations of a chunk's records: one symbol for each record, and the numbers that two of the
// symbols need.
struct EncodedLocations {
  std::vector<uint64_t> symbols;    // [record count]
  std::vector<uint64_t> far_pages;  // [count of kFarRun] zigzag distance from the predicted page
  std::vector<uint64_t> in_pages;   // [count of kInPage] offset in the page
};

// True if a value lies on page `home`. An empty value may start behind the last byte of the page.
bool StandsOn(PageFormat format, uint64_t home, uint64_t offset, uint64_t length_bytes) {
  const uint64_t begin = home * format.page_size_bytes();
  return offset >= begin && offset + length_bytes <= begin + format.page_size_bytes();
}

// Chooses the symbol of one record. A value outside the home page is an overflow run: next to the
// last run, or elsewhere with its distance. A value on the home page is at a predicted offset, or
// elsewhere with its offset. The predictor then takes the true location, as the decoder will.
void EncodePlace(PageFormat format, uint64_t offset, uint64_t length_bytes,
                 LocationPredictor& predictor, EncodedLocations& places) {
  LocationSymbol symbol = LocationSymbol::kInPage;
  if (!StandsOn(format, predictor.home_page(), offset, length_bytes)) {
    const uint64_t page = format.PagesBefore(offset);
    symbol = page == predictor.NextRunPage() ? LocationSymbol::kNextRun : LocationSymbol::kFarRun;
    if (symbol == LocationSymbol::kFarRun) {
      places.far_pages.push_back(ZigZag(page - predictor.NextRunPage()));
    }
    predictor.TakeRun(page, length_bytes);
  } else {
    const uint64_t in_page = offset - predictor.home_page() * format.page_size_bytes();
    if (in_page == predictor.SameStepInPage()) {
      symbol = LocationSymbol::kSameStep;
    } else if (in_page == predictor.PackedNodeInPage(length_bytes)) {
      symbol = LocationSymbol::kPackedNode;
    } else {
      places.in_pages.push_back(in_page);
    }
    predictor.TakeInPage(in_page, length_bytes, symbol);
  }
  places.symbols.push_back(static_cast<uint64_t>(symbol));
}

// One unpacked chunk of the decoder, with the same lists as the encoder.
struct Chunk {
  std::vector<uint64_t> run_lengths, kinds, leaves, first_nodes, homes;
  std::vector<uint64_t> lengths;
  EncodedLocations places;
};

tl::unexpected<Error> CorruptLayout(std::string_view what) {
  return Fail(ErrorCode::kCorruption, fmt::format("layout: {}", what));
}

uint64_t CountOf(const std::vector<uint64_t>& symbols, LocationSymbol wanted) {
  uint64_t count = 0;
  for (const uint64_t symbol : symbols) count += symbol == static_cast<uint64_t>(wanted) ? 1 : 0;
  return count;
}

// record_count_max  number of records that may still follow
Status DecodeChunk(ByteReader& in, uint64_t record_count_max, Chunk& chunk) {
  const uint32_t run_count = in.Get<uint32_t>();
  const uint32_t record_count = in.Get<uint32_t>();
  // The checks come before the first list. So the memory for a forged chunk is bounded by the
  // record count, which Provenance::Decode has compared with the fingerprint.
  if (!in.ok() || run_count == 0 || run_count > record_count || record_count > kNumbersMax ||
      record_count > record_count_max) {
    return CorruptLayout("a chunk has an impossible number of runs or records");
  }
  for (auto* numbers :
       {&chunk.run_lengths, &chunk.kinds, &chunk.leaves, &chunk.first_nodes, &chunk.homes}) {
    LMDBIO_TRY_VOID(DecodeNumbers(in, run_count, *numbers));
  }
  LMDBIO_TRY_VOID(DecodeNumbers(in, record_count, chunk.lengths));
  EncodedLocations& places = chunk.places;
  // The file does not state the lengths of the last two lists; they follow from the symbols. So
  // Expander::Place never reads past their ends.
  LMDBIO_TRY_VOID(DecodeNumbers(in, record_count, places.symbols));
  LMDBIO_TRY_VOID(
      DecodeNumbers(in, CountOf(places.symbols, LocationSymbol::kFarRun), places.far_pages));
  LMDBIO_TRY_VOID(
      DecodeNumbers(in, CountOf(places.symbols, LocationSymbol::kInPage), places.in_pages));
  uint64_t total = 0;
  for (const uint64_t length : chunk.run_lengths) {
    if (length == 0 || length > record_count)
      return CorruptLayout("a run has an impossible length");
    total += length;
  }
  if (total != record_count)
    return CorruptLayout("the runs do not add up to the records of their chunk");
  return {};
}

// Expands the chunks in order. Runs hold leaf pages as zigzag differences from the run before, and
// home pages as differences from the leaf; each record's location comes from its symbol and the
// predictor. The predictor starts anew with each chunk.
class Expander {
 public:
  Expander(PageFormat format, PageNo last_page, RecordRunSink& sink)
      : format_(format), last_page_(last_page), predictor_(format), sink_(sink) {}

  uint64_t record_count() const { return next_record_; }

  Status Expand(const Chunk& chunk) {
    predictor_ = LocationPredictor(format_);
    next_far_ = next_in_page_ = 0;
    uint64_t leaf = 0;
    uint64_t at = 0;
    for (size_t run = 0; run < chunk.run_lengths.size(); ++run) {
      leaf += UnZigZag(chunk.leaves[run]);
      const uint64_t home = leaf + UnZigZag(chunk.homes[run]);
      if (leaf > last_page_.value || home > last_page_.value || chunk.kinds[run] > 1 ||
          chunk.first_nodes[run] > format_.page_size_bytes()) {
        return CorruptLayout("a run has an invalid page, node or kind");
      }
      predictor_.BeginRun(home);
      values_.clear();
      for (uint64_t i = 0; i < chunk.run_lengths[run]; ++i, ++at) {
        LMDBIO_TRY(const Extent value,
                   Place(chunk.places, chunk.places.symbols[at], chunk.lengths[at]));
        values_.push_back(value);
      }
      LMDBIO_TRY_VOID(sink_.Add({RecordIndex{next_record_},
                                 PageNo{leaf},
                                 static_cast<uint32_t>(chunk.first_nodes[run]),
                                 static_cast<RunKind>(chunk.kinds[run]),
                                 PageNo{home},
                                 values_,
                                 {}}));
      next_record_ += values_.size();
    }
    return {};
  }

 private:
  Result<Extent> Place(const EncodedLocations& places, uint64_t symbol_code,
                       uint64_t length_bytes) {
    if (symbol_code > kPlaceSymbolMax || length_bytes > UINT32_MAX) {
      return CorruptLayout("a record has an unknown symbol or more than 4 GiB");
    }
    const auto symbol = static_cast<LocationSymbol>(symbol_code);
    if (symbol == LocationSymbol::kNextRun || symbol == LocationSymbol::kFarRun) {
      // Predicted numbers may have wrapped, and written ones may be forged. The checks below hold
      // for both.
      uint64_t page = predictor_.NextRunPage();
      if (symbol == LocationSymbol::kFarRun) page += UnZigZag(places.far_pages[next_far_++]);
      const uint64_t page_count = format_.OverflowPageCount(length_bytes);
      if (page > last_page_.value || page_count - 1 > last_page_.value - page) {
        return CorruptLayout("a value lies past the last page");
      }
      predictor_.TakeRun(page, length_bytes);
      return Extent{page * format_.page_size_bytes() + format_.header_bytes(), length_bytes};
    }
    uint64_t in_page = predictor_.SameStepInPage();
    if (symbol == LocationSymbol::kPackedNode) in_page = predictor_.PackedNodeInPage(length_bytes);
    if (symbol == LocationSymbol::kInPage) in_page = places.in_pages[next_in_page_++];
    if (in_page > format_.page_size_bytes() || length_bytes > format_.page_size_bytes() - in_page) {
      return CorruptLayout("a value lies past the end of its page");
    }
    predictor_.TakeInPage(in_page, length_bytes, symbol);
    return Extent{predictor_.home_page() * format_.page_size_bytes() + in_page, length_bytes};
  }

  PageFormat format_;
  PageNo last_page_;
  LocationPredictor predictor_;
  RecordRunSink& sink_;
  uint64_t next_record_ = 0;
  size_t next_far_ = 0;
  size_t next_in_page_ = 0;
  std::vector<Extent> values_;
};

}  // namespace

// A chunk ends only between two runs, because each chunk is decoded by itself.
Status ExactEncoder::Add(const RecordRun& run) {
  const uint64_t page_bytes = page_format_.page_size_bytes();
  for (const Extent& value : run.values) {
    if (!StandsOn(page_format_, run.home.value, value.offset, value.length_bytes) &&
        value.offset % page_bytes != page_format_.header_bytes()) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("a value at offset {} is neither on the page of its run nor at the "
                              "head of an overflow run",
                              value.offset));
    }
    offsets_.push_back(value.offset);
    lengths_.push_back(value.length_bytes);
  }
  run_lengths_.push_back(run.values.size());
  kinds_.push_back(static_cast<uint64_t>(run.kind));
  leaves_.push_back(run.leaf.value);
  first_nodes_.push_back(run.first_node);
  homes_.push_back(run.home.value);
  if (offsets_.size() >= kChunkRecords) EncodeChunk();
  return {};
}

void ExactEncoder::EncodeChunk() {
  if (run_lengths_.empty()) return;
  LocationPredictor predictor(page_format_);
  EncodedLocations places;
  size_t at = 0;
  for (size_t run = 0; run < run_lengths_.size(); ++run) {
    predictor.BeginRun(homes_[run]);
    for (uint64_t i = 0; i < run_lengths_[run]; ++i, ++at) {
      EncodePlace(page_format_, offsets_[at], lengths_[at], predictor, places);
    }
  }
  // Turns pages into differences, in place and from the last run backwards: each run needs the
  // original leaf of the run before it, and its home page the original leaf of its own run.
  for (size_t run = run_lengths_.size(); run-- > 0;) {
    homes_[run] = ZigZag(homes_[run] - leaves_[run]);
    leaves_[run] = ZigZag(leaves_[run] - (run > 0 ? leaves_[run - 1] : 0));
  }
  out_.Put(static_cast<uint32_t>(run_lengths_.size()));
  out_.Put(static_cast<uint32_t>(offsets_.size()));
  for (auto* numbers : {&run_lengths_, &kinds_, &leaves_, &first_nodes_, &homes_, &lengths_,
                        &places.symbols, &places.far_pages, &places.in_pages}) {
    EncodeNumbers(*numbers, out_);
    numbers->clear();
  }
  offsets_.clear();
}

std::vector<std::byte> ExactEncoder::Finish() {
  EncodeChunk();
  return out_.Take();
}

Status DecodeExact(Bytes chunks, PageFormat page_format, uint64_t record_count, PageNo last_page,
                   RecordRunSink& sink) {
  ByteReader in(chunks);
  Expander expander(page_format, last_page, sink);
  Chunk chunk;
  while (!in.at_end()) {
    LMDBIO_TRY_VOID(DecodeChunk(in, record_count - expander.record_count(), chunk));
    LMDBIO_TRY_VOID(expander.Expand(chunk));
  }
  if (expander.record_count() != record_count)
    return CorruptLayout("fewer records than the database has");
  return {};
}

}  // namespace lmdbio::file
