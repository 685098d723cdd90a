#include "tools/cli/cli.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <exception>
#include <iterator>
#include <ostream>
#include <sstream>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace lmdbio::tools {
namespace {

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kMisused = 2;

// The number of the first stop signal. These are globals because a signal handler reaches no
// others.
volatile std::sig_atomic_t g_stop_signal = 0;
volatile std::time_t g_stop_time = 0;

// timeout(1) and job launchers send several signals at once for one request to stop. Only a signal
// that arrives two seconds later ends the process immediately.
extern "C" void NoteStopSignal(int signal_number) {
  constexpr std::time_t kPatienceSeconds = 2;
  const std::time_t now = std::time(nullptr);
  if (g_stop_signal == 0) {
    g_stop_signal = signal_number;
    g_stop_time = now;
  } else if (now - g_stop_time >= kPatienceSeconds) {
    std::signal(signal_number, SIG_DFL);
    std::raise(signal_number);
  }
}

struct CliOperand {
  std::string name;
  bool is_required = true;
  bool is_many = false;
};

// "DIR [OUT]" becomes {DIR, required}, {OUT, optional}; "IN..." becomes {IN, required, many}.
std::vector<CliOperand> SplitOperands(std::string_view text) {
  std::vector<CliOperand> operands;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    const bool is_optional = word.front() == '[';
    std::string_view operand = is_optional ? word.substr(1, word.size() - 2) : word;
    const bool is_many = operand.ends_with("...");
    if (is_many) operand.remove_suffix(3);
    operands.push_back({std::string(operand), !is_optional, is_many});
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return operands;
}

po::options_description DescribeOptions(const Command& command) {
  po::options_description options("Options");
  if (command.describe != nullptr) command.describe(options.add_options());
  po::options_description common;
  if (command.output == Output::kReport) {
    common.add_options()("json", "report as one JSON object");
  }
  common.add_options()("help", "print this text and exit");
  common.add_options()("version", "print the version and exit");
  for (const auto& option : common.options()) options.add(option);
  return options;
}

// Parses the words after the command's name. Throws po::error or Misuse. With --help or --version,
// operands and required options may be missing.
po::variables_map Parse(const Command& command, const std::vector<std::string>& words) {
  const std::vector<CliOperand> operands = SplitOperands(command.operands);
  po::options_description all = DescribeOptions(command);
  po::positional_options_description positions;
  for (const CliOperand& operand : operands) {
    if (operand.is_many) {
      all.add_options()(operand.name.c_str(), po::value<std::vector<std::string>>());
    } else {
      all.add_options()(operand.name.c_str(), po::value<std::string>());
    }
    // To Boost, -1 means all words from this position on.
    positions.add(operand.name.c_str(), operand.is_many ? -1 : 1);
  }
  // Abbreviated options are refused, because a new option would change their meaning.
  const int style = po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
  po::variables_map values;
  try {
    po::store(po::command_line_parser(words).options(all).positional(positions).style(style).run(),
              values);
  } catch (const po::too_many_positional_options_error&) {
    throw Misuse(operands.empty()
                     ? "takes no operands"
                     : fmt::format("too many operands; expected {}", command.operands));
  }
  // notify throws if a required option is missing, so --help and --version are found before.
  if (values.count("help") != 0 || values.count("version") != 0) return values;
  po::notify(values);
  for (const CliOperand& operand : operands) {
    if (operand.is_required && values.count(operand.name) == 0) {
      throw Misuse(fmt::format("missing {}", operand.name));
    }
  }
  return values;
}

std::string CommandHelp(const std::string& call, const Command& command) {
  std::ostringstream options;
  options << DescribeOptions(command);
  const std::string operands =
      *command.operands == '\0' ? "" : fmt::format(" {}", command.operands);
  const std::string details =
      *command.details == '\0' ? "" : fmt::format("\n{}\n", command.details);
  return fmt::format("Usage: {} [OPTION]...{}\n{}\n{}\n{}", call, operands, command.summary,
                     details, options.str());
}

std::string ToolHelp(const char* name, const char* summary, std::span<const Command> commands) {
  std::string text =
      fmt::format("Usage: {} COMMAND [OPTION]... [OPERAND]...\n{}\n\nCommands:\n", name, summary);
  for (const Command& command : commands) {
    text += fmt::format("  {:<12} {}\n", command.name, command.summary);
  }
  return text + fmt::format("\n'{} COMMAND --help' lists the options of a command.\n", name);
}

std::string VersionLine(const char* name) { return fmt::format("{} {}\n", name, LMDBIO_VERSION); }

// If a standard stream is closed, the next opened file would take its number, and printed text
// would end up in a database. This occupies the number, so that writing to it fails.
void OccupyStandardStreams() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) == -1) {
      [[maybe_unused]] const int occupied = open("/dev/null", O_RDONLY);
    }
  }
}

// Finds the command named by the first word and removes that word. Returns nullptr if the words ask
// for the help or version of the tool itself. Throws Misuse.
const Command* TakeCommand(std::span<const Command> commands, std::vector<std::string>& words) {
  // A program with one unnamed command has no word to take.
  if (*commands.front().name == '\0') return &commands.front();
  if (words.empty()) throw Misuse("missing COMMAND");
  const std::string word = words.front();
  if (word == "--help" || word == "--version") return nullptr;
  for (const Command& command : commands) {
    if (word == command.name) {
      words.erase(words.begin());
      return &command;
    }
  }
  throw Misuse(fmt::format("unknown command '{}'", word));
}

// call  receives the words that select the command: "lmdbio-x command"
Status Run(const char* name, const char* summary, std::span<const Command> commands,
           std::vector<std::string> words, std::string& call) {
  const Command* command = TakeCommand(commands, words);
  if (command == nullptr) {
    return WriteOutput(words.front() == "--help" ? ToolHelp(name, summary, commands)
                                                 : VersionLine(name));
  }
  if (*command->name != '\0') call += fmt::format(" {}", command->name);
  po::variables_map values = Parse(*command, words);
  if (values.count("help") != 0) return WriteOutput(CommandHelp(call, *command));
  if (values.count("version") != 0) return WriteOutput(VersionLine(name));
  return command->run(Invocation(name, std::move(values)));
}

Status OutputError() {
  return Fail(ErrorCode::kIo, fmt::format("standard output: {}", std::strerror(errno)));
}

// Prints one line. Control characters, for example in a path, are escaped.
int Complain(const char* name, std::string_view message, int exit_code) {
  std::string line;
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      line += fmt::format("\\x{:02x}", byte);
    } else {
      line += c;
    }
  }
  std::fprintf(stderr, "%s: %s\n", name, line.c_str());
  return exit_code;
}

// Ends the process by the signal that was caught, so that a shell sees an interrupted program and
// not a failed one.
void ObeyStopSignal() {
  if (g_stop_signal == 0) return;
  const int signal_number = g_stop_signal;
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
}

using nlohmann::ordered_json;

std::string ValueText(const ordered_json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Appends one line for each member from `first` on: its name, with blanks for underscores, and its
// value. Objects follow indented. Each object of an array follows the value of its first member.
void AppendText(const ordered_json& object, ordered_json::const_iterator first, size_t indent,
                std::string& text) {
  // All values of one object begin in the same column, two blanks after the longest name.
  size_t width = 0;
  for (auto member = first; member != object.end(); ++member) {
    width = std::max(width, member.key().size());
  }
  for (auto member = first; member != object.end(); ++member) {
    const ordered_json& value = member.value();
    std::string label = member.key();
    std::ranges::replace(label, '_', ' ');
    text += fmt::format("{:{}}{}", "", indent, label);
    if (value.is_object()) {
      text += '\n';
      AppendText(value, value.begin(), indent + 2, text);
    } else if (value.is_array()) {
      text += '\n';
      for (const ordered_json& element : value) {
        text += fmt::format("{:{}}{}\n", "", indent + 2, ValueText(element.front()));
        AppendText(element, std::next(element.begin()), indent + 4, text);
      }
    } else {
      text += fmt::format("{:{}}{}\n", "", width + 2 - label.size(), ValueText(value));
    }
  }
}

}  // namespace

std::istream& operator>>(std::istream& in, Whole& whole) {
  std::string text;
  in >> text;
  // from_chars accepts neither a sign nor a blank. A rest of the text is refused.
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), whole.value);
  if (error != std::errc() || end != text.data() + text.size()) in.setstate(std::ios::failbit);
  return in;
}

std::ostream& operator<<(std::ostream& out, const Whole& whole) { return out << whole.value; }

uint64_t ParseWhole(std::string_view text, std::string_view what) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw Misuse(fmt::format("{} '{}' is not a whole number below 2^64", what, text));
  }
  return value;
}

Invocation::Invocation(std::string tool_name, po::variables_map values)
    : tool_name_(std::move(tool_name)), values_(std::move(values)) {}

Status Invocation::Report(const nlohmann::ordered_json& outcome) const {
  // Paths may contain bytes that are not UTF-8. The report replaces them instead of throwing.
  if (wants_json()) {
    return WriteOutput(
        outcome.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  }
  std::string text;
  AppendText(outcome, outcome.begin(), 0, text);
  return WriteOutput(text);
}

void Invocation::Warn(std::string_view message) const {
  Complain(tool_name_.c_str(), message, kFailed);
}

int RunTool(const char* name, const char* summary, std::span<const Command> commands, int argc,
            char** argv) {
  OccupyStandardStreams();
  std::signal(SIGXFSZ, SIG_IGN);  // so a file above the limit of ulimit -f is an error of write
  std::string call = name;
  try {
    Status status = Run(name, summary, commands,
                        std::vector<std::string>(argv + (argc > 0), argv + argc), call);
    // The results are written before a caught signal ends the process. A full disk turns a success
    // into a failure, but does not hide an earlier failure.
    if (std::fflush(stdout) != 0 && status) status = OutputError();
    ObeyStopSignal();
    return status ? kDone : Complain(name, status.error().message(), kFailed);
  } catch (const Misuse& misuse) {
    return Complain(name, fmt::format("{} (try {} --help)", misuse.what(), call), kMisused);
  } catch (const po::error& misuse) {
    return Complain(name, fmt::format("{} (try {} --help)", misuse.what(), call), kMisused);
  } catch (const std::bad_alloc&) {
    return Complain(name, "out of memory", kFailed);
  } catch (const std::exception& error) {
    return Complain(name, error.what(), kFailed);
  }
}

Status WriteOutput(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size()) return {};
  return OutputError();
}

void CatchStopSignals() {
  struct sigaction action = {};
  action.sa_handler = NoteStopSignal;
  // Interrupted reads and writes continue, so no code needs to handle EINTR for the sake of a
  // signal that only sets a variable.
  action.sa_flags = SA_RESTART;
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before = {};
    sigaction(signal_number, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(signal_number, &action, nullptr);  // nohup
  }
}

bool StopRequested() { return g_stop_signal != 0; }

}  // namespace lmdbio::tools
