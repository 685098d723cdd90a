#include "lmdbio/file/provenance/provenance.h"

#include <algorithm>

#include <fmt/format.h>

#include "lmdbio/file/provenance/exact_codec.h"
#include "lmdbio/file/provenance/number_codec.h"
#include "lmdbio/file/provenance/sealed_file.h"

namespace lmdbio::file {
namespace {

constexpr SealedFormat kFormat = {.name = "provenance", .magic = "LMDBPROV", .version = 1};

constexpr uint8_t kSizesConstant = 0;
constexpr uint8_t kSizesListed = 1;

tl::unexpected<Error> CorruptFile(std::string_view what) {
  return Fail(ErrorCode::kCorruption, fmt::format("provenance: {}", what));
}

// Writes one constant, or a list that is cut into parts of at most kNumbersMax for the number
// codec.
void EncodeSizes(const SizeColumn& sizes, uint64_t record_count, ByteWriter& out) {
  const std::span<const uint32_t> each = sizes.each();
  const bool constant =
      sizes.is_constant() || std::ranges::all_of(each, [&](uint32_t n) { return n == each[0]; });
  if (constant) {
    out.Put(kSizesConstant);
    out.Put(record_count == 0 ? uint32_t{0} : sizes[0]);
    return;
  }
  ByteWriter packed;
  std::vector<uint64_t> piece;
  for (size_t begin = 0; begin < each.size(); begin += piece.size()) {
    const auto part = each.subspan(begin, std::min(kNumbersMax, each.size() - begin));
    piece.assign(part.begin(), part.end());
    EncodeNumbers(piece, packed);
  }
  out.Put(kSizesListed);
  out.Put(uint64_t{packed.bytes().size()});
  out.PutBytes(packed.bytes());
}

Result<SizeDescription> DecodeSizes(ByteReader& in) {
  SizeDescription sizes;
  const uint8_t shape = in.Get<uint8_t>();
  sizes.is_constant = shape == kSizesConstant;
  if (sizes.is_constant) {
    sizes.constant_bytes = in.Get<uint32_t>();
  } else {
    const Bytes packed = in.GetBytes(in.Get<uint64_t>());
    sizes.packed.assign(packed.begin(), packed.end());
  }
  if (!in.ok() || shape > kSizesListed)
    return CorruptFile("the record sizes are cut off or invalid");
  return sizes;
}

// Unpacks a list of sizes into `each`, which the returned column borrows.
Result<SizeColumn> ColumnOf(const SizeDescription& sizes, uint64_t record_count,
                            std::vector<uint32_t>& each) {
  if (sizes.is_constant) return SizeColumn::Constant(sizes.constant_bytes);
  ByteReader in(sizes.packed);
  std::vector<uint64_t> piece;
  while (each.size() < record_count) {
    // Memory grows with the lists that the file really has: each is decoded before the next is
    // expected.
    const size_t count = std::min<uint64_t>(kNumbersMax, record_count - each.size());
    LMDBIO_TRY_VOID(DecodeNumbers(in, count, piece));
    for (const uint64_t size : piece) {
      if (size > UINT32_MAX) return CorruptFile("a record has more than 4 GiB");
      each.push_back(static_cast<uint32_t>(size));
    }
  }
  if (!in.at_end()) return CorruptFile("more record sizes than records");
  return SizeColumn::Each(each);
}

// True if the database of the fingerprint can have `record_count` records.
bool MayHold(const Fingerprint& database, uint64_t record_count) {
  // With duplicates the entry count is only a hint, so the pages of the file bound the number
  // instead.
  if (database.record.counts_exactly()) return record_count == database.record.entry_count;
  return RecordsFit(record_count, database.page_format, database.last_page);
}

}  // namespace

std::vector<std::byte> EncodeOrderedLoad(const Fingerprint& fingerprint, const OrderedLoad& load,
                                         const ReplayTotals& totals) {
  ByteWriter body;
  EncodeFingerprint(fingerprint, body);
  body.Put(load.commit_interval_records);
  body.Put(totals.leaf_records_max);
  body.Put(totals.branch_children_max);
  body.Put(static_cast<uint32_t>(load.put_mode));
  body.Put(file::kMetaPageCount);
  EncodeSizes(load.key_bytes, load.record_count, body);
  EncodeSizes(load.value_bytes, load.record_count, body);
  return Seal(kFormat, static_cast<uint32_t>(ProvenanceKind::kOrderedLoad), body.bytes());
}

std::vector<std::byte> EncodeExactLayout(const Fingerprint& fingerprint, uint64_t record_count,
                                         Bytes chunks) {
  ByteWriter body;
  EncodeFingerprint(fingerprint, body);
  body.Put(record_count);
  body.PutBytes(chunks);
  return Seal(kFormat, static_cast<uint32_t>(ProvenanceKind::kExactLayout), body.bytes());
}

Result<Provenance> Provenance::Decode(Bytes file) {
  LMDBIO_TRY(const SealedFile content, Unseal(kFormat, file));
  if (content.kind != static_cast<uint32_t>(ProvenanceKind::kOrderedLoad) &&
      content.kind != static_cast<uint32_t>(ProvenanceKind::kExactLayout)) {
    return CorruptFile(fmt::format("unknown kind {}", content.kind));
  }
  ByteReader in(content.body);
  Provenance provenance;
  provenance.kind_ = static_cast<ProvenanceKind>(content.kind);
  LMDBIO_TRY(provenance.fingerprint_, DecodeFingerprint(in));
  provenance.record_count_ = provenance.fingerprint_.record.entry_count;
  if (provenance.kind_ == ProvenanceKind::kExactLayout) {
    provenance.record_count_ = in.Get<uint64_t>();
    if (!in.ok() || !MayHold(provenance.fingerprint_, provenance.record_count_)) {
      return CorruptFile(fmt::format("{} records do not match a database of {} entries",
                                     provenance.record_count_,
                                     provenance.fingerprint_.record.entry_count));
    }
    provenance.chunks_.assign(in.rest().begin(), in.rest().end());
    return provenance;
  }
  LoadDescription& load = provenance.load_;
  load.commit_interval_records = in.Get<uint64_t>();
  load.leaf_records_max = in.Get<uint32_t>();
  load.branch_children_max = in.Get<uint32_t>();
  const uint32_t put_mode = in.Get<uint32_t>();
  load.meta_page_count = in.Get<uint32_t>();
  if (put_mode > static_cast<uint32_t>(PutMode::kAppend))
    return CorruptFile("unknown insertion order");
  load.put_mode = static_cast<PutMode>(put_mode);
  LMDBIO_TRY(provenance.key_sizes_, DecodeSizes(in));
  LMDBIO_TRY(provenance.value_sizes_, DecodeSizes(in));
  if (!in.at_end()) return CorruptFile("bytes behind its end");
  return provenance;
}

Status Provenance::Expand(RecordRunSink& sink) const {
  if (kind_ == ProvenanceKind::kOrderedLoad) return ExpandLoad(sink);
  return DecodeExact(chunks_, fingerprint_.page_format, record_count_, fingerprint_.last_page,
                     sink);
}

Status Provenance::ExpandLoad(RecordRunSink& sink) const {
  std::vector<uint32_t> each_key;
  std::vector<uint32_t> each_value;
  LMDBIO_TRY(const SizeColumn keys, ColumnOf(key_sizes_, record_count_, each_key));
  LMDBIO_TRY(const SizeColumn values, ColumnOf(value_sizes_, record_count_, each_value));
  OrderedLoad load;
  load.record_count = record_count_;
  load.commit_interval_records = load_.commit_interval_records;
  load.key_bytes = keys;
  load.value_bytes = values;
  load.put_mode = load_.put_mode;
  LMDBIO_TRY(const ReplayTotals totals, Replay(fingerprint_.page_format, load, sink));
  const DatabaseRecord& record = fingerprint_.record;
  // The sink has received all runs by now. Its owner drops them if this check fails.
  if (load_.meta_page_count != file::kMetaPageCount ||
      totals.leaf_records_max != load_.leaf_records_max ||
      totals.branch_children_max != load_.branch_children_max || totals.root != record.root ||
      totals.last_page != fingerprint_.last_page || totals.depth != record.depth ||
      totals.branch_pages != record.branch_pages || totals.leaf_pages != record.leaf_pages ||
      totals.overflow_pages != record.overflow_pages) {
    return CorruptFile("the replay of the load does not match the fingerprint");
  }
  return {};
}

}  // namespace lmdbio::file
