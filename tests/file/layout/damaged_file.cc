#include "tests/file/layout/damaged_file.h"

#include <algorithm>
#include <cstring>

#include "lmdbio/file/format/load.h"
#include "tests/file/layout/open_database.h"

namespace lmdbio::test {
namespace {

constexpr uint64_t kTransactionAt = 128;  // in a meta page, from the end of its header

Bytes BytesOf(const uint64_t& number, uint64_t size_bytes) {
  return std::as_bytes(std::span(&number, 1)).first(size_bytes);
}

// The role of the flipped byte. Requires: a kind that flips a byte of one role
ByteRole RoleOf(DamageKind kind) {
  switch (kind) {
    case DamageKind::kMetaByte:
      return ByteRole::kMeta;
    case DamageKind::kTreeHeaderByte:
      return ByteRole::kTreeHeader;
    case DamageKind::kRunHeaderByte:
      return ByteRole::kRunHeader;
    case DamageKind::kSubPageHeaderByte:
      return ByteRole::kSubPageHeader;
    case DamageKind::kSlotByte:
      return ByteRole::kSlot;
    case DamageKind::kBranchNodeByte:
      return ByteRole::kBranchNode;
    case DamageKind::kBranchKeyByte:
      return ByteRole::kLookup;
    case DamageKind::kNodeSizesByte:
      return ByteRole::kNodeSizes;
    case DamageKind::kNodeFlagsByte:
      return ByteRole::kNodeFlags;
    case DamageKind::kReferenceByte:
      return ByteRole::kReference;
    case DamageKind::kTreeRecordByte:
      return ByteRole::kTreeRecord;
    default:
      return ByteRole::kPayload;
  }
}

file::Environment Open(const ByteSource& source) { return Value(file::Environment::Open(source)); }

}  // namespace

std::string_view DamageKindName(DamageKind kind) {
  constexpr std::string_view kNames[kDamageKindCount] = {
      "truncated anywhere",
      "grown by random bytes",
      "byte: anywhere",
      "byte: meta page",
      "byte: tree page header",
      "byte: overflow run header",
      "byte: sub-page header",
      "byte: slot",
      "byte: branch node",
      "byte: branch key",
      "byte: leaf node sizes",
      "byte: leaf node flags",
      "byte: overflow reference",
      "byte: record of a tree",
      "byte: key or value",
      "child redirected",
      "overflow reference redirected",
      "root redirected",
      "two pages exchanged",
      "page zeroed",
      "page of random bytes",
  };
  return kNames[static_cast<size_t>(kind)];
}

DamagedFile::DamagedFile(const SmallFile& file)
    : sound_(file.bytes),
      source_(file.bytes, file.name),
      page_format_(Open(source_).snapshot().page_format),
      meta_(Open(source_).snapshot().meta),
      map_(Open(source_)) {}

uint64_t DamagedFile::AnyPage(uint64_t first, Random& random) const {
  return random.Between(first, sound_.size() / page_bytes() - 1);
}

void DamagedFile::Overwrite(uint64_t offset, Bytes with) {
  std::ranges::copy(with, source_.content().begin() + static_cast<std::ptrdiff_t>(offset));
  for (uint64_t at = offset; at < offset + with.size(); ++at) {
    if (source_.content()[at] != sound_[at]) changed_.push_back(at);
  }
}

// Half of the time the change is a single bit, because checks miss small differences more easily.
bool DamagedFile::FlipByte(uint64_t offset, Random& random) {
  const uint64_t mask = random.Below(2) == 0 ? random.Between(1, 255) : 1U << random.Below(8);
  const std::byte flipped = sound_[offset] ^ static_cast<std::byte>(mask);
  Overwrite(offset, {&flipped, 1});
  return true;
}

bool DamagedFile::FlipByteOf(ByteRole role, Random& random) {
  const std::vector<uint64_t>& offsets = map_.offsets(role);
  return !offsets.empty() && FlipByte(offsets[random.Below(offsets.size())], random);
}

bool DamagedFile::Redirect(PageField::Names names, Random& random) {
  std::vector<PageField> fields;
  std::ranges::copy_if(map_.page_fields(), std::back_inserter(fields),
                       [&](const PageField& field) { return field.names == names; });
  if (fields.empty()) return false;
  const PageField field = fields[random.Below(fields.size())];
  uint64_t target = AnyPage(2, random);
  if (names == PageField::Names::kRun && random.Below(2) == 0) {
    target = map_.runs()[random.Below(map_.runs().size())].value;
  }
  Overwrite(field.offset, BytesOf(target, field.size_bytes()));
  return true;
}

void DamagedFile::ExchangePages(Random& random) {
  const uint64_t a = AnyPage(0, random) * page_bytes();
  const uint64_t b = AnyPage(0, random) * page_bytes();
  Overwrite(a, Bytes(sound_).subspan(b, page_bytes()));
  Overwrite(b, Bytes(sound_).subspan(a, page_bytes()));
}

bool DamagedFile::Damage(DamageKind kind, Random& random) {
  std::vector<std::byte>& content = source_.content();
  switch (kind) {
    case DamageKind::kTruncated:
      content.resize(random.Below(sound_.size()));
      for (uint64_t at = content.size(); at < sound_.size(); ++at) changed_.push_back(at);
      return true;
    case DamageKind::kGrown:
      for (uint64_t n = random.Between(1, 3 * page_bytes()); n > 0; --n) {
        content.push_back(static_cast<std::byte>(random.Next()));
      }
      return true;
    case DamageKind::kAnyByte:
      return FlipByte(random.Below(sound_.size()), random);
    case DamageKind::kChildRedirected:
      return Redirect(PageField::Names::kChild, random);
    case DamageKind::kReferenceRedirected:
      return Redirect(PageField::Names::kRun, random);
    case DamageKind::kRootRedirected:
      return Redirect(PageField::Names::kRoot, random);
    case DamageKind::kPagesExchanged:
      ExchangePages(random);
      return true;
    case DamageKind::kPageZeroed:
      Overwrite(AnyPage(0, random) * page_bytes(), std::vector<std::byte>(page_bytes()));
      return true;
    case DamageKind::kPageRandom:
      Overwrite(AnyPage(0, random) * page_bytes(), AsBytes(random.BytesOf(page_bytes())));
      return true;
    default:
      return FlipByteOf(RoleOf(kind), random);
  }
}

void DamagedFile::Restore() {
  std::vector<std::byte>& content = source_.content();
  content.resize(sound_.size());
  for (const uint64_t at : changed_) content[at] = sound_[at];
  changed_.clear();
}

std::vector<std::byte> DamagedFile::WithOlderSnapshot() const {
  std::vector<std::byte> file = sound_;
  const uint64_t other_page = 1 - meta_.page_no.value;
  const uint64_t newest = meta_.transaction_id + 1;
  std::ranges::copy(
      BytesOf(newest, sizeof(newest)),
      file.begin() + static_cast<std::ptrdiff_t>(other_page * page_bytes() +
                                                 page_format_.header_bytes() + kTransactionAt));
  return file;
}

}  // namespace lmdbio::test
