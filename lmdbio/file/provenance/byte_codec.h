// lmdbio/file/provenance/byte_codec.h - a byte codec: little-endian numbers, with bounds checks.
#ifndef LMDBIO_FILE_PROVENANCE_BYTE_CODEC_H_
#define LMDBIO_FILE_PROVENANCE_BYTE_CODEC_H_

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"

namespace lmdbio::file {

class ByteWriter {
 public:
  template <std::unsigned_integral T>
  void Put(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) {
      bytes_.push_back(static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i)));
    }
  }
  void PutBytes(Bytes bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  void PutString(std::string_view text) { PutBytes(std::as_bytes(std::span(text))); }

  // Of a temporary writer: see Take.
  const std::vector<std::byte>& bytes() const& { return bytes_; }
  const std::vector<std::byte>& bytes() && = delete;
  std::vector<std::byte> Take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// A read past the end returns zeros or no bytes, and ok() is false from then on. So callers check
// ok() once after a group of fields.
class ByteReader {
 public:
  // bytes  borrowed; must outlive the reader
  explicit ByteReader(Bytes bytes) : rest_(bytes) {}
  explicit ByteReader(std::vector<std::byte>&& bytes) = delete;

  template <std::unsigned_integral T>
  T Get() {
    const Bytes bytes = GetBytes(sizeof(T));
    uint64_t value = 0;
    for (size_t i = 0; i < bytes.size(); ++i)
      value |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
    return static_cast<T>(value);
  }
  Bytes GetBytes(uint64_t count) {
    if (count > rest_.size()) {
      ok_ = false;
      rest_ = {};
      return {};
    }
    const Bytes bytes = rest_.first(count);
    rest_ = rest_.subspan(count);
    return bytes;
  }
  std::string GetString(uint64_t count) {
    const Bytes bytes = GetBytes(count);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  bool ok() const { return ok_; }
  bool at_end() const { return rest_.empty(); }
  Bytes rest() const { return rest_; }

 private:
  Bytes rest_;
  bool ok_ = true;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_PROVENANCE_BYTE_CODEC_H_
