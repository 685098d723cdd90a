// lmdbio/file/io/data_path.h - from the path that a user gives to the files behind it.
#ifndef LMDBIO_FILE_IO_DATA_PATH_H_
#define LMDBIO_FILE_IO_DATA_PATH_H_

#include <string>
#include <string_view>

#include "lmdbio/base/status.h"

namespace lmdbio::file {

// LMDB users have environments of two kinds: a directory with a file data.mdb in it, or a single
// file (MDB_NOSUBDIR). Both are given by one path.
//
// Returns: the path of the data file, which exists and is a regular file or a block device
// Errors:  kNotFound, kPermission, kInvalidArgument (something else), kIo; each names the path
Result<std::string> FindDataFile(const std::string& path);

// Where the provenance of a data file lies: DATA.prov, or DATA.NAME.prov for a named database, with
// every byte of the name that a file name should not hold written as %XX.
std::string ProvenancePath(const std::string& data_path, std::string_view database_name);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_IO_DATA_PATH_H_
