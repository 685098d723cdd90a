#include "tools/make/gunzip.h"

#include <array>
#include <memory>

#include <zlib.h>

namespace lmdbio::tools {

Result<std::string> Gunzip(std::string_view bytes) {
  // gzip reaches a ratio of 1,000, so a small file could fill the memory. The limit is checked
  // after each piece.
  constexpr size_t kUnpackedBytesMax = size_t{1} << 30;
  // zlib adds 16 to the window size for "gzip header required".
  constexpr int kGzipOnly = 16 + MAX_WBITS;
  if (!bytes.starts_with("\x1f\x8b")) return std::string(bytes);
  z_stream stream = {};
  if (inflateInit2(&stream, kGzipOnly) != Z_OK) {
    return Fail(ErrorCode::kResourceExhausted, "no memory to decompress gzip data");
  }
  const std::unique_ptr<z_stream, int (*)(z_stream*)> guard(&stream, inflateEnd);
  // zlib only reads its input, although next_in is not const.
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::string unpacked;
  std::array<char, 65536> chunk;
  int code = Z_OK;
  // Every turn either unpacks something or ends the loop: on truncated data inflate makes no
  // progress and returns Z_BUF_ERROR. The loop ends after the first member of a gzip file.
  while (code == Z_OK && unpacked.size() <= kUnpackedBytesMax) {
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = static_cast<uInt>(chunk.size());
    code = inflate(&stream, Z_NO_FLUSH);
    unpacked.append(chunk.data(), chunk.size() - stream.avail_out);
  }
  if (code == Z_OK) return Fail(ErrorCode::kResourceExhausted, "gzip data larger than 1 GB");
  if (code != Z_STREAM_END) return Fail(ErrorCode::kCorruption, "damaged gzip data");
  return unpacked;
}

}  // namespace lmdbio::tools
