#include "lmdbio/file/keys/key_index.h"

#include <algorithm>
#include <bit>
#include <string_view>

#include <fmt/format.h>

#include "lmdbio/base/digest.h"
#include "lmdbio/file/provenance/byte_codec.h"
#include "lmdbio/file/provenance/sealed_file.h"

namespace lmdbio::file {
namespace {

constexpr SealedFormat kFormat = {.name = "key index", .magic = "LMDBKEYS", .version = 1};
constexpr uint32_t kKind = 0;  // there is one
// With more records less than 24 bits of the hash would be left.
constexpr uint64_t kRecordsMax = uint64_t{1} << 40;

tl::unexpected<Error> CorruptIndex(std::string_view what) {
  return Fail(ErrorCode::kCorruption, fmt::format("key index: {}", what));
}

uint64_t HashOf(Bytes key) {
  return TextDigest({reinterpret_cast<const char*>(key.data()), key.size()});
}

}  // namespace

KeyIndex::KeyIndex(uint64_t record_count, std::vector<uint64_t> entries)
    : record_count_(record_count),
      number_bits_(static_cast<uint32_t>(std::bit_width(std::max<uint64_t>(record_count, 2) - 1))),
      entries_(std::move(entries)) {}

uint64_t KeyIndex::EntryOf(Bytes key, uint64_t number) const {
  return (HashOf(key) >> number_bits_ << number_bits_) | number;
}

std::vector<uint64_t> KeyIndex::Candidates(Bytes key) const {
  const uint64_t first = EntryOf(key, 0);
  const uint64_t number_mask = (uint64_t{1} << number_bits_) - 1;
  std::vector<uint64_t> numbers;
  for (auto at = std::ranges::lower_bound(entries_, first);
       at != entries_.end() && (*at & ~number_mask) == first; ++at) {
    numbers.push_back(*at & number_mask);
  }
  return numbers;
}

std::vector<std::byte> KeyIndex::Encode(const Fingerprint& fingerprint) const {
  ByteWriter body;
  EncodeFingerprint(fingerprint, body);
  body.Put(record_count_);
  body.Put(uint64_t{entries_.size()});
  for (const uint64_t entry : entries_) body.Put(entry);
  return Seal(kFormat, kKind, body.bytes());
}

Result<std::pair<KeyIndex, Fingerprint>> KeyIndex::Decode(Bytes file) {
  LMDBIO_TRY(const SealedFile content, Unseal(kFormat, file));
  if (content.kind != kKind) return CorruptIndex(fmt::format("unknown kind {}", content.kind));
  ByteReader in(content.body);
  LMDBIO_TRY(Fingerprint fingerprint, DecodeFingerprint(in));
  const auto record_count = in.Get<uint64_t>();
  const auto entry_count = in.Get<uint64_t>();
  const Bytes rest = in.rest();
  // The file has all entries, so memory is in proportion to it.
  if (!in.ok() || record_count >= kRecordsMax || entry_count > record_count ||
      rest.size() != entry_count * sizeof(uint64_t)) {
    return CorruptIndex("the counts do not fit the size of the file");
  }
  std::vector<uint64_t> entries;
  entries.reserve(entry_count);
  for (uint64_t i = 0; i < entry_count; ++i) entries.push_back(in.Get<uint64_t>());
  KeyIndex index(record_count, std::move(entries));
  const uint64_t number_mask = (uint64_t{1} << index.number_bits_) - 1;
  const auto is_wrong = [&](uint64_t entry) { return (entry & number_mask) >= record_count; };
  if (!std::ranges::is_sorted(index.entries_) || std::ranges::any_of(index.entries_, is_wrong)) {
    return CorruptIndex("the entries are not in order, or name records beyond the last");
  }
  return std::pair(std::move(index), std::move(fingerprint));
}

KeyIndex KeyIndexBuilder::Finish() && {
  index_.entries_.shrink_to_fit();
  std::ranges::sort(index_.entries_);
  return std::move(index_);
}

}  // namespace lmdbio::file
