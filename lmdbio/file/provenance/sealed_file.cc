#include "lmdbio/file/provenance/sealed_file.h"

#include <algorithm>

#include <fmt/format.h>
#include <xxhash.h>

#include "lmdbio/base/check.h"
#include "lmdbio/file/provenance/byte_codec.h"

namespace lmdbio::file {
namespace {

constexpr size_t kMagicBytes = 8;
constexpr size_t kSizeAt = 16;
constexpr size_t kChecksumAt = 24;
constexpr size_t kHeaderBytes = 32;

uint64_t ChecksumOf(Bytes file) {
  const uint64_t head = XXH64(file.data(), kChecksumAt, 0);
  return XXH64(file.data() + kHeaderBytes, file.size() - kHeaderBytes, head);
}

void PutAt(MutableBytes file, size_t offset, uint64_t value) {
  ByteWriter out;
  out.Put(value);
  std::ranges::copy(out.bytes(), file.subspan(offset).begin());
}

}  // namespace

std::vector<std::byte> Seal(const SealedFormat& format, uint32_t kind, Bytes body) {
  LMDBIO_CHECK(format.magic.size() == kMagicBytes);
  ByteWriter out;
  out.PutString(format.magic);
  out.Put(format.version);
  out.Put(kind);
  out.Put(uint64_t{0});  // the size
  out.Put(uint64_t{0});  // the checksum
  out.PutBytes(body);
  std::vector<std::byte> file = out.Take();
  Reseal(file);
  return file;
}

Result<SealedFile> Unseal(const SealedFormat& format, Bytes file) {
  const auto corrupt = [&](std::string_view what) {
    return Fail(ErrorCode::kCorruption, fmt::format("{}: {}", format.name, what));
  };
  // The version comes first, because another version may have another header. Size and checksum
  // come before all other fields. So a cut file or a flipped byte is reported as damage or as an
  // unknown version, and never as a strange number of records.
  ByteReader in(file);
  if (in.GetString(kMagicBytes) != format.magic) return corrupt("this is no file of this kind");
  const auto version = in.Get<uint32_t>();
  if (in.ok() && version != format.version) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}: format version {} is not supported; expected {}", format.name,
                            version, format.version));
  }
  SealedFile content;
  content.kind = in.Get<uint32_t>();
  const auto size_bytes = in.Get<uint64_t>();
  const auto checksum = in.Get<uint64_t>();
  if (!in.ok() || size_bytes != file.size()) {
    return corrupt(fmt::format("{} bytes long, its header says {}", file.size(), size_bytes));
  }
  if (checksum != ChecksumOf(file)) return corrupt("the checksum does not match");
  content.body = in.rest();
  return content;
}

void Reseal(MutableBytes file) {
  if (file.size() < kHeaderBytes) return;
  PutAt(file, kSizeAt, file.size());
  PutAt(file, kChecksumAt, ChecksumOf(file));
}

}  // namespace lmdbio::file
