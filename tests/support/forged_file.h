// tests/support/forged_file.h - files of kinds that the test host cannot write. Only their two meta
// pages are correct, which is enough to recognise the file and refuse it by name.
//
// Source: docs/format.md, the meta page tables.
#ifndef TESTS_SUPPORT_FORGED_FILE_H_
#define TESTS_SUPPORT_FORGED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lmdbio::test {

// A fresh, empty data version 1 file of a 32-bit build.
std::vector<std::byte> Forge32BitFile(uint32_t page_size_bytes);

// `file` (64-bit, version 1 or 3) with every integer of its meta pages in the other byte order.
std::vector<std::byte> ForgeOtherEndianFile(std::vector<std::byte> file);

// `file` with `version` in both meta pages. Data version 2 has the same meta page layout as 3.
std::vector<std::byte> ForgeVersion(std::vector<std::byte> file, uint32_t version);

}  // namespace lmdbio::test
#endif  // TESTS_SUPPORT_FORGED_FILE_H_
