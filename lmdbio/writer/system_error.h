// lmdbio/writer/system_error.h - what errno means to a caller.
#ifndef LMDBIO_WRITER_SYSTEM_ERROR_H_
#define LMDBIO_WRITER_SYSTEM_ERROR_H_

#include <string_view>

#include "lmdbio/base/status.h"

namespace lmdbio::writer {

// The error that `error_number` (a value of errno) stands for: "`what`: reason". A full disk and an
// exhausted quota are kResourceExhausted.
Error SystemError(int error_number, std::string_view what);

}  // namespace lmdbio::writer
#endif  // LMDBIO_WRITER_SYSTEM_ERROR_H_
