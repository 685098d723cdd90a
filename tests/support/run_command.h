// tests/support/run_command.h - another program's output and exit code, as values.
#ifndef TESTS_SUPPORT_RUN_COMMAND_H_
#define TESTS_SUPPORT_RUN_COMMAND_H_

#include <string>
#include <vector>

namespace lmdbio::test {

struct CommandResult {
  int exit_code = 0;   // 128 + the signal's number if one ended the program, as shells have it
  std::string output;  // standard output, every byte
  std::string errors;  // standard error, every byte
};

// Runs the program (found through PATH) with empty standard input and waits for its end.
//
// arguments  [>= 1] the program and its arguments; no shell sees them
// Throws std::runtime_error if it cannot be started.
CommandResult RunCommand(const std::vector<std::string>& arguments);

}  // namespace lmdbio::test
#endif  // TESTS_SUPPORT_RUN_COMMAND_H_
