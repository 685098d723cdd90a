// tests/emulated_gpu/call_faults.h - counts calls of the emulated driver, and makes some fail.
#ifndef LMDBIO_TESTS_EMULATED_GPU_CALL_FAULTS_H_
#define LMDBIO_TESTS_EMULATED_GPU_CALL_FAULTS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lmdbio/device/driver_table.h"

namespace lmdbio::test {

// Not for several threads at once.
class CallFaults {
 public:
  // The code with which this call fails; kSuccess if it does not.
  device::DriverCode Meet(const std::string& name) {
    ++counts_[name];
    device::DriverCode code = device::driver_code::kSuccess;
    std::erase_if(faults_, [&](Fault& fault) {
      if (fault.name != name || --fault.calls_left > 0) return false;
      code = fault.code;
      return true;
    });
    return code;
  }

  void Add(const char* name, uint64_t nth, device::DriverCode code) {
    faults_.push_back({name, nth, code});
  }
  void Hide(const char* name) { hidden_.insert(name); }
  bool IsHidden(const std::string& name) const { return hidden_.contains(name); }
  uint64_t left() const { return faults_.size(); }

  // All calls for null.
  uint64_t Count(const char* name) const {
    if (name != nullptr) {
      const auto found = counts_.find(name);
      return found != counts_.end() ? found->second : 0;
    }
    uint64_t sum = 0;
    for (const auto& [one, count] : counts_) sum += count;
    return sum;
  }

 private:
  struct Fault {
    std::string name;
    uint64_t calls_left;
    device::DriverCode code;
  };

  std::map<std::string, uint64_t> counts_;
  std::vector<Fault> faults_;
  std::set<std::string> hidden_;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_EMULATED_GPU_CALL_FAULTS_H_
