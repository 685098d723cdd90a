// lmdbio/file/provenance/exact_codec.h - any layout, compressed without loss.
//
// Runs are collected into chunks of about 262,144 records. Each chunk is packed independently, so
// memory is bounded and damage does not spread. Within a chunk, the location of a record is written
// only if the predictor (location_predictor.h) does not give it from the records before. The rules
// and the bytes are in docs/provenance.md.
#ifndef LMDBIO_FILE_PROVENANCE_EXACT_CODEC_H_
#define LMDBIO_FILE_PROVENANCE_EXACT_CODEC_H_

#include <cstdint>
#include <vector>

#include "lmdbio/file/format/page_format.h"
#include "lmdbio/file/layout/record_run.h"
#include "lmdbio/file/provenance/byte_codec.h"

namespace lmdbio::file {

class ExactEncoder final : public RecordRunSink {
 public:
  explicit ExactEncoder(PageFormat page_format) : page_format_(page_format) {}

  // Errors: kInvalidArgument  a value that is neither on the home page of its run nor at the head
  //                           of an overflow run
  Status Add(const RecordRun& run) override;

  // The chunks of all added runs.
  std::vector<std::byte> Finish();

 private:
  void EncodeChunk();

  PageFormat page_format_;
  std::vector<uint64_t> run_lengths_, kinds_, leaves_, first_nodes_, homes_;  // [runs of the chunk]
  std::vector<uint64_t> offsets_, lengths_;  // [records of the chunk]
  ByteWriter out_;
};

// Hands the layout in `chunks` to `sink`.
//
// record_count  required number of records
// last_page     the highest valid page number
// Errors: kCorruption; those of `sink`
// Cost:   about 20 MiB of memory, 20 ns a record
Status DecodeExact(Bytes chunks, PageFormat page_format, uint64_t record_count, PageNo last_page,
                   RecordRunSink& sink);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_PROVENANCE_EXACT_CODEC_H_
