// lmdbio/load/loader/idle_options.h - options that the caller gave and that change nothing.
//
// A job runs on with such an option, but the caller should know it. An option that asks for what
// the strategy does in any case needs no note.
//
// Source: docs/loader.md "Options without effect".
#ifndef LMDBIO_LOAD_LOADER_IDLE_OPTIONS_H_
#define LMDBIO_LOAD_LOADER_IDLE_OPTIONS_H_

#include <string>
#include <vector>

#include "lmdbio/load/loader/host_member.h"
#include "lmdbio/load/loader/open_decision.h"

namespace lmdbio::load {

// A note for each option with another value than the default that has no effect with the strategy
// and the decision.
std::vector<std::string> IdleOptionNotes(const LoaderOptions& options, const OpenDecision& decision,
                                         const HostMember& member);

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOADER_IDLE_OPTIONS_H_
