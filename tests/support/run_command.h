// tests/support/run_command.h - runs a program and returns its output and exit code.
#ifndef LMDBIO_TESTS_SUPPORT_RUN_COMMAND_H_
#define LMDBIO_TESTS_SUPPORT_RUN_COMMAND_H_

#include <string>
#include <vector>

namespace lmdbio::test {

struct CommandResult {
  int exit_code = 0;   // 128 + the signal number if a signal ended the program, as in shells
  std::string output;  // standard output, every byte
  std::string errors;  // standard error, every byte
};

// Runs the program (found through PATH) with empty standard input and waits for its end.
//
// arguments  [>= 1] the program and its arguments; no shell is involved
// Throws std::runtime_error if it cannot be started.
CommandResult RunCommand(const std::vector<std::string>& arguments);

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SUPPORT_RUN_COMMAND_H_
