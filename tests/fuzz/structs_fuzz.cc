// tests/fuzz/structs_fuzz.cc - structs of C callers, of any version and with any numbers.
//
// Input: byte 0 chooses the struct. Its size, its numbers and its texts are made from the rest.
// Pointers are NULL or point to what the header of the C interface asks for: the library cannot
// know a wrong pointer.
// Oracle: the sanitizers, because the memory of a struct ends where its size says; a struct is
// refused with one line, or its options have text and its view is a valid one.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "lmdbio/api/c/c_options.h"
#include "lmdbio/api/c/c_sync_options.h"
#include "lmdbio/load/plan/option_text.h"
#include "tests/fuzz/decode_check.h"
#include "tests/fuzz/input_parts.h"

namespace lmdbio::test {
namespace {

// Texts and arrays that live as long as the input is tried.
class CallerMemory {
 public:
  explicit CallerMemory(InputParts& in) : in_(in) {}

  InputParts& in() { return in_; }

  // NULL, a name that some option has, or any text.
  const char* Text() {
    constexpr const char* kNames[] = {"auto",  "scan",    "lmm",   "uring",
                                      "mixed", "topo",    "own",   "caramel",
                                      "ring",  "arrival", "event", "image-{:09d}"};
    const uint64_t choice = in_.TakeBelow(4);
    if (choice == 0) return nullptr;
    if (choice == 1) return kNames[in_.TakeBelow(std::size(kNames))];
    return texts_.emplace_back(in_.TakeText()).c_str();
  }

  // count  [at most 3]
  const lmdbio_key* Keys(size_t count) {
    auto& keys = keys_.emplace_back(count);
    for (lmdbio_key& key : keys) {
      const std::string& text = texts_.emplace_back(in_.TakeText());
      key = {in_.TakeBelow(8) == 0 ? nullptr : text.data(), text.size()};
    }
    return keys.data();
  }

  // Any numbers.
  template <typename T>
  const T* Numbers(size_t count) {
    auto& bytes = blocks_.emplace_back(count * sizeof(T));
    for (std::byte& byte : bytes) byte = in_.Take<std::byte>();
    return reinterpret_cast<const T*>(bytes.data());
  }
  const void* Copy(const void* from, size_t size) {
    auto& bytes = blocks_.emplace_back(size);
    if (size > 0) std::memcpy(bytes.data(), from, size);
    return bytes.data();
  }

 private:
  InputParts& in_;
  std::deque<std::string> texts_;
  std::deque<std::vector<lmdbio_key>> keys_;
  std::deque<std::vector<std::byte>> blocks_;
};

// A struct of any version in memory of its own.
template <typename Struct>
class GivenStruct {
 public:
  // whole  the struct of this version, of which the caller's has more or fewer bytes
  GivenStruct(const Struct& whole, std::span<const size_t> earlier_bytes, InputParts& in) {
    size_t claimed = sizeof whole;
    switch (in.TakeBelow(8)) {
      case 0:
        claimed = in.Take<uint16_t>();
        break;
      case 1:
        claimed = in.Take<uint64_t>();
        break;
      case 2:
        claimed += in.Take<uint8_t>();
        break;
      case 3:
        if (!earlier_bytes.empty()) claimed = earlier_bytes[in.TakeBelow(earlier_bytes.size())];
        break;
      default:
        break;
    }
    // A struct that is refused for its size is not read behind it.
    constexpr size_t kMost = 1 << 16;
    const size_t own_bytes = std::max(claimed <= kMost ? claimed : sizeof claimed, sizeof claimed);
    memory_ = std::make_unique<std::byte[]>(own_bytes);
    std::memcpy(memory_.get(), &whole, std::min(own_bytes, sizeof whole));
    std::memcpy(memory_.get(), &claimed, sizeof claimed);
    if (own_bytes > sizeof whole && in.TakeBelow(2) == 0) memory_[own_bytes - 1] = std::byte{1};
  }

  const Struct* get() const { return reinterpret_cast<const Struct*>(memory_.get()); }

 private:
  std::unique_ptr<std::byte[]> memory_;
};

// Numbers in all fields of `to`, and the pointers among them taken away by the caller.
template <typename Struct>
Struct AnyNumbers(InputParts& in) {
  Struct any = {};
  auto* const bytes = reinterpret_cast<std::byte*>(&any);
  // Most fields stay 0, which is their default.
  for (uint64_t i = in.TakeBelow(12); i > 0; --i) {
    const size_t at = in.Take<uint16_t>() % sizeof any;
    bytes[at] = in.Take<std::byte>();
  }
  return any;
}

lmdbio_view_field FieldFrom(CallerMemory& memory) {
  lmdbio_view_field field = {};
  field.name = memory.Text();
  field.key_template = memory.Text();
  field.path = memory.Text();
  field.database_name = memory.Text();
  return field;
}

// Counts are true, or the pointer is NULL.
lmdbio_view ViewFrom(CallerMemory& memory, std::deque<GivenStruct<lmdbio_view_field>>& fields) {
  InputParts& in = memory.in();
  auto view = AnyNumbers<lmdbio_view>(in);
  view.exclude_count = in.TakeBelow(3);
  view.exclude = in.TakeBelow(8) == 0 ? nullptr : memory.Keys(view.exclude_count);
  view.field_count = in.TakeBelow(4);
  std::vector<const lmdbio_view_field*> list;
  for (size_t i = 0; i < view.field_count; ++i) {
    const lmdbio_view_field field = FieldFrom(memory);
    fields.emplace_back(field, std::span<const size_t>(), in);
    list.push_back(in.TakeBelow(16) == 1 ? nullptr : fields.back().get());
  }
  view.fields = static_cast<const lmdbio_view_field* const*>(
      memory.Copy(list.data(), list.size() * sizeof list[0]));
  if (in.TakeBelow(8) == 0) view.fields = nullptr;
  view.count_key = memory.Text();
  view.subset_count = in.TakeBelow(3);
  view.subset = in.TakeBelow(2) == 0 ? nullptr : memory.Numbers<uint64_t>(view.subset_count);
  view.subset_keys = in.TakeBelow(2) == 0 ? nullptr : memory.Keys(view.subset_count);
  return view;
}

void TakeFiles(CallerMemory& memory, const std::string& database_name) {
  lmdbio_files files = {};
  files.count = memory.in().TakeBelow(4);
  std::vector<const char*> paths(files.count);
  for (const char*& path : paths) path = memory.Text();
  files.paths = static_cast<const char* const*>(
      memory.Copy(paths.data(), paths.size() * sizeof(const char*)));
  if (memory.in().TakeBelow(8) == 0) files.paths = nullptr;
  const GivenStruct<lmdbio_files> given(files, {}, memory.in());
  const auto list = api::ListOf(given.get(), database_name);
  if (!list) return CheckMessage(list.error());
  LMDBIO_CHECK(list->size() <= files.count);
}

void TakeLoaderOptions(CallerMemory memory) {
  InputParts& in = memory.in();
  std::deque<GivenStruct<lmdbio_view_field>> fields;
  const GivenStruct<lmdbio_view> view(ViewFrom(memory, fields), {}, in);
  auto options = AnyNumbers<lmdbio_options>(in);
  options.database_name = memory.Text();
  options.state = memory.Text();
  options.strategy = memory.Text();
  options.engine = memory.Text();
  options.placement = memory.Text();
  options.cache = memory.Text();
  options.layout_cache = memory.Text();
  options.log = nullptr;
  options.log_context = nullptr;
  options.view = in.TakeBelow(4) == 0 ? nullptr : view.get();
  constexpr size_t kEarlier[] = {offsetof(lmdbio_options, placement),
                                 offsetof(lmdbio_options, shuffle)};
  const GivenStruct<lmdbio_options> given(options, kEarlier, in);
  const auto complete = api::CompleteOptions(given.get());
  if (!complete) return CheckMessage(complete.error());
  const auto loader = api::LoaderOptionsOf(*complete);
  const auto reader = api::RecordReaderOptionsOf(*complete);
  LMDBIO_CHECK(loader.has_value() == reader.has_value());
  if (loader) {
    LMDBIO_CHECK(load::OptionsJson(*loader).find('\n') == std::string::npos);
    TakeFiles(memory, loader->database_name);
  } else {
    CheckMessage(loader.error());
  }
  const auto spec = api::ViewSpecOf(*complete);
  if (!spec) return CheckMessage(spec.error());
  if (*spec != nullptr) LMDBIO_CHECK(load::CheckView(**spec).has_value());
}

void TakeSyncOptions(CallerMemory memory) {
  auto options = AnyNumbers<lmdbio_sync_options>(memory.in());
  for (const char** text :
       {&options.coordinator, &options.pacing, &options.collective, &options.transport,
        &options.timeline_path, &options.placement, &options.group_by, &options.device_collective,
        &options.device_order, &options.order}) {
    *text = memory.Text();
  }
  options.log = nullptr;
  options.log_context = nullptr;
  constexpr size_t kEarlier[] = {offsetof(lmdbio_sync_options, tree_arity)};
  const GivenStruct<lmdbio_sync_options> given(options, kEarlier, memory.in());
  const auto choice = api::SyncChoiceOf(given.get());
  if (!choice) return CheckMessage(choice.error());
  LMDBIO_CHECK(choice->Json().find('\n') == std::string::npos);
  LMDBIO_CHECK(!choice->TransportWords().empty());
}

void TakeRequest(CallerMemory memory) {
  InputParts& in = memory.in();
  auto request = AnyNumbers<lmdbio_sync_request>(in);
  const int rank_count = static_cast<int>(1 + in.TakeBelow(5));
  request.name = memory.Text();
  if (request.dimension_count <= 255) request.dimension_count = in.TakeBelow(5);
  request.shape = in.TakeBelow(3) == 0
                      ? nullptr
                      : memory.Numbers<int64_t>(std::min<size_t>(request.dimension_count, 8));
  request.splits =
      in.TakeBelow(3) == 0 ? nullptr : memory.Numbers<int64_t>(static_cast<size_t>(rank_count));
  request.input = memory.Text();
  request.output = nullptr;
  request.stream = nullptr;
  request.callback = nullptr;
  request.callback_context = nullptr;
  constexpr size_t kEarlier[] = {offsetof(lmdbio_sync_request, memory)};
  const GivenStruct<lmdbio_sync_request> given(request, kEarlier, in);
  const auto ask = [](const void*) -> Result<sync::MemoryKind> { return sync::MemoryKind::kHost; };
  const auto submission = api::SubmissionOf(given.get(), rank_count, ask);
  if (!submission) return CheckMessage(submission.error());
  const sync::Request& made = submission->request;
  LMDBIO_CHECK(made.shape.size() <= 255 && made.splits.size() <= static_cast<size_t>(rank_count));
}

}  // namespace
}  // namespace lmdbio::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lmdbio;
  if (size == 0) return 0;
  test::InputParts rest(std::as_bytes(std::span(data, size)).subspan(1));
  switch (data[0] % 3) {
    case 0:
      test::TakeLoaderOptions(test::CallerMemory(rest));
      break;
    case 1:
      test::TakeSyncOptions(test::CallerMemory(rest));
      break;
    default:
      test::TakeRequest(test::CallerMemory(rest));
  }
  return 0;
}
