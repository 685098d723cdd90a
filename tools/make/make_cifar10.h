// tools/make/make_cifar10.h - `lmdbio-make cifar10`: the CIFAR-10 batches in Caffe's form.
#ifndef LMDBIO_TOOLS_MAKE_MAKE_CIFAR10_H_
#define LMDBIO_TOOLS_MAKE_MAKE_CIFAR10_H_

#include "tools/cli/cli.h"

namespace lmdbio::tools {

Command Cifar10Command();

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_MAKE_MAKE_CIFAR10_H_
