// lmdbio/load/view/view_locator.h - locates samples by a locator of records.
//
// Source: docs/views.md "Flow".
#ifndef LMDBIO_LOAD_VIEW_VIEW_LOCATOR_H_
#define LMDBIO_LOAD_VIEW_VIEW_LOCATOR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "lmdbio/load/locate/locator.h"
#include "lmdbio/load/view/view.h"

namespace lmdbio::load {

// The locations of the records of one database of a view.
struct ViewSourceLocator {
  uint64_t first_record = 0;         // the number of its first record in the view
  std::unique_ptr<Locator> records;  // in any order: by a layout or a page walk
};

// A locator whose numbers are those of samples: it passes field_count() records for each, one
// behind the other. Records with consecutive numbers stay one run.
// sources  [at least 1] of all databases of `view`, by first_record. All lie in one file
std::unique_ptr<Locator> MakeViewLocator(std::shared_ptr<const View> view,
                                         std::vector<ViewSourceLocator> sources);

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_VIEW_VIEW_LOCATOR_H_
