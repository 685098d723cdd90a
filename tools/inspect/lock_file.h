// tools/inspect/lock_file.h - the two figures that LMDB's programs report and a data file alone
// does not hold.
#ifndef LMDBIO_TOOLS_INSPECT_LOCK_FILE_H_
#define LMDBIO_TOOLS_INSPECT_LOCK_FILE_H_

#include <cstdint>
#include <string>

#include "lmdbio/file/layout/snapshot.h"

namespace lmdbio::tools {

// How many readers the environment has slots for, from the size of its lock file alone: nothing in
// that file is read, let alone locked. 126, LMDB's default, if there is none.
uint64_t ReaderSlots(const std::string& data_path);

// The map size that LMDB would choose: what a writer set, or what the file needs if that is more.
uint64_t MapSizeBytes(const file::Snapshot& snapshot);

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_INSPECT_LOCK_FILE_H_
