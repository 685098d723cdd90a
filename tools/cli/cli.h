// tools/cli/cli.h - commands, options, exit codes and reports of all lmdbio programs.
//
// A program is a table of commands and one call of RunTool. Parsing fails with an exception, as
// Boost.Program_options does; a command fails with a Status. RunTool turns both into an exit code:
// 0 done, 1 failed ("lmdbio-x: reason" on standard error), 2 misused (the same, with a hint to
// --help). Standard output contains results only, so that it can be piped.
#ifndef LMDBIO_TOOLS_CLI_CLI_H_
#define LMDBIO_TOOLS_CLI_CLI_H_

#include <cstdint>
#include <istream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include "lmdbio/base/status.h"

namespace lmdbio::tools {

namespace po = boost::program_options;

// An invalid command line; RunTool turns it into exit code 2. Commands throw it for errors that the
// option parser cannot find: options that exclude each other, numbers out of range.
class Misuse : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The type of options with a whole number: po::value<Whole>(). It accepts decimal digits only. A
// plain uint64_t option would read "-1" as 18446744073709551615.
struct Whole {
  uint64_t value = 0;
};
std::istream& operator>>(std::istream& in, Whole& whole);
std::ostream& operator<<(std::ostream& out, const Whole& whole);

// Throws Misuse unless `text` is a decimal number below 2^64; `what` names it in the message.
uint64_t ParseWhole(std::string_view text, std::string_view what);

// One parsed command line.
class Invocation {
 public:
  Invocation(std::string tool_name, po::variables_map values);

  // Whether the user gave the option or operand `name` (or it has a default).
  bool has(const std::string& name) const { return values_.count(name) != 0; }
  // Whether the user gave the option, so that its value is not the default.
  bool given(const std::string& name) const { return has(name) && !values_[name].defaulted(); }

  // The value of an option. Requires: has(name), T as the option was described.
  template <typename T>
  const T& option(const std::string& name) const {
    return values_[name].as<T>();
  }
  // The value of a po::value<Whole>() option. Requires: has(name)
  uint64_t whole(const std::string& name) const { return option<Whole>(name).value; }
  // The operand `name` of Command::operands. Requires: has(name)
  const std::string& operand(const std::string& name) const { return option<std::string>(name); }
  // The operands of "NAME...". Requires: has(name)
  const std::vector<std::string>& operand_list(const std::string& name) const {
    return option<std::vector<std::string>>(name);
  }

  bool wants_json() const { return has("json"); }
  const std::string& tool_name() const { return tool_name_; }

  // Writes the outcome to standard output. With --json it is one JSON object. Otherwise it is a
  // line for each member ("value_bytes" becomes "value bytes"), with nested objects indented. The
  // first member of an object in an array is its title.
  // Errors: kIo  standard output cannot be written
  Status Report(const nlohmann::ordered_json& outcome) const;

  // Writes one line to standard error, after the tool's name, for a problem that does not end the
  // run.
  void Warn(std::string_view message) const;

 private:
  std::string tool_name_;
  po::variables_map values_;
};

// The standard output of a command: kReport, an outcome through Invocation::Report, as text or
// JSON; kText, text of another form.
enum class Output { kReport, kText };

// One command of a program.
struct Command {
  const char* name;  // "" if the program has only one command
  // The names of the operands, as "DIR OUT". "[OUT]" is optional. The last may be "IN...", which is
  // one or several.
  const char* operands;
  const char* summary;  // one line for --help
  // Describes the options besides --help, --version and, for a report, --json. nullptr: no others.
  void (*describe)(po::options_description_easy_init options);
  Status (*run)(const Invocation& invocation);
  Output output = Output::kReport;
  const char* details = "";  // paragraphs for --help, below the summary
};

// Parses the command line, runs its command and returns the exit code of the program. Catches all
// exceptions. main returns its result: `return RunTool("lmdbio-x", "Summary.", commands, ...)`.
int RunTool(const char* name, const char* summary, std::span<const Command> commands, int argc,
            char** argv);

// Writes `text` to standard output. The output is buffered, so RunTool may detect a full disk only
// at the end.
// Errors: kIo  the output cannot be written; the message has the reason
Status WriteOutput(std::string_view text);

// For commands that must remove unfinished work. After this call the first SIGINT, SIGTERM or
// SIGHUP only makes StopRequested() true. The command checks it regularly and returns any error;
// RunTool then ends the process by that signal. A signal that arrives seconds later ends the
// process at once.
void CatchStopSignals();
bool StopRequested();

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_CLI_CLI_H_
