// An environment reads from its source for as long as it lives.
#include <type_traits>

#include "lmdbio/file/layout/database.h"

namespace lmdbio::file {

// Values of temporary objects are copies, not references into them.
template <typename Owner>
using SnapshotOf = decltype(std::declval<Owner>().snapshot());
static_assert(std::is_same_v<SnapshotOf<Environment>, Snapshot>);
static_assert(std::is_same_v<SnapshotOf<Environment&>, const Snapshot&>);
static_assert(std::is_same_v<SnapshotOf<PageReader>, Snapshot>);
static_assert(std::is_same_v<decltype(std::declval<Environment>().pages()), PageReader>);
static_assert(std::is_same_v<decltype(std::declval<Database>().pages()), PageReader>);
static_assert(std::is_same_v<decltype(std::declval<Database>().name()), std::string>);
static_assert(std::is_same_v<decltype(std::declval<Database>().record()), DatabaseRecord>);

const ByteSource& LastingSource();
const ByteSource&& TemporarySource();

Result<Environment> OpenIt() {
#ifdef LMDBIO_BAD
  return Environment::Open(TemporarySource());
#else
  return Environment::Open(LastingSource());
#endif
}

}  // namespace lmdbio::file
