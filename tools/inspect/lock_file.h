// tools/inspect/lock_file.h - two figures of LMDB's programs that the data file does not contain.
#ifndef LMDBIO_TOOLS_INSPECT_LOCK_FILE_H_
#define LMDBIO_TOOLS_INSPECT_LOCK_FILE_H_

#include <cstdint>
#include <string>

#include "lmdbio/file/layout/snapshot.h"

namespace lmdbio::tools {

// The number of reader slots of the environment, computed from the size of its lock file. The file
// is neither read nor locked. Without a lock file it is 126, LMDB's default.
uint64_t ReaderSlots(const std::string& data_path);

// The map size that LMDB would choose: the size that a writer set, or the used size if that is
// larger.
uint64_t MapSizeBytes(const file::Snapshot& snapshot);

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_INSPECT_LOCK_FILE_H_
