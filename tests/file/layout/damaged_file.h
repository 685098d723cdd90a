// tests/file/layout/damaged_file.h - a sound data file, damaged in one place at a time.
#ifndef LMDBIO_TESTS_FILE_LAYOUT_DAMAGED_FILE_H_
#define LMDBIO_TESTS_FILE_LAYOUT_DAMAGED_FILE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/file/layout/byte_map.h"
#include "tests/file/layout/small_files.h"
#include "tests/fixtures/memory_source.h"
#include "tests/support/random.h"

namespace lmdbio::test {

enum class DamageKind : uint8_t {
  // The file's length.
  kTruncated,
  kGrown,
  // One byte, anywhere or of one role.
  kAnyByte,
  kMetaByte,
  kTreeHeaderByte,
  kRunHeaderByte,
  kSubPageHeaderByte,
  kSlotByte,
  kBranchNodeByte,
  kBranchKeyByte,
  kNodeSizesByte,
  kNodeFlagsByte,
  kReferenceByte,
  kTreeRecordByte,
  kPayloadByte,
  // One page number, replaced by that of another page of the file.
  kChildRedirected,
  kReferenceRedirected,
  kRootRedirected,
  // Whole pages.
  kPagesExchanged,
  kPageZeroed,
  kPageRandom,
};
inline constexpr size_t kDamageKindCount = 21;

std::string_view DamageKindName(DamageKind kind);

class DamagedFile {
 public:
  // Throws std::runtime_error if `file` is not sound.
  explicit DamagedFile(const SmallFile& file);

  // Damages the file; false if it has nothing that can be damaged in this way. If a page is
  // replaced by an equal one, nothing changes and changed() is empty.
  bool Damage(DamageKind kind, Random& random);
  void Restore();

  const std::string& name() const { return source_.name(); }
  const ByteMap& map() const { return map_; }
  const std::vector<std::byte>& sound() const { return sound_; }
  MemorySource& source() { return source_; }
  Bytes damaged() { return source_.content(); }
  bool is_truncated() { return damaged().size() < sound_.size(); }
  // Whether the file ends inside a page in use, even in its unused end.
  bool ends_in_live_page() { return map_.IsLive(PageNo{damaged().size() / page_bytes()}); }
  file::PageFormat page_format() const { return page_format_; }

  // Offsets of all bytes that differ from the sound file or were cut off.
  const std::vector<uint64_t>& changed() const { return changed_; }

  // The file, with its older snapshot marked as the newer one.
  std::vector<std::byte> WithOlderSnapshot() const;

 private:
  bool FlipByte(uint64_t offset, Random& random);
  bool FlipByteOf(ByteRole role, Random& random);
  bool Redirect(PageField::Names names, Random& random);
  void ExchangePages(Random& random);
  void Overwrite(uint64_t offset, Bytes with);
  uint64_t AnyPage(uint64_t first, Random& random) const;
  uint64_t page_bytes() const { return page_format_.page_size_bytes(); }

  std::vector<std::byte> sound_;
  MemorySource source_;
  file::PageFormat page_format_;
  file::MetaPage meta_;
  ByteMap map_;
  std::vector<uint64_t> changed_;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_FILE_LAYOUT_DAMAGED_FILE_H_
