#include "tests/support/forged_file.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <stdexcept>

namespace lmdbio::test {
namespace {

constexpr uint32_t kMagic = 0xBEEFC0DE;
constexpr uint16_t kMetaFlag = 0x08;

template <typename T>
void Store(std::vector<std::byte>& file, uint64_t offset, T value) {
  std::memcpy(file.data() + offset, &value, sizeof(value));
}

template <typename T>
T Load(const std::vector<std::byte>& file, uint64_t offset) {
  T value{};
  if (offset + sizeof(value) > file.size()) throw std::runtime_error("file too short to forge");
  std::memcpy(&value, file.data() + offset, sizeof(value));
  return value;
}

// Where the meta fields of a 64-bit file start: behind the page header of its version.
uint64_t MetaOffset(const std::vector<std::byte>& file) {
  for (const uint64_t offset : {uint64_t{16}, uint64_t{24}}) {
    if (Load<uint32_t>(file, offset) == kMagic) return offset;
  }
  throw std::runtime_error("not a 64-bit data file of this machine's byte order");
}

uint64_t PageSizeBytes(const std::vector<std::byte>& file) {
  return Load<uint32_t>(file, MetaOffset(file) + 24);
}

void Reverse(std::vector<std::byte>& file, uint64_t offset, uint64_t size_bytes) {
  const auto first = file.begin() + static_cast<std::ptrdiff_t>(offset);
  std::reverse(first, first + static_cast<std::ptrdiff_t>(size_bytes));
}

// Reverses integers that follow one another from `offset`.
void ReverseEach(std::vector<std::byte>& file, uint64_t offset,
                 std::initializer_list<uint64_t> sizes_bytes) {
  for (const uint64_t size_bytes : sizes_bytes) {
    Reverse(file, offset, size_bytes);
    offset += size_bytes;
  }
}

void ReverseMetaPage(std::vector<std::byte>& file, uint64_t page, uint64_t meta_offset) {
  ReverseEach(file, page, {8});  // the page number; version 3's transaction number follows
  if (meta_offset == 24) ReverseEach(file, page + 8, {8});
  ReverseEach(file, page + meta_offset - 8, {2, 2, 2, 2});  // pad, flags, lower, upper
  ReverseEach(file, page + meta_offset, {4, 4, 8, 8});      // magic, version, address, map
  for (const uint64_t database : {24U, 72U}) {              // free pages, main
    ReverseEach(file, page + meta_offset + database, {4, 2, 2, 8, 8, 8, 8, 8});
  }
  ReverseEach(file, page + meta_offset + 120, {8, 8});  // last page, transaction
}

}  // namespace

std::vector<std::byte> Forge32BitFile(uint32_t page_size_bytes) {
  constexpr uint64_t kMeta = 12;  // behind the 32-bit page header
  constexpr uint32_t kNoRoot = ~0U;
  std::vector<std::byte> file(2 * size_t{page_size_bytes});
  for (uint32_t page_no = 0; page_no < 2; ++page_no) {
    const uint64_t page = uint64_t{page_no} * page_size_bytes;
    Store(file, page, page_no);
    Store(file, page + 6, kMetaFlag);
    Store(file, page + kMeta, kMagic);
    Store(file, page + kMeta + 4, uint32_t{1});         // version
    Store(file, page + kMeta + 12, uint32_t{1} << 20);  // map size
    Store(file, page + kMeta + 16, page_size_bytes);    // free pages' record: its pad
    Store(file, page + kMeta + 20, uint16_t{0x08});     // its flags: integer keys
    Store(file, page + kMeta + 16 + 24, kNoRoot);
    Store(file, page + kMeta + 44 + 24, kNoRoot);  // the main record's root
    Store(file, page + kMeta + 72, uint32_t{1});   // last page
  }
  return file;
}

std::vector<std::byte> ForgeOtherEndianFile(std::vector<std::byte> file) {
  const uint64_t meta_offset = MetaOffset(file);
  const uint64_t page_size_bytes = PageSizeBytes(file);
  if (file.size() < 2 * page_size_bytes) throw std::runtime_error("file too short to forge");
  ReverseMetaPage(file, 0, meta_offset);
  ReverseMetaPage(file, page_size_bytes, meta_offset);
  return file;
}

std::vector<std::byte> ForgeVersion(std::vector<std::byte> file, uint32_t version) {
  const uint64_t meta_offset = MetaOffset(file);
  const uint64_t page_size_bytes = PageSizeBytes(file);
  if (file.size() < 2 * page_size_bytes) throw std::runtime_error("file too short to forge");
  Store(file, meta_offset + 4, version);
  Store(file, page_size_bytes + meta_offset + 4, version);
  return file;
}

}  // namespace lmdbio::test
