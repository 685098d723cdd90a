// lmdbio/file/output/file_owner.h - unfinished files, and whether their owners still run.
//
// The owner of an unfinished file holds a lock on it (flock). The kernel releases the lock when the
// process ends, in whatever way. So a later process can tell an abandoned file from one in work.
#ifndef LMDBIO_FILE_OUTPUT_FILE_OWNER_H_
#define LMDBIO_FILE_OUTPUT_FILE_OWNER_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "lmdbio/base/unique_fd.h"

namespace lmdbio::file {

// Locks the file for this process until the descriptor is closed. Returns false if another process
// has the lock: it is removing the file. On a file system without locks the call does nothing.
bool LockAsOwner(const UniqueFd& file);

enum class FileState {
  kGone,     // there is no such file, or it was abandoned and has been removed
  kOwned,    // its owner runs
  kUnknown,  // it is no regular file or belongs to another user; or nobody can tell the owner
};

// Removes the regular file `name` of `folder` if this user owns it and no process has locked it.
// Requires: only owners that call LockAsOwner make files of this name
// Cost: a system call if there is no such file
FileState RemoveAbandoned(int folder, const std::string& name);

// Whether a file that is not locked here may have an owner on another host. On file systems of
// several hosts, locks may hold on one host only. There a file counts as abandoned if it has not
// changed for an hour.
// file_system  f_type of statfs
bool MayHaveRemoteOwner(int64_t file_system, std::chrono::seconds since_change);

// Number `number` of the names that unfinished files for the name `name` have:
// "NAME.lmdbio-3.tmp".
std::string WorkingName(std::string_view name, uint32_t number);
bool IsWorkingName(std::string_view name);

// Files beyond this number of writers to one name at the same time are not looked for later.
inline constexpr uint32_t kWorkingNames = 8;

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_OUTPUT_FILE_OWNER_H_
