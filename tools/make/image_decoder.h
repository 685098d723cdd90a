// tools/make/image_decoder.h - decodes image files into planes of pixels.
#ifndef LMDBIO_TOOLS_MAKE_IMAGE_DECODER_H_
#define LMDBIO_TOOLS_MAKE_IMAGE_DECODER_H_

#include <optional>
#include <string>
#include <string_view>

#include "lmdbio/base/status.h"

namespace lmdbio::tools {

struct ImageSize {
  int width = 0;
  int height = 0;
};

enum class ImageColors { kBgr, kGray };

struct DecodedImage {
  int channels = 0;
  ImageSize size;
  std::string planes;  // [channels x height x width] bytes
};

// Decodes a JPEG, PNG, BMP, PGM or PPM file.
//
// path        the path of the file, for decoders that open it themselves
// file_bytes  the content of the file
// resize      the new size, without regard to proportions; empty: the size stays
//
// Errors:  kUnsupported  another kind of file, or a JPEG that libjpeg-turbo cannot convert to
//                        colours
//          kCorruption   damaged or truncated; the message has the details
//          kResourceExhausted  more than 2^28 pixels
Result<DecodedImage> DecodeImage(const std::string& path, std::string_view file_bytes,
                                 ImageColors colors, std::optional<ImageSize> resize);

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_MAKE_IMAGE_DECODER_H_
