// tests/ranks/group/group_checks.h - the checks that every implementation of Group must pass.
//
// Threads that play ranks cannot use Catch2's macros, so a check collects complaints and its caller
// asserts that there are none. The expected values are computed from rank and size alone.
#ifndef LMDBIO_TESTS_RANKS_GROUP_GROUP_CHECKS_H_
#define LMDBIO_TESTS_RANKS_GROUP_GROUP_CHECKS_H_

#include <span>
#include <string>
#include <vector>

#include "lmdbio/ranks/group/group.h"

namespace lmdbio::test {

class Complaints {
 public:
  void Expect(bool holds, const std::string& what) {
    if (!holds) list_.push_back(what);
  }
  void Expect(const Status& status, const std::string& what) {
    if (!status) list_.push_back(what + ": " + status.error().message());
  }
  const std::vector<std::string>& list() const { return list_; }

 private:
  std::vector<std::string> list_;
};

// Collective over the group.
struct GroupCheck {
  const char* name;
  void (*run)(ranks::Group& group, Complaints& complaints);
};

std::span<const GroupCheck> GroupChecks();

// A value for patterns that differs between most (rank, index) pairs.
std::byte PatternByte(int rank, size_t index);

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_RANKS_GROUP_GROUP_CHECKS_H_
