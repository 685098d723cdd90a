// tests/support/fixture_groups.h - the parts of the fixture catalogue; see lmdb_fixture.h.
#ifndef TESTS_SUPPORT_FIXTURE_GROUPS_H_
#define TESTS_SUPPORT_FIXTURE_GROUPS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/lmdb_fixture.h"

namespace lmdbio::test {

using FixtureGroup = std::vector<FixtureSpec>;

FixtureGroup PlainFixtures(FixtureScale scale);      // one value a key, in the main database
FixtureGroup NamedFixtures(FixtureScale scale);      // several databases in one file
FixtureGroup DuplicateFixtures(FixtureScale scale);  // DUPSORT and everything that builds on it
FixtureGroup PageSizeFixtures();                     // page sizes of other machines
FixtureGroup FileFixtures();                         // kinds of files

// Steps that several groups use; each leaves the transaction open.

// "00000042": decimal keys in the order of the numbers.
std::string DecimalKey(uint64_t number, int digit_count = 8);

// Values of all sizes at which the storage of a value changes, for odd and even key sizes.
void PutBoundarySizes(TinyDb& db, Random& random, uint32_t page_size_bytes);

// Small values under decimal keys, in random order.
void PutShuffled(TinyDb& db, Random& random, uint64_t record_count);

// `key_count` keys of odd and even sizes with 1 to `duplicate_count_max` values each.
void PutDuplicates(TinyDb& db, Random& random, uint64_t key_count, uint64_t duplicate_count_max,
                   uint64_t value_bytes_max);

// The same with values of one size, at most 255 different ones if that is a single byte.
void PutFixedDuplicates(TinyDb& db, Random& random, uint64_t key_count,
                        uint64_t duplicate_count_max, uint64_t item_bytes);

}  // namespace lmdbio::test
#endif  // TESTS_SUPPORT_FIXTURE_GROUPS_H_
