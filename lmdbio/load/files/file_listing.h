// lmdbio/load/files/file_listing.h - the files of a list, as all ranks must see them.
//
// Source: docs/many_files.md.
#ifndef LMDBIO_LOAD_FILES_FILE_LISTING_H_
#define LMDBIO_LOAD_FILES_FILE_LISTING_H_

#include <cstdint>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/load/files/opened_files.h"
#include "lmdbio/load/order/stream_state.h"
#include "lmdbio/ranks/group/group.h"

namespace lmdbio::load {

// Empty for a single file.
struct FileListing {
  std::vector<FileIdentity> files;
  std::vector<uint64_t> file_bytes;  // [files], sizes in bytes
};

// The listing of opened files. Errors: as OpenedFiles::CountRecords
Result<FileListing> ListingOf(const OpenedFiles& files, const std::vector<DatabasePath>& list);

// Sends the listing of rank 0 to all ranks. Errors: kInternal  MPI failed
// Collective: over `group`
Status BroadcastListing(ranks::Group& group, FileListing& listing);

// Errors: kStale  this rank sees another list, or another file of it, than rank 0; names the file
//         as ListingOf
Status CheckSameFiles(const FileListing& of_rank_0, const OpenedFiles& files,
                      const std::vector<DatabasePath>& list);

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_FILES_FILE_LISTING_H_
