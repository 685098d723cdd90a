#include "bench/device/probe_trials.h"

namespace lmdbio::probe {

const std::vector<Trial>& AllTrials() {
  static const std::vector<Trial> kTrials = [] {
    std::vector<Trial> all;
    AddFacts(all);
    AddSharing(all);
    AddMarks(all);
    AddKilled(all);
    AddTurns(all);
    AddCopies(all);
    AddGather(all);
    AddPinning(all);
    AddCalls(all);
    return all;
  }();
  return kTrials;
}

const std::vector<QuestionTitle>& AllQuestions() {
  static const std::vector<QuestionTitle> kQuestions = {
      {"Q1", "memory and events of another process"},
      {"Q2", "marks: 64-bit words in registered shared memory"},
      {"Q3", "a process is killed: does the stream of the survivor drain?"},
      {"Q4", "turns between two streams"},
      {"Q5", "copies"},
      {"Q6", "records out of pinned memory to the device"},
      {"Q7", "registration of host memory"},
      {"Q8", "single calls"},
      {"Q9", "rivals: two ranks on this GPU, one AllReduce"},
  };
  return kQuestions;
}

std::vector<std::string> RivalRows() {
  std::vector<std::string> rows;
  for (const char* const rival :
       {"Gloo on CUDA tensors", "PyTorch symmetric memory", "NCCL with host ids"}) {
    for (const char* const size : {"8 B", "1 MiB", "64 MiB"}) {
      rows.push_back(std::string(rival) + ", " + size);
    }
  }
  return rows;
}

}  // namespace lmdbio::probe
