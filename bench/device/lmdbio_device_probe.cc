// lmdbio-device-probe: what a GPU, its driver and the memory can do, without MPI.
//
// The same as `lmdbio-bench device`, for machines that have a GPU and little else.
#include <array>
#include <string>

#include "bench/device/device_probe.h"

namespace {

std::string g_command_line;  // for the report

lmdbio::Status Probe(const lmdbio::tools::Invocation& invocation) {
  return lmdbio::probe::RunProbe(invocation, {.command_line = g_command_line});
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto code = lmdbio::probe::PlayPartIfAsked(argc, argv)) return *code;
  for (int i = 0; i < argc; ++i) g_command_line += (i > 0 ? " " : "") + std::string(argv[i]);
  const std::array commands = {
      lmdbio::tools::Command{"", "", lmdbio::probe::kProbeSummary, &lmdbio::probe::DescribeProbe,
                             &Probe, lmdbio::tools::Output::kText, lmdbio::probe::kProbeDetails}};
  return lmdbio::tools::RunTool("lmdbio-device-probe", lmdbio::probe::kProbeSummary, commands, argc,
                                argv);
}
