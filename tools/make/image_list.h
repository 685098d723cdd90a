// tools/make/image_list.h - the files of a folder tree, labelled by their folders.
#ifndef LMDBIO_TOOLS_MAKE_IMAGE_LIST_H_
#define LMDBIO_TOOLS_MAKE_IMAGE_LIST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"

namespace lmdbio::tools {

struct LabelledFile {
  std::string path;  // relative to the root, with '/' between its parts
  int32_t label = 0;
};

struct ImageList {
  std::vector<LabelledFile> files;  // sorted by path within each label
  std::vector<std::string> labels;  // label l is the name of the l-th folder of the root, sorted
  uint64_t unlabelled_count = 0;    // files in the root itself
};

// Finds the files under every folder of `root`, at any depth. Names that begin with a dot are
// skipped, and links to folders are not followed.
//
// Errors: kNotFound, kPermission, kIo  a folder cannot be read
//         kNotFound  the root contains no folder
Result<ImageList> ListImages(const std::string& root);

// Shuffles the files. The order depends only on the seed and the number of files.
void Shuffle(std::vector<LabelledFile>& files, uint64_t seed);

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_MAKE_IMAGE_LIST_H_
