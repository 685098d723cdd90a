// tests/support/catch.h - Catch2, version 2.13 or 3. The only file that includes it.
//
// Tests use the names of version 3, and this header adds them to version 2. A program with a main
// function of its own defines CATCH_CONFIG_RUNNER before this include, for version 2.
#ifndef LMDBIO_TESTS_SUPPORT_CATCH_H_
#define LMDBIO_TESTS_SUPPORT_CATCH_H_

#if __has_include(<catch2/catch_all.hpp>)

#include <catch2/catch_all.hpp>

using Catch::Approx;

#else

#include <string>

#include <catch2/catch.hpp>

namespace Catch {

#ifdef CATCH_CONFIG_RUNNER
using EventListenerBase = TestEventListenerBase;
#endif

namespace Matchers {

inline StdString::ContainsMatcher ContainsSubstring(const std::string& text) {
  return Contains(text);
}

}  // namespace Matchers
}  // namespace Catch

#endif

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

#endif  // LMDBIO_TESTS_SUPPORT_CATCH_H_
