// lmdbio/file/io/file_list.h - the data files that a path stands for: one, a folder, or a glob.
//
// Source: docs/many_files.md.
#ifndef LMDBIO_FILE_IO_FILE_LIST_H_
#define LMDBIO_FILE_IO_FILE_LIST_H_

#include <string>
#include <string_view>
#include <vector>

#include "lmdbio/base/status.h"

namespace lmdbio::file {

// The environments that `path` stands for, each as a path for FindDataFile:
//   - itself, if it is a file or a directory with data.mdb
//   - of another directory: its files *.mdb and *.lmdb, and its directories with data.mdb
//   - if it does not exist and has one of the characters *?[: all that match, except lock files and
//     provenance files
// Folders and matches are in natural order (NaturallyBefore).
//
// Returns: at least one path
// Errors:  kNotFound  nothing is there, or nothing matches; kPermission, kIo, kInvalidArgument (not
//          a regular file); each names the path
Result<std::vector<std::string>> ListDataFiles(const std::string& path);

// Compares texts so that numbers in them count by value: "data.2" before "data.10". Texts that
// differ only in leading zeros are compared byte by byte.
bool NaturallyBefore(std::string_view a, std::string_view b);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_IO_FILE_LIST_H_
