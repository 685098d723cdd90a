// The topology by hwloc. without_hwloc.cc is the replacement.
#include <hwloc.h>

#include <cerrno>
#include <memory>
#include <system_error>

#include <fmt/format.h>

#include "lmdbio/base/placement.h"

namespace lmdbio {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using TopologyHandle = std::unique_ptr<hwloc_topology, DestroyTopology>;

}  // namespace

Result<std::vector<HardwareThread>> ReadTopology() {
  const auto failed = [](std::string_view call) {
    return Fail(ErrorCode::kInternal,
                fmt::format("{} of hwloc failed: {}", call,
                            std::error_code(errno, std::generic_category()).message()),
                errno);
  };
  hwloc_topology_t made = nullptr;
  if (hwloc_topology_init(&made) != 0) return failed("hwloc_topology_init");
  const TopologyHandle topology(made);
  // This component would move the calling thread from core to core. The kernel says all that it
  // finds.
  hwloc_topology_set_components(made, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
  if (hwloc_topology_load(made) != 0) return failed("hwloc_topology_load");
  std::vector<HardwareThread> threads;
  const int count = hwloc_get_nbobjs_by_type(made, HWLOC_OBJ_PU);
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<unsigned>(i);
    const hwloc_obj* const thread = hwloc_get_obj_by_type(made, HWLOC_OBJ_PU, at);
    // Some virtual machines have hardware threads without cores.
    const hwloc_obj* core =
        hwloc_get_ancestor_obj_by_type(made, HWLOC_OBJ_CORE, const_cast<hwloc_obj_t>(thread));
    if (core == nullptr) core = thread;
    threads.push_back({static_cast<int>(thread->os_index), static_cast<int>(core->logical_index),
                       hwloc_bitmap_first(thread->nodeset)});
  }
  return threads;
}

}  // namespace lmdbio
