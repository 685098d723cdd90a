// tools/cli/cli.h - what all lmdbio programs share: commands, options, exit codes, reports.
//
// A program is a table of commands and one call of RunTool. Parsing fails by exception, because
// Boost.Program_options does; running fails by Status. Both end in RunTool, which knows the exit
// codes: 0 done, 1 failed ("lmdbio-x: reason" on standard error), 2 misused (the same, and where to
// find help). Standard output carries results only, so that it can be piped.
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

// A command line that cannot be carried out as it stands; RunTool turns it into exit code 2.
// Commands may throw it for what the option parser cannot see: options that exclude each other,
// ranges.
class Misuse : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The type of options that count something: po::value<Whole>(). Reads decimal digits and nothing
// else, where a plain uint64_t option would take "-1" for 18446744073709551615.
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
  // Whether the user gave it himself.
  bool given(const std::string& name) const { return has(name) && !values_[name].defaulted(); }

  // The value of an option. Requires: has(name), T as the option was described.
  template <typename T>
  const T& option(const std::string& name) const {
    return values_[name].as<T>();
  }
  // The value of a po::value<Whole>() option. Requires: has(name)
  uint64_t whole(const std::string& name) const { return option<Whole>(name).value; }
  // An operand by the name that Command::operands gives it. Requires: has(name)
  const std::string& operand(const std::string& name) const { return option<std::string>(name); }
  // What "NAME..." stands for. Requires: has(name)
  const std::vector<std::string>& operand_list(const std::string& name) const {
    return option<std::vector<std::string>>(name);
  }

  bool wants_json() const { return has("json"); }
  const std::string& tool_name() const { return tool_name_; }

  // Writes the outcome to standard output: one JSON object with --json, else a line for each member
  // ("value_bytes" becomes "value bytes"), objects inside indented. Arrays hold objects whose first
  // member names them.
  // Errors: kIo  standard output cannot be written
  Status Report(const nlohmann::ordered_json& outcome) const;

  // One line on standard error, after the tool's name: for what went wrong without ending the run.
  void Warn(std::string_view message) const;

 private:
  std::string tool_name_;
  po::variables_map values_;
};

// What a command writes to standard output: an outcome through Invocation::Report, in words or in
// JSON, or text of a form of its own.
enum class Output { kReport, kText };

// What a program can be asked to do.
struct Command {
  const char* name;  // "" if the program has but one command
  // Names by which operands are found, as "DIR OUT"; "[OUT]" may be left out, and the last may be
  // "IN...", which is one or several.
  const char* operands;
  const char* summary;  // one line for --help
  // Describes the options; --help, --version and, for a report, --json are always there. nullptr:
  // no others.
  void (*describe)(po::options_description_easy_init options);
  Status (*run)(const Invocation& invocation);
  Output output = Output::kReport;
  const char* details = "";  // paragraphs for --help, below the summary
};

// Parses the command line, runs the command it names and returns the exit code of the program.
// Catches everything. Every return of main: `return RunTool("lmdbio-x", "What it does.", commands,
// ...)`.
int RunTool(const char* name, const char* summary, std::span<const Command> commands, int argc,
            char** argv);

// Writes `text` to standard output, buffered: a full disk may show only at the end, in RunTool.
// Errors: kIo  it cannot be written; the message carries the reason
Status WriteOutput(std::string_view text);

// For commands that have half-done work to remove: from now on the first SIGINT, SIGTERM or SIGHUP
// only makes StopRequested() true. Look at it now and then and return any error: RunTool then ends
// the process as the signal would have. A signal that comes seconds later ends it at once.
void CatchStopSignals();
bool StopRequested();

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_CLI_CLI_H_
