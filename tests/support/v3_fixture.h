// tests/support/v3_fixture.h - the files of data version 3 kept in tests/data/v3.
//
// The installed liblmdb cannot write or read them. So the files are stored together with the output
// of the tools of LMDB 1.0. tests/data/v3/README.md describes each file.
#ifndef TESTS_SUPPORT_V3_FIXTURE_H_
#define TESTS_SUPPORT_V3_FIXTURE_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lmdbio::test {

// The names of all fixtures that the library must read, sorted. "checksum" and "encrypted", which
// it must refuse, are not among them.
std::vector<std::string> V3FixtureNames();

// The data file. Throws std::runtime_error if there is no such fixture.
std::vector<std::byte> V3FixtureBytes(std::string_view name);

// The output of a tool of LMDB 1.0: kind "dump" (mdb_dump), "dump-a" (mdb_dump -a; "" if there is
// no named database) or "stat" (mdb_stat -e -f -a). Map addresses are removed.
std::string V3FixtureText(std::string_view name, std::string_view kind);

}  // namespace lmdbio::test
#endif  // TESTS_SUPPORT_V3_FIXTURE_H_
