#include "tests/emulated_gpu/emulated_machine.h"

namespace lmdbio::test {

void EmulatedMachine::Lose(int ordinal, device::DriverCode code) {
  EmulatedContext& context = contexts[static_cast<size_t>(ordinal)];
  if (context.lost == device::driver_code::kSuccess) context.lost = code;
  queues.DropWork(ordinal);
}

void EmulatedMachine::Retain(int ordinal) { ++contexts[static_cast<size_t>(ordinal)].retained; }

bool EmulatedMachine::Release(int ordinal) {
  EmulatedContext& context = contexts[static_cast<size_t>(ordinal)];
  if (context.retained == 0) return false;
  if (--context.retained > 0) return true;
  while (queues.Step()) {
  }
  left_behind_ += tables.DropAll(ordinal) + queues.DropAll(ordinal);
  left_behind_ +=
      std::erase_if(events, [&](const auto& entry) { return entry.second.ordinal == ordinal; });
  left_behind_ += std::erase_if(modules.loaded,
                                [&](const auto& entry) { return entry.second.ordinal == ordinal; });
  queues.Open(WorkQueues::DefaultOf(ordinal), ordinal);
  return true;
}

EmulatedObjects EmulatedMachine::Objects() const {
  EmulatedObjects objects;
  tables.Count(objects);
  objects.streams = queues.OpenCount();
  objects.events = events.size();
  objects.modules = modules.loaded.size();
  for (const EmulatedContext& context : contexts) objects.contexts += context.retained;
  objects.left_behind = left_behind_;
  return objects;
}

}  // namespace lmdbio::test
