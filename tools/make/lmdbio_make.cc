// lmdbio-make: writes databases for training and measurements.
#include <array>

#include "tools/cli/cli.h"
#include "tools/make/make_cifar10.h"
#include "tools/make/make_digits.h"
#include "tools/make/make_images.h"
#include "tools/make/make_synthetic.h"

int main(int argc, char** argv) {
  using namespace lmdbio::tools;
  const std::array commands = {SyntheticCommand(), Cifar10Command(), ImagesCommand(),
                               DigitsCommand()};
  return RunTool("lmdbio-make", "Writes an LMDB database and its provenance file.", commands, argc,
                 argv);
}
