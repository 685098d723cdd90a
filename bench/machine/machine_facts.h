// bench/machine/machine_facts.h - the machine and the commit that figures depend on.
#ifndef LMDBIO_BENCH_MACHINE_MACHINE_FACTS_H_
#define LMDBIO_BENCH_MACHINE_MACHINE_FACTS_H_

#include <nlohmann/json.hpp>

namespace lmdbio::tools {

// Describes the setting of all runs: processor, cores, kernel, commit.
nlohmann::ordered_json DescribeMachine();

}  // namespace lmdbio::tools
#endif  // LMDBIO_BENCH_MACHINE_MACHINE_FACTS_H_
