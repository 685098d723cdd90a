#include "tests/emulated_gpu/work_queues.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace lmdbio::test {

bool WorkQueues::Has(Id id) const {
  const auto found = streams_.find(id);
  return found != streams_.end() && !found->second.is_closed;
}

void WorkQueues::Close(Id id) {
  const auto found = streams_.find(id);
  found->second.is_closed = true;
  if (found->second.work.empty()) streams_.erase(found);
}

void WorkQueues::Enqueue(Id id, QueuedWork work) {
  auto& queue = streams_.at(id).work;
  queue.push_back(std::move(work));
  while (queue.size() > kLongQueue && Step()) {
  }
}

bool WorkQueues::HasCaptured() const {
  return std::any_of(streams_.begin(), streams_.end(),
                     [](const auto& entry) { return entry.second.is_captured; });
}

bool WorkQueues::Step() {
  std::vector<std::map<Id, Queue>::iterator> ready;
  for (auto stream = streams_.begin(); stream != streams_.end(); ++stream) {
    const auto& work = stream->second.work;
    if (work.empty() || (work.front().may_run && !work.front().may_run())) continue;
    ready.push_back(stream);
  }
  if (ready.empty()) return false;
  const auto drawn = ready[random_.Below(ready.size())];
  const QueuedWork work = std::move(drawn->second.work.front());
  drawn->second.work.pop_front();
  if (drawn->second.is_closed && drawn->second.work.empty()) streams_.erase(drawn);
  work.run();  // may drop streams
  return true;
}

void WorkQueues::Look() {
  const uint64_t steps = random_.Between(1, 2);
  for (uint64_t i = 0; i < steps && Step(); ++i) {
  }
}

size_t WorkQueues::QueuedCount() const {
  size_t count = 0;
  for (const auto& [id, queue] : streams_) count += queue.work.size();
  return count;
}

uint64_t WorkQueues::OpenCount() const {
  uint64_t count = 0;
  for (const auto& [id, queue] : streams_) count += id >= kFirstId && !queue.is_closed ? 1 : 0;
  return count;
}

uint64_t WorkQueues::DropAll(int ordinal) {
  uint64_t count = 0;
  std::erase_if(streams_, [&](const auto& entry) {
    if (entry.second.ordinal != ordinal) return false;
    count += entry.first >= kFirstId && !entry.second.is_closed ? 1 : 0;
    return true;
  });
  return count;
}

void WorkQueues::DropWork(int ordinal) {
  for (auto& [id, queue] : streams_) {
    if (queue.ordinal == ordinal) queue.work.clear();
  }
}

}  // namespace lmdbio::test
