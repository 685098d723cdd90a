// tools/make/make_images.h - `lmdbio-make images`: a folder tree of images in Caffe's form.
#ifndef LMDBIO_TOOLS_MAKE_MAKE_IMAGES_H_
#define LMDBIO_TOOLS_MAKE_MAKE_IMAGES_H_

#include "tools/cli/cli.h"

namespace lmdbio::tools {

Command ImagesCommand();

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_MAKE_MAKE_IMAGES_H_
