// lmdbio/provenance/exact_codec.h - any layout, compressed without loss.
//
// Runs are gathered into chunks of about 262,144 records, each packed by itself: memory stays
// bounded and a damaged chunk stops there. Within a chunk a place is written only where it does not
// follow from the record before it; docs/provenance.md has the rules and the bytes.
#ifndef LMDBIO_PROVENANCE_EXACT_CODEC_H_
#define LMDBIO_PROVENANCE_EXACT_CODEC_H_

#include <cstdint>
#include <vector>

#include "lmdbio/format/page_format.h"
#include "lmdbio/layout/record_run.h"
#include "lmdbio/provenance/wire.h"

namespace lmdbio::provenance {

class ExactEncoder final : public layout::RecordRunSink {
 public:
  explicit ExactEncoder(format::PageFormat page_format) : page_format_(page_format) {}

  // Errors: kInvalidArgument  a value that stands neither on its run's page nor at the head of an
  //                           overflow run
  Status Add(const layout::RecordRun& run) override;

  // The chunks of all that was added.
  std::vector<std::byte> Finish();

 private:
  void EncodeChunk();

  format::PageFormat page_format_;
  std::vector<uint64_t> run_lengths_, kinds_, leaves_, first_nodes_, homes_;  // [runs of the chunk]
  std::vector<uint64_t> offsets_, lengths_;  // [records of the chunk]
  WireWriter out_;
};

// Hands the layout in `chunks` to `sink`.
//
// record_count  the number of records there must be
// last_page     the last page that a place may name
// Errors: kCorruption; whatever `sink` returns
// Cost:   about 20 MiB of memory, 20 ns a record
Status DecodeExact(Bytes chunks, format::PageFormat page_format, uint64_t record_count,
                   PageNo last_page, layout::RecordRunSink& sink);

}  // namespace lmdbio::provenance
#endif  // LMDBIO_PROVENANCE_EXACT_CODEC_H_
