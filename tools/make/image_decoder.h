// tools/make/image_decoder.h - image files become planes of pixels.
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
// path        of the file, for the decoders that open it themselves
// file_bytes  its content
// resize      the size to scale the image to, without regard to its proportions; empty: as it is
//
// Errors:  kUnsupported  none of these kinds; a kind of JPEG that libjpeg-turbo cannot turn
//                        into colours
//          kCorruption   damaged, or cut off; the message says how
//          kResourceExhausted  more than 2^28 pixels
Result<DecodedImage> DecodeImage(const std::string& path, std::string_view file_bytes,
                                 ImageColors colors, std::optional<ImageSize> resize);

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_MAKE_IMAGE_DECODER_H_
