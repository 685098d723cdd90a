// tests/tools/program.h - runs the built programs that read databases, and checks their output.
#ifndef LMDBIO_TESTS_TOOLS_PROGRAM_H_
#define LMDBIO_TESTS_TOOLS_PROGRAM_H_

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/support/run_command.h"

namespace lmdbio::test {

// A program with the words before its operand: {"/.../lmdbio-provenance", "show"}.
struct Program {
  std::string name;  // its name in messages
  std::vector<std::string> words;
};

Program DumpProgram();
Program StatProgram();
Program ProvenanceProgram(std::string command);  // create, show or verify

// All programs above, the last with each of its commands.
std::vector<Program> AllPrograms();

// Runs the program with `options` and the operand `path`.
CommandResult Run(const Program& program, const std::filesystem::path& path,
                  const std::vector<std::string>& options = {});

// The same with --json. Returns the report with members in order; throws if the program fails.
nlohmann::ordered_json Report(const Program& program, const std::filesystem::path& path,
                              std::vector<std::string> options = {});

// The flaw of a failure as a user sees it. It is "" if the exit code is 1, standard output is
// empty, and standard error is one line that begins with the program's name and contains `words`.
std::string FlawOfFailure(const CommandResult& result, const Program& program,
                          const std::string& words);

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_TOOLS_PROGRAM_H_
