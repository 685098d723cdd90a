// bench/loader/loader_flags.h - the options of the loader on the command line.
//
// The names, defaults and help texts come from lmdbio/api/options.toml.
//
// Source: docs/options.md.
#ifndef LMDBIO_BENCH_LOADER_LOADER_FLAGS_H_
#define LMDBIO_BENCH_LOADER_LOADER_FLAGS_H_

#include "lmdbio/load/plan/option_info.h"
#include "lmdbio/load/plan/options.h"
#include "tools/cli/cli.h"

namespace lmdbio::tools {

// Adds the flag of every option of this use that has one.
void DescribeLoaderFlags(load::OptionUse use, po::options_description_easy_init options);

// Sets the options of this use to the values of their flags. Throws Misuse, which names the flag.
void SetLoaderOptions(load::OptionUse use, const Invocation& invocation,
                      load::LoaderOptions& options);

}  // namespace lmdbio::tools
#endif  // LMDBIO_BENCH_LOADER_LOADER_FLAGS_H_
