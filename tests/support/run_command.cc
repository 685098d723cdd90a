#include "tests/support/run_command.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace lmdbio::test {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using UniqueFile = std::unique_ptr<std::FILE, CloseFile>;

// The output goes to files, not to pipes, so that the child never blocks while this process reads
// its other stream.
UniqueFile UnnamedFile() {
  UniqueFile file(std::tmpfile());
  if (file == nullptr) throw std::runtime_error(std::string("tmpfile: ") + std::strerror(errno));
  return file;
}

std::string Content(std::FILE* file) {
  std::string content;
  std::rewind(file);
  char buffer[1 << 16];
  for (size_t count; (count = std::fread(buffer, 1, sizeof(buffer), file)) != 0;) {
    content.append(buffer, count);
  }
  return content;
}

pid_t Spawn(const std::vector<std::string>& arguments, std::FILE* output, std::FILE* errors) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ::fileno(output), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ::fileno(errors), STDERR_FILENO);
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error(arguments[0] + ": " + std::strerror(error));
  return child;
}

}  // namespace

CommandResult RunCommand(const std::vector<std::string>& arguments) {
  const UniqueFile output = UnnamedFile();
  const UniqueFile errors = UnnamedFile();
  const pid_t child = Spawn(arguments, output.get(), errors.get());
  int state = 0;
  while (::waitpid(child, &state, 0) < 0) {
    if (errno != EINTR) throw std::runtime_error(std::string("waitpid: ") + std::strerror(errno));
  }
  return {.exit_code = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state),
          .output = Content(output.get()),
          .errors = Content(errors.get())};
}

}  // namespace lmdbio::test
