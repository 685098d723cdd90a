// lmdbio/load/view/view_locator.h - locates samples by a locator of records.
//
// Source: docs/views.md "Flow".
#ifndef LMDBIO_LOAD_VIEW_VIEW_LOCATOR_H_
#define LMDBIO_LOAD_VIEW_VIEW_LOCATOR_H_

#include <memory>

#include "lmdbio/load/locate/locator.h"
#include "lmdbio/load/view/view.h"

namespace lmdbio::load {

// A locator whose numbers are those of samples: it passes field_count() records for each, one
// behind the other. Records with consecutive numbers stay one run.
// records  of all databases of `view`, in any order: by layouts or page walks
std::unique_ptr<Locator> MakeViewLocator(std::shared_ptr<const View> view,
                                         std::unique_ptr<Locator> records);

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_VIEW_VIEW_LOCATOR_H_
