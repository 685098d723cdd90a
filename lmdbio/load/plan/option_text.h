// lmdbio/load/plan/option_text.h - the values of options as text.
//
// Source: docs/options.md.
#ifndef LMDBIO_LOAD_PLAN_OPTION_TEXT_H_
#define LMDBIO_LOAD_PLAN_OPTION_TEXT_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "lmdbio/load/plan/options.h"

namespace lmdbio::load {

// The effective options: one JSON object with a member for each option, in one line. Choices are
// names; an option that is left to the strategy is null.
std::string OptionsJson(const LoaderOptions& options);

// The value of an option, of a fixed size, so that ranks can exchange it.
struct OptionValue {
  uint64_t digest = 0;           // TextDigest of the value as text
  std::array<char, 24> shown{};  // the text, ending with zeros; empty if it is longer
};
static_assert(std::has_unique_object_representations_v<OptionValue>);

// The values of the options that all ranks of a job have alike: of each rank as many, in the same
// order.
std::vector<OptionValue> CommonOptionValues(const LoaderOptions& options);

// Names the first option in which a rank differs from rank 0, with both values if they are short.
// Empty: the ranks agree.
// first, other  results of CommonOptionValues, of rank 0 and of rank `rank`
std::string OptionDifference(std::span<const OptionValue> first, std::span<const OptionValue> other,
                             int rank);

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_PLAN_OPTION_TEXT_H_
