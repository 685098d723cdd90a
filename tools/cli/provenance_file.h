// tools/cli/provenance_file.h - the provenance file beside a data file.
#ifndef LMDBIO_TOOLS_CLI_PROVENANCE_FILE_H_
#define LMDBIO_TOOLS_CLI_PROVENANCE_FILE_H_

#include <cstdint>
#include <string>

#include "lmdbio/file/layout/database.h"
#include "lmdbio/file/provenance/provenance.h"

namespace lmdbio::tools {

struct ProvenanceFile {
  std::string path;
  uint64_t size_bytes = 0;
  file::Provenance provenance;
};

// Reads the provenance file of `database`. CheckFingerprint decides whether the file fits.
// Errors: kNotFound, kPermission, kIo; kCorruption, kUnsupported; kInvalidArgument (not a regular
//         file); all name the path
Result<ProvenanceFile> ReadProvenanceFile(const file::Database& database);

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_CLI_PROVENANCE_FILE_H_
