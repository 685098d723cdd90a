// A layout of an image is a view of the image.
#include <vector>

#include "lmdbio/file/layout/layout.h"

namespace lmdbio::file {

std::vector<std::byte> ReceiveImage();

Extent FirstValue() {
#ifdef LMDBIO_BAD
  const Layout layout = Layout::OfImage(ReceiveImage());
#else
  const std::vector<std::byte> image = ReceiveImage();
  const Layout layout = Layout::OfImage(image);
#endif
  return layout.Value({0});
}

}  // namespace lmdbio::file
