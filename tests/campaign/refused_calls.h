// tests/campaign/refused_calls.h - the system calls of lmdbio, which a container may refuse.
#ifndef LMDBIO_TESTS_CAMPAIGN_REFUSED_CALLS_H_
#define LMDBIO_TESTS_CAMPAIGN_REFUSED_CALLS_H_

#include <string>
#include <vector>

#include "tests/campaign/environment_list.h"
#include "tests/support/random.h"

namespace lmdbio::test {

// Each call, refused with each of EPERM, ENOSYS and EACCES; and an environment that ends a job
// whose calls are not in the list, so that the list stays complete.
std::vector<JobEnvironment> RefusedCallEnvironments();

// Two calls, each refused with one of these errors.
JobEnvironment TwoRefusedCalls(Random& random);

// The calls that are never refused, each with its reason, in lines.
std::string NeverRefusedCalls();

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_CAMPAIGN_REFUSED_CALLS_H_
