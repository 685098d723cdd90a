// lmdbio/file/provenance/sealed_file.h - the header of the files that lmdbio writes beside a data
// file.
//
//   0  magic, 8 bytes     8  format version u32     12  kind u32
//  16  file size u64     24  checksum u64: XXH64 of all other bytes     32  body
//
// The checksum is the hash of the bytes behind it, with the hash of those before it as the seed.
//
// Source: docs/provenance.md "File"; docs/keys.md "Key index".
#ifndef LMDBIO_FILE_PROVENANCE_SEALED_FILE_H_
#define LMDBIO_FILE_PROVENANCE_SEALED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"

namespace lmdbio::file {

struct SealedFormat {
  std::string_view name;   // for messages: "provenance"
  std::string_view magic;  // 8 bytes
  uint32_t version = 1;
};

struct SealedFile {
  uint32_t kind = 0;
  Bytes body;  // borrowed from the file
};

// The bytes of a file. `kind` tells the kinds of one format apart.
std::vector<std::byte> Seal(const SealedFormat& format, uint32_t kind, Bytes body);

// The content of a file. Only the body may still be wrong: it was written so, or forged.
// file  borrowed by the result
// Errors: kCorruption    another file, cut off, or with changed bytes
//         kUnsupported   another version
Result<SealedFile> Unseal(const SealedFormat& format, Bytes file);

// Makes the size and the checksum fit the other bytes, for tests of what is behind them. Does
// nothing with less than a header.
void Reseal(MutableBytes file);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_PROVENANCE_SEALED_FILE_H_
