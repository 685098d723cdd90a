// tests/support/v3_fixture.h - the files of data version 3 kept in tests/data/v3.
//
// This machine's liblmdb cannot write or read them, so they are kept together with what LMDB 1.0's
// own tools say of them. tests/data/v3/README.md tells what each holds.
#ifndef TESTS_SUPPORT_V3_FIXTURE_H_
#define TESTS_SUPPORT_V3_FIXTURE_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lmdbio::test {

// The names of all fixtures that a reader must read, sorted. Not among them: "checksum" and
// "encrypted", which it must refuse.
std::vector<std::string> V3FixtureNames();

// The data file. Throws std::runtime_error if there is no such fixture.
std::vector<std::byte> V3FixtureBytes(std::string_view name);

// What a tool of LMDB 1.0 printed: kind "dump" (mdb_dump), "dump-a" (mdb_dump -a; only where there
// are named databases, else "") or "stat" (mdb_stat -e -f -a). Map addresses are left out.
std::string V3FixtureText(std::string_view name, std::string_view kind);

}  // namespace lmdbio::test
#endif  // TESTS_SUPPORT_V3_FIXTURE_H_
