#include "lmdbio/base/placement.h"

namespace lmdbio {

Result<std::vector<HardwareThread>> ReadTopology() {
  return Fail(ErrorCode::kUnsupported,
              "this lmdbio was built without hwloc: build it with -DLMDBIO_WITH_HWLOC=ON");
}

}  // namespace lmdbio
