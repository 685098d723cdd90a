#include "tests/tools/program.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace lmdbio::test {

Program DumpProgram() { return {"lmdbio-dump", {LMDBIO_DUMP_PROGRAM}}; }
Program StatProgram() { return {"lmdbio-stat", {LMDBIO_STAT_PROGRAM}}; }
Program ProvenanceProgram(std::string command) {
  return {"lmdbio-provenance", {LMDBIO_PROVENANCE_PROGRAM, std::move(command)}};
}

std::vector<Program> AllPrograms() {
  return {DumpProgram(), StatProgram(), ProvenanceProgram("create"), ProvenanceProgram("show"),
          ProvenanceProgram("verify")};
}

CommandResult Run(const Program& program, const std::filesystem::path& path,
                  const std::vector<std::string>& options) {
  std::vector<std::string> words = program.words;
  words.insert(words.end(), options.begin(), options.end());
  words.push_back(path.string());
  return RunCommand(words);
}

nlohmann::ordered_json Report(const Program& program, const std::filesystem::path& path,
                              std::vector<std::string> options) {
  options.push_back("--json");
  const CommandResult result = Run(program, path, options);
  if (result.exit_code != 0) throw std::runtime_error(result.errors);
  return nlohmann::ordered_json::parse(result.output);
}

std::string FlawOfFailure(const CommandResult& result, const Program& program,
                          const std::string& words) {
  const std::string& errors = result.errors;
  if (result.exit_code != 1) return "exit code " + std::to_string(result.exit_code);
  if (!result.output.empty()) return "standard output: " + result.output.substr(0, 200);
  const bool is_one_line = std::ranges::count(errors, '\n') == 1 && errors.ends_with('\n');
  if (is_one_line && errors.starts_with(program.name + ": ") &&
      errors.find(words) != std::string::npos) {
    return "";
  }
  return "standard error: " + errors;
}

}  // namespace lmdbio::test
