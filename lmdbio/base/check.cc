#include "lmdbio/base/check.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

namespace lmdbio {
namespace {

// Uses write(2) and no stream. The state of the process is broken, and a lock of the C library may
// be held.
void WriteToStandardError(const char* line) {
  const std::string_view text(line);
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

CheckFailureHook g_hook = &WriteToStandardError;  // the only global setting; see the header

}  // namespace

void SetCheckFailureHook(CheckFailureHook hook) {
  g_hook = hook != nullptr ? hook : &WriteToStandardError;
}

namespace internal {

void CheckFailed(const char* file, int line, const char* expression) {
  const std::string text = fmt::format("{}:{}: CHECK failed: {}\n", file, line, expression);
  g_hook(text.c_str());
  std::abort();
}

}  // namespace internal
}  // namespace lmdbio
