// lmdbio/file/provenance/location_predictor.h - predicts the location of the next record.
//
// Encoder and decoder run the same predictor. The file holds a symbol for each record, and a number
// only if no prediction is right. The predictor keeps three guesses: the next overflow run starts
// behind the last one; the next node is packed below the last one; the next item is as far from the
// last one as that was from the one before.
#ifndef LMDBIO_FILE_PROVENANCE_LOCATION_PREDICTOR_H_
#define LMDBIO_FILE_PROVENANCE_LOCATION_PREDICTOR_H_

#include <cstdint>

#include "lmdbio/file/format/page_format.h"
#include "lmdbio/file/layout/record_run.h"

namespace lmdbio::file {

// The encoding of a record's location; one symbol for each record.
enum class LocationSymbol : uint8_t {
  kNextRun = 0,     // overflow run right behind the last one
  kFarRun = 1,      // overflow run elsewhere: its first page follows, relative to kNextRun's
  kPackedNode = 2,  // inline, packed below the record before it as LMDB packs nodes
  kInPage = 3,      // inline elsewhere: the offset in the page follows
  kSameStep = 4,    // inline, as far from the record before it as that was from the one before
};
inline constexpr uint64_t kPlaceSymbolMax = 4;

// Numbers may wrap modulo 2^64. A wrong prediction is harmless, because the encoder then writes the
// true location and the decoder checks every result.
class LocationPredictor {
 public:
  explicit LocationPredictor(PageFormat page_format) : page_format_(page_format) {}

  void BeginRun(uint64_t home_page) {
    home_page_ = home_page;
    at_run_start_ = true;
    previous_in_page_ = page_format_.page_size_bytes() + overhead_;
  }

  uint64_t NextRunPage() const { return next_page_; }
  uint64_t PackedNodeInPage(uint64_t length_bytes) const {
    return previous_in_page_ - PageFormat::Even(overhead_ + length_bytes);
  }
  uint64_t SameStepInPage() const {
    return at_run_start_ ? run_start_in_page_ : previous_in_page_ + step_;
  }
  uint64_t home_page() const { return home_page_; }

  // Records the true location: an overflow run that starts at `page`.
  void TakeRun(uint64_t page, uint64_t length_bytes) {
    next_page_ = page + page_format_.OverflowPageCount(length_bytes);
    // The page still holds a node for the record, with a reference in place of the value.
    previous_in_page_ -= PageFormat::Even(overhead_ + page_format_.overflow_reference_bytes());
    at_run_start_ = false;
  }

  // Records the true location: inline at offset `in_page`. If no prediction was right (kInPage),
  // the size of a node before its data is learnt from the distance.
  void TakeInPage(uint64_t in_page, uint64_t length_bytes, LocationSymbol symbol) {
    if (at_run_start_) {
      run_start_in_page_ = in_page;
    } else {
      step_ = in_page - previous_in_page_;
      if (symbol == LocationSymbol::kInPage) overhead_ = previous_in_page_ - in_page - length_bytes;
    }
    previous_in_page_ = in_page;
    at_run_start_ = false;
  }

 private:
  PageFormat page_format_;
  uint64_t home_page_ = 0;
  bool at_run_start_ = true;
  uint64_t next_page_ = 0;
  uint64_t previous_in_page_ = 0;
  uint64_t run_start_in_page_ = 0;
  uint64_t step_ = 0;
  uint64_t overhead_ = 0;  // bytes of a node before its data, learnt from the last kInPage
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_PROVENANCE_LOCATION_PREDICTOR_H_
