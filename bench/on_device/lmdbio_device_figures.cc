// lmdbio-device-figures: ratios that one process and one GPU can measure, with their bars.
#include <limits.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/on_device/figure_parts.h"
#include "bench/on_device/figure_program.h"

namespace {

namespace figures = lmdbio::figures;
namespace po = lmdbio::tools::po;
using lmdbio::tools::Invocation;

constexpr const char* kSummary =
    "Measures lmdbio on a GPU by the copies and queries that bound it.";
constexpr const char* kDetails =
    "D1 kernels that reduce, D2 kernels that pack and unpack, D7 the cache of pointers. A ratio "
    "is\n"
    "that of two things that were timed in turns, with the median, the least and the largest of\n"
    "all samples. Results are compared with those of the host before. The exit code is 1 if a bar\n"
    "is not held, and 77 without a GPU.";

std::string BesideProgram(const std::string& name) {
  std::array<char, PATH_MAX> path = {};
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  std::string folder(path.data(), length > 0 ? static_cast<size_t>(length) : 0);
  folder.resize(folder.rfind('/') + 1);
  return folder + name;
}

void Describe(po::options_description_easy_init options) {
  options("networks", po::value<std::string>()->value_name("FOLDER"),
          "D2: layers of networks; by default the folder beside the program")  //
      ("dir", po::value<std::string>()->value_name("FOLDER"),
       "D11: the folder for databases, which are removed; by default that for temporary files")  //
      ("python", po::value<std::string>()->default_value("python3")->value_name("PROGRAM"),
       "D11: the Python that has PyTorch")  //
      ("rival", po::value<std::string>()->value_name("SCRIPT"),
       "D11: torch_feed.py; by default the one beside the program");
}

std::string OptionOr(const Invocation& invocation, const char* name, const std::string& other) {
  return invocation.has(name) ? invocation.option<std::string>(name) : other;
}

std::vector<figures::FigurePart> Plan(const figures::FigureSettings& settings,
                                      const Invocation& invocation) {
  const figures::FeedTools feed_tools = {
      .folder = OptionOr(invocation, "dir", std::filesystem::temp_directory_path().string()),
      .python = invocation.option<std::string>("python"),
      .script = OptionOr(invocation, "rival", BesideProgram("torch_feed.py"))};
  return {
      figures::ReduceFigures(settings),
      figures::PackFigures(settings, OptionOr(invocation, "networks", BesideProgram("networks"))),
      figures::PointerFigures(), figures::CallFigures(settings), figures::FeedFigures(feed_tools)};
}

}  // namespace

int main(int argc, char** argv) {
  return figures::RunFigures({.name = "lmdbio-device-figures",
                              .summary = kSummary,
                              .details = kDetails,
                              .plan = &Plan,
                              .describe = &Describe},
                             argc, argv);
}
