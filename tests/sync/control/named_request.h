// tests/sync/control/named_request.h - requests that differ in their names alone.
#ifndef LMDBIO_TESTS_SYNC_CONTROL_NAMED_REQUEST_H_
#define LMDBIO_TESTS_SYNC_CONTROL_NAMED_REQUEST_H_

#include <string>
#include <utility>

#include "lmdbio/sync/request/request.h"

namespace lmdbio::test {

// Of 8 elements.
inline sync::Request Named(std::string name) {
  sync::Request request;
  request.name = std::move(name);
  request.shape = {8};
  return request;
}

}  // namespace lmdbio::test

#endif  // LMDBIO_TESTS_SYNC_CONTROL_NAMED_REQUEST_H_
