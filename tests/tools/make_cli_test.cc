// Tests the common command line of all programs with lmdbio-make.
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/run_command.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/make_tool.h"

namespace lmdbio::test {
namespace {

namespace fs = std::filesystem;

// Runs a shell line with $MAKE as the program and $OUT as an unused path.
CommandResult RunShell(const std::string& line, const fs::path& out) {
  return RunCommand({"sh", "-c", "MAKE=$0; OUT=$1; " + line, LMDBIO_MAKE_PROGRAM, out.string()});
}

TEST_CASE("lmdbio-make distinguishes misuse from failure", "[tools]") {
  struct Case {
    std::vector<std::string> arguments;
    std::string errors;
  };
  const auto [arguments, errors] = GENERATE(values<Case>({
      {{}, "lmdbio-make: missing COMMAND (try lmdbio-make --help)\n"},
      {{"digit"}, "lmdbio-make: unknown command 'digit' (try lmdbio-make --help)\n"},
      {{"digits"}, "lmdbio-make: missing OUT (try lmdbio-make digits --help)\n"},
      {{"images", "in"}, "lmdbio-make: missing OUT (try lmdbio-make images --help)\n"},
      {{"digits", "a", "b"},
       "lmdbio-make: too many operands; expected OUT (try lmdbio-make digits --help)\n"},
      {{"digits", "--dat", "x", "a"},
       "lmdbio-make: unrecognised option '--dat' (try lmdbio-make digits --help)\n"},
  }));
  const CommandResult result = RunMake(arguments);
  CHECK(result.exit_code == 2);
  CHECK(result.errors == errors);
  CHECK(result.output.empty());
}

TEST_CASE("lmdbio-make --help writes to standard output", "[tools]") {
  const auto arguments = GENERATE(values<std::vector<std::string>>(
      {{"--help"}, {"digits", "--help"}, {"synthetic", "--count", "1", "--help"}}));
  const CommandResult result = RunMake(arguments);
  INFO(result.errors);
  CHECK(result.exit_code == 0);
  CHECK(result.output.starts_with("Usage: lmdbio-make "));
  CHECK(result.errors.empty());
}

TEST_CASE("lmdbio-make --version prints the version", "[tools]") {
  const CommandResult result = RunMake({"--version"});
  CHECK(result.exit_code == 0);
  CHECK(result.output.starts_with("lmdbio-make "));
  CHECK(RunMake({"digits", "--version"}).output == result.output);
}

TEST_CASE("lmdbio-make reports as text or as one JSON object", "[tools]") {
  const TempDir dir;
  const std::string out = (dir.path() / "words").string();
  const CommandResult result = RunMake({"digits", out});
  CHECK(result.exit_code == 0);
  CHECK(result.errors.empty());  // no progress bar without a terminal
  CHECK(result.output.find("database      " + out + "\nrecords       1797\n") != std::string::npos);

  const nlohmann::json outcome = Make({"digits", (dir.path() / "json").string()});
  CHECK(outcome["records"] == 1797);
  CHECK(outcome["file_bytes"] == fs::file_size(dir.path() / "json/data.mdb"));
  CHECK(fs::exists(outcome["provenance"]["file"].get<std::string>()));
}

TEST_CASE("lmdbio-make does not change an existing database", "[tools]") {
  const TempDir dir;
  const fs::path out = dir.path() / "db";
  WriteWholeFile(out, AsBytes("precious"));
  const CommandResult result = RunMake({"digits", out.string()});
  CHECK(result.exit_code == 1);
  CHECK(result.errors ==
        "lmdbio-make: " + out.string() + " exists; remove it or give another path\n");
  CHECK(ReadWholeTextFile(out) == "precious");
}

TEST_CASE("lmdbio-make writes a single file without provenance if asked", "[tools]") {
  const TempDir dir;
  Make({"digits", (dir.path() / "db").string(), "--single-file", "--no-provenance"});
  CHECK(NamesIn(dir.path()) == std::set<std::string>{"db"});
  CHECK(CaffeRecords(dir.path() / "db").size() == 1797);
}

TEST_CASE("lmdbio-make names a directory without write permission", "[tools]") {
  // Root may write anywhere, except to a file system that creates no files.
  const std::string out = geteuid() == 0 ? "/proc/db" : "/db";
  const CommandResult result = RunMake({"digits", out});
  CHECK(result.exit_code == 1);
  CHECK(result.errors.starts_with("lmdbio-make: " + out + ".lmdbio-partial: "));
}

TEST_CASE("lmdbio-make fails if its report cannot be written", "[tools]") {
  const TempDir dir;
  CommandResult result = RunShell("\"$MAKE\" digits \"$OUT\" > /dev/full", dir.path() / "full");
  CHECK(result.exit_code == 1);
  CHECK(result.errors == "lmdbio-make: standard output: No space left on device\n");
  result = RunShell("\"$MAKE\" digits \"$OUT\" >&-", dir.path() / "closed");
  CHECK(result.exit_code == 1);
  CHECK(result.errors == "lmdbio-make: standard output: Bad file descriptor\n");
  // Output for the closed stream must not be in a file that took its descriptor number.
  CHECK(CaffeRecords(dir.path() / "closed/data.mdb").size() == 1797);
}

// Goal: a limit of the process (ulimit -f) is an error with one line. Its signal would end the
// program and leave its files.
TEST_CASE("lmdbio-make names a file that exceeds the limit of file sizes", "[tools]") {
  const TempDir dir;
  // Blocks of 512 bytes. liblmdb reports the first limit as it is, and the second as a short write.
  const std::string blocks = GENERATE("16", "41");
  const CommandResult result =
      RunShell("ulimit -f " + blocks + "; \"$MAKE\" digits \"$OUT\"", dir.path() / "db");
  CHECK(result.exit_code == 1);
  CHECK(result.errors ==
        "lmdbio-make: " + (dir.path() / "db").string() + ": cannot be written: File too large\n");
  CHECK(NamesIn(dir.path()).empty());
}

// Goal: an interrupted load ends by the signal, and its unfinished files are removed. The outcome
// is the same for a signal before, during or after the first record.
TEST_CASE("lmdbio-make removes its work when it is interrupted", "[tools]") {
  const TempDir dir;
  const CommandResult result = RunCommand(
      {"timeout", "--preserve-status", "--signal=INT", "0.3", LMDBIO_MAKE_PROGRAM, "synthetic",
       (dir.path() / "db").string(), "--count", "4000000000", "--value-size", "8"});
  CHECK(result.exit_code == 128 + SIGINT);
  CHECK(result.output.empty());
  CHECK(NamesIn(dir.path()).empty());
}

}  // namespace
}  // namespace lmdbio::test
