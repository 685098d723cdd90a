#include "lmdbio/api/c/shared_handle.h"

#include <vector>

namespace lmdbio::api {
namespace {

class AtThreadEnd {
 public:
  void Add(std::weak_ptr<ThreadResults> results) {
    std::erase_if(results_, [](const auto& earlier) { return earlier.expired(); });
    results_.push_back(std::move(results));
  }
  ~AtThreadEnd() {
    for (const std::weak_ptr<ThreadResults>& results : results_) {
      if (const auto object = results.lock()) object->ForgetThisThread();
    }
  }

 private:
  std::vector<std::weak_ptr<ThreadResults>> results_;
};

}  // namespace

void ForgetAtThreadEnd(std::weak_ptr<ThreadResults> results) {
  thread_local AtThreadEnd at_thread_end;
  at_thread_end.Add(std::move(results));
}

}  // namespace lmdbio::api
