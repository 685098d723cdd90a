// tests/tools/program.h - the built programs that read databases, and what a user sees of them.
#ifndef TESTS_TOOLS_PROGRAM_H_
#define TESTS_TOOLS_PROGRAM_H_

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/support/run_command.h"

namespace lmdbio::test {

// A program with the words that come before its operand: {"/.../lmdbio-provenance", "show"}.
struct Program {
  std::string name;  // as it calls itself in messages
  std::vector<std::string> words;
};

Program DumpProgram();
Program StatProgram();
Program ProvenanceProgram(std::string command);  // create, show or verify

// The three above, the last with each of its commands.
std::vector<Program> AllPrograms();

// Runs the program with `options` and the operand `path`.
CommandResult Run(const Program& program, const std::filesystem::path& path,
                  const std::vector<std::string>& options = {});

// The same with --json; throws unless it succeeds. Returns what it reports, members in its order.
nlohmann::ordered_json Report(const Program& program, const std::filesystem::path& path,
                              std::vector<std::string> options = {});

// What is wrong with a failure as a user sees it: "" if it is exit code 1, nothing on standard
// output, and one line on standard error that begins with the program's name and holds `words`.
std::string FlawOfFailure(const CommandResult& result, const Program& program,
                          const std::string& words);

}  // namespace lmdbio::test
#endif  // TESTS_TOOLS_PROGRAM_H_
