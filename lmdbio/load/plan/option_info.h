// lmdbio/load/plan/option_info.h - the description of one option of the loader.
//
// Source: docs/options.md.
#ifndef LMDBIO_LOAD_PLAN_OPTION_INFO_H_
#define LMDBIO_LOAD_PLAN_OPTION_INFO_H_

#include <cstdint>
#include <string_view>

namespace lmdbio::load {

// Whether the ranks of a job may have different values.
enum class OptionRanks { kSame, kMayDiffer };

// Whether the option is part of the sequence of records, or of the loader alone.
enum class OptionUse { kLoader, kStream };

enum class OptionUnit { kOther, kBytes };

struct OptionInfo {
  const char* name;        // "global_batch_size"
  const char* flag;        // "global-batch-size,b"; empty: programs declare the flag themselves
  const char* value_name;  // "N"
  int64_t least;           // range on the command line
  int64_t most;            // 0: everything that fits into the type
  OptionRanks ranks;
  OptionUse use;
  OptionUnit unit;
  const char* help;
};

// One value of an option that has names for its values.
template <typename T>
struct OptionChoice {
  std::string_view name;
  T value;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_PLAN_OPTION_INFO_H_
