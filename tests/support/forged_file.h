// tests/support/forged_file.h - files of kinds that cannot be written here, as far as needed to be
// recognised (and refused by name): their two meta pages are right, nothing else is.
//
// Source: docs/format.md, the meta page tables.
#ifndef TESTS_SUPPORT_FORGED_FILE_H_
#define TESTS_SUPPORT_FORGED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lmdbio::test {

// A fresh, empty data version 1 file as a 32-bit build writes it.
std::vector<std::byte> Forge32BitFile(uint32_t page_size_bytes);

// `file` (64-bit, version 1 or 3) with every integer of its meta pages in the other byte order.
std::vector<std::byte> ForgeOtherEndianFile(std::vector<std::byte> file);

// `file` with `version` written into both meta pages: data version 2 lays them out as 3 does.
std::vector<std::byte> ForgeVersion(std::vector<std::byte> file, uint32_t version);

}  // namespace lmdbio::test
#endif  // TESTS_SUPPORT_FORGED_FILE_H_
