#include "lmdbio/file/keys/key_index.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>

#include <fmt/format.h>
#include <xxhash.h>

#include "lmdbio/base/digest.h"
#include "lmdbio/file/provenance/byte_codec.h"

namespace lmdbio::file {
namespace {

constexpr std::array<char, 8> kMagic = {'L', 'M', 'D', 'B', 'K', 'E', 'Y', 'S'};
constexpr uint32_t kFormatVersion = 1;
constexpr size_t kChecksumAt = 24;
constexpr size_t kHeaderBytes = 32;
// With more records less than 24 bits of the hash would be left.
constexpr uint64_t kRecordsMax = uint64_t{1} << 40;

tl::unexpected<Error> CorruptIndex(std::string_view what) {
  return Fail(ErrorCode::kCorruption, fmt::format("key index: {}", what));
}

uint64_t ChecksumOf(Bytes file) {
  const uint64_t head = XXH64(file.data(), kChecksumAt, 0);
  return XXH64(file.data() + kHeaderBytes, file.size() - kHeaderBytes, head);
}

uint64_t HashOf(Bytes key) {
  return TextDigest({reinterpret_cast<const char*>(key.data()), key.size()});
}

// Checks everything of a file up to the fingerprint.
Status CheckFrame(Bytes file) {
  ByteReader in(file);
  const bool is_index =
      in.GetString(kMagic.size()) == std::string_view(kMagic.data(), kMagic.size());
  const auto version = in.Get<uint32_t>();
  in.Get<uint32_t>();
  const auto size_bytes = in.Get<uint64_t>();
  const auto checksum = in.Get<uint64_t>();
  if (!in.ok() || !is_index) return CorruptIndex("this is no key index");
  if (version != kFormatVersion) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("key index: format version {} is not known", version));
  }
  if (size_bytes != file.size()) {
    return CorruptIndex(fmt::format("has {} bytes, expected {}", file.size(), size_bytes));
  }
  if (checksum != ChecksumOf(file)) return CorruptIndex("the checksum does not fit");
  return {};
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
  ByteWriter out;
  out.PutString({kMagic.data(), kMagic.size()});
  out.Put(kFormatVersion);
  out.Put(uint32_t{0});
  out.Put(uint64_t{kHeaderBytes + body.bytes().size()});
  out.Put(uint64_t{0});  // the checksum, which does not cover this field
  out.PutBytes(body.bytes());
  std::vector<std::byte> file = out.Take();
  ByteWriter checksum;
  checksum.Put(ChecksumOf(file));
  std::ranges::copy(checksum.bytes(), file.begin() + kChecksumAt);
  return file;
}

Result<std::pair<KeyIndex, Fingerprint>> KeyIndex::Decode(Bytes file) {
  LMDBIO_TRY_VOID(CheckFrame(file));
  ByteReader in(file.subspan(kHeaderBytes));
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
