// tests/file/output/write_output.h - writes whole outputs, and the user whose files are strange.
#ifndef LMDBIO_TESTS_FILE_OUTPUT_WRITE_OUTPUT_H_
#define LMDBIO_TESTS_FILE_OUTPUT_WRITE_OUTPUT_H_

#include <sys/types.h>

#include <filesystem>
#include <string>

#include "lmdbio/base/status.h"

namespace lmdbio::test {

// A user who is neither root nor the one that runs the test. root may give files to this user.
inline constexpr uid_t kNobody = 65534;

// An OutputFile with `content`, published.
Status WriteOutput(const std::filesystem::path& path, const std::string& content);

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_FILE_OUTPUT_WRITE_OUTPUT_H_
