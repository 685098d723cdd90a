// Goal: HugePages prepares every region once, before its use, and goes on without huge pages if the
// system refuses them.
// Method: the kernel's account of mapped huge pages is the oracle where the kernel grants them. A
// stand-in for MADV_COLLAPSE counts its calls and refuses as told, so every refusal is tested on
// every kernel.
#include "lmdbio/ranks/shm/huge_pages.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "lmdbio/ranks/shm/anonymous_memory.h"
#include "lmdbio/ranks/shm/memory_file.h"
#include "tests/support/catch.h"

namespace lmdbio::ranks {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kPage = HugePages::kPageBytes;
constexpr auto kPatience = 10s;  // a condition that does not hold by then never will

// The stand-in for the kernel. Tests run one at a time.
struct Kernel {
  std::atomic<int> calls{0};
  std::atomic<int> answer{0};          // 0 or errno
  std::atomic<int> answers_until{-1};  // from this call on it grants; -1: never
  std::vector<std::atomic<int>> calls_of_region = std::vector<std::atomic<int>>(64);
  std::byte* memory = nullptr;
};
Kernel* kernel = nullptr;

int StandIn(std::byte* region) {
  ++kernel->calls_of_region[static_cast<size_t>(region - kernel->memory) / kPage];
  const int call = ++kernel->calls;
  const int until = kernel->answers_until;
  return until >= 0 && call > until ? 0 : kernel->answer.load();
}

// A memory file mapped by this process, with the states of its regions.
class PreparedFile {
 public:
  explicit PreparedFile(uint64_t size_bytes) : states_(HugePages::StateBytes(size_bytes)) {
    const UniqueFd file = std::move(*CreateMemoryFile(size_bytes));
    mapping_ = std::move(*SharedMapping::Map(file, size_bytes));
    kernel_.memory = mapping_->bytes().data();
    kernel = &kernel_;
  }
  ~PreparedFile() { kernel = nullptr; }

  MutableBytes memory() const { return mapping_->bytes(); }
  MutableBytes states() { return states_; }
  Kernel& kernel_calls() { return kernel_; }

  HugePageOptions options() const { return {.collapse = &StandIn, .kernel_huge_bytes = kPage}; }

 private:
  std::unique_ptr<SharedMapping> mapping_;
  std::vector<std::byte> states_;
  Kernel kernel_;
};

template <typename Condition>
bool ComesTrue(Condition condition) {
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > give_up) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

// Whether this kernel makes huge pages of `memory`; if not, the test has no oracle.
bool KernelGrants(MutableBytes memory) { return HugePages::Collapse(memory.data()) == 0; }

TEST_CASE("HugePages makes huge pages of a memory file and keeps its bytes", "[huge_pages]") {
  PreparedFile probe(kPage);
  if (!KernelGrants(probe.memory())) {
    WARN("skipped: this kernel has no huge pages for memory files");
    return;
  }
  PreparedFile fixture(8 * kPage + 4096);
  CHECK(MappedHugeBytes(fixture.memory()) == 0);
  fixture.memory()[kPage + 5] = std::byte{42};
  HugePages pages(fixture.memory(), fixture.states(), {});

  pages.Prepare({kPage, 3 * kPage});

  CHECK(MappedHugeBytes(fixture.memory()) == 3 * kPage);
  CHECK(pages.huge_bytes() == 3 * kPage);
  CHECK(fixture.memory()[kPage + 5] == std::byte{42});
  CHECK_FALSE(pages.TakeNote().has_value());
}

TEST_CASE("HugePages makes huge pages of private memory", "[huge_pages]") {
  const auto memory = std::move(*AllocateAnonymous(4 * kPage));
  std::vector<std::byte> states(HugePages::StateBytes(4 * kPage));
  HugePages pages(memory->bytes(), states, {});
  pages.Prepare({0, 4 * kPage});
  if (pages.TakeNote()) {
    WARN("skipped: this kernel has no huge pages for private memory");
    return;
  }
  CHECK(MappedHugeBytes(memory->bytes()) == 4 * kPage);
}

TEST_CASE("HugePages prepares the regions that a range overlaps", "[huge_pages]") {
  PreparedFile fixture(4 * kPage + 100);
  HugePages pages(fixture.memory(), fixture.states(), fixture.options());
  const auto calls = [&](size_t region) {
    return fixture.kernel_calls().calls_of_region[region].load();
  };

  SECTION("a part of two regions") {
    pages.Prepare({kPage - 1, 2});
    CHECK(std::vector{calls(0), calls(1), calls(2), calls(3)} == std::vector{1, 1, 0, 0});
  }
  SECTION("an empty range") {
    pages.Prepare({kPage, 0});
    CHECK(fixture.kernel_calls().calls == 0);
  }
  SECTION("the rest behind the last whole region") {
    pages.Prepare({0, 4 * kPage + 100});
    pages.Prepare({4 * kPage + 1, 5});
    CHECK(std::vector{calls(0), calls(1), calls(2), calls(3)} == std::vector{1, 1, 1, 1});
    CHECK(fixture.kernel_calls().calls == 4);
  }
  SECTION("regions that are prepared") {
    pages.Prepare({0, 4 * kPage});
    pages.Prepare({0, 4 * kPage});
    CHECK(fixture.kernel_calls().calls == 4);
  }
  SECTION("a range beyond the memory") {
    pages.Prepare({1000 * kPage, kPage});
    CHECK(fixture.kernel_calls().calls == 0);
  }
}

TEST_CASE("HugePages prepares ahead of the range, up to its limits", "[huge_pages]") {
  PreparedFile fixture(32 * kPage);
  HugePageOptions options = fixture.options();
  options.ahead_bytes = 4 * kPage;
  options.ahead_end = 10 * kPage;
  HugePages pages(fixture.memory(), fixture.states(), options);

  pages.PrepareAhead({0, kPage});
  CHECK(ComesTrue([&] { return pages.huge_bytes() == 5 * kPage; }));
  pages.PrepareAhead({7 * kPage, kPage});
  CHECK(ComesTrue([&] { return pages.huge_bytes() == 8 * kPage; }));
  // A wanted range is prepared beyond the end, too.
  pages.PrepareAhead({20 * kPage, 2 * kPage});
  CHECK(ComesTrue([&] { return pages.huge_bytes() == 10 * kPage; }));
  std::this_thread::sleep_for(20ms);
  CHECK(fixture.kernel_calls().calls == 10);
}

TEST_CASE("Processes that share the states prepare each region once", "[huge_pages]") {
  PreparedFile fixture(64 * kPage);
  HugePageOptions options = fixture.options();
  options.ahead_bytes = 64 * kPage;
  HugePages one(fixture.memory(), fixture.states(), options);
  HugePages other(fixture.memory(), fixture.states(), options);

  one.PrepareAhead({0, kPage});
  other.PrepareAhead({32 * kPage, kPage});
  one.Prepare({0, 64 * kPage});

  CHECK(one.huge_bytes() == 64 * kPage);
  CHECK(other.huge_bytes() == 64 * kPage);
  CHECK(fixture.kernel_calls().calls == 64);
}

TEST_CASE("A refusal in one process keeps the others from its regions", "[huge_pages]") {
  PreparedFile fixture(8 * kPage);
  fixture.kernel_calls().answer = EINVAL;
  HugePages one(fixture.memory(), fixture.states(), fixture.options());
  one.Prepare({0, 4 * kPage});
  fixture.kernel_calls().answer = 0;
  HugePages other(fixture.memory(), fixture.states(), fixture.options());
  other.Prepare({0, 8 * kPage});
  CHECK(other.huge_bytes() == 4 * kPage);
  CHECK(fixture.kernel_calls().calls == 5);
}

TEST_CASE("A process that was killed while it prepared a region does not stop others",
          "[huge_pages]") {
  PreparedFile fixture(4 * kPage);
  fixture.states()[1] = static_cast<std::byte>(HugePages::Region::kInProgress);
  HugePages pages(fixture.memory(), fixture.states(), fixture.options());

  CHECK_FALSE(pages.IsPrepared({0, 4 * kPage}));
  pages.Prepare({0, 4 * kPage});

  CHECK(pages.huge_bytes() == 3 * kPage);
  CHECK(pages.IsPrepared({0, 4 * kPage}));  // so the next call does not wait for it again
}

TEST_CASE("Prepare works ahead while another process prepares its region", "[huge_pages]") {
  PreparedFile fixture(8 * kPage);
  fixture.states()[1] = static_cast<std::byte>(HugePages::Region::kInProgress);
  HugePages pages(fixture.memory(), fixture.states(), fixture.options());

  pages.Prepare({0, 2 * kPage}, 3 * kPage);

  CHECK(pages.IsPrepared({2 * kPage, 3 * kPage}));
  CHECK_FALSE(pages.IsPrepared({5 * kPage, 1}));
}

TEST_CASE("IsPrepared is true for the regions that Prepare has handled", "[huge_pages]") {
  PreparedFile fixture(4 * kPage + 100);
  HugePages pages(fixture.memory(), fixture.states(), fixture.options());

  pages.Prepare({kPage, 1});
  CHECK(pages.IsPrepared({kPage, kPage}));
  CHECK_FALSE(pages.IsPrepared({kPage - 1, 2}));
  CHECK_FALSE(pages.IsPrepared({kPage, kPage + 1}));
  CHECK(pages.IsPrepared({4 * kPage, 100}));  // the rest behind the last region
  fixture.kernel_calls().answer = EINVAL;
  pages.Prepare({3 * kPage, 1});
  CHECK(pages.IsPrepared({3 * kPage, 1}));  // with small pages
}

// As on aarch64 with small pages of 64 KiB: MADV_COLLAPSE of a region then does nothing, and
// reports success for a region that begins at a multiple of 512 MiB.
TEST_CASE("HugePages asks for none if those of the kernel are larger", "[huge_pages]") {
  PreparedFile fixture(4 * kPage);
  HugePageOptions options = fixture.options();
  options.kernel_huge_bytes = 512 << 20;
  HugePages pages(fixture.memory(), fixture.states(), options);
  pages.Prepare({0, 4 * kPage});
  pages.PrepareAhead({0, 4 * kPage});
  CHECK(fixture.kernel_calls().calls == 0);
  CHECK(pages.huge_bytes() == 0);
  CHECK(pages.IsPrepared({0, 4 * kPage}));
  CHECK_THAT(pages.TakeNote().value(), ContainsSubstring("a huge page of this kernel has 512 MiB"));
}

TEST_CASE("HugePages goes on with small pages after a refusal", "[huge_pages]") {
  PreparedFile fixture(16 * kPage);
  Kernel& calls = fixture.kernel_calls();
  HugePages pages(fixture.memory(), fixture.states(), fixture.options());

  SECTION("an old kernel, or one that denies: no second try") {
    calls.answer = EINVAL;
    pages.Prepare({0, 16 * kPage});
    CHECK(calls.calls == 1);
    CHECK_THAT(pages.TakeNote().value(), ContainsSubstring("small pages"));
  }
  SECTION("no huge page is free: a few tries") {
    calls.answer = ENOMEM;
    pages.Prepare({0, 16 * kPage});
    pages.PrepareAhead({0, 16 * kPage});
    CHECK(calls.calls == 4);
    CHECK_THAT(pages.TakeNote().value(), ContainsSubstring("no huge page is free"));
  }
  SECTION("a memory limit for a moment: the later regions are huge") {
    calls.answer = EBUSY;
    calls.answers_until = 3;
    pages.Prepare({0, 16 * kPage});
    CHECK(calls.calls == 16);
    CHECK(pages.huge_bytes() == 13 * kPage);
    CHECK_THAT(pages.TakeNote().value(), ContainsSubstring("memory limit"));
  }
  SECTION("another reason is told in words of the system") {
    calls.answer = EPERM;
    pages.Prepare({0, kPage});
    CHECK_THAT(pages.TakeNote().value(),
               ContainsSubstring("MADV_COLLAPSE: Operation not permitted"));
  }
  CHECK_FALSE(pages.TakeNote().has_value());  // one note
}

TEST_CASE("Memory that is not aligned keeps small pages, with a note", "[huge_pages]") {
  PreparedFile fixture(4 * kPage);
  HugePages pages(fixture.memory().subspan(4096), fixture.states(), fixture.options());

  pages.Prepare({0, 3 * kPage});
  pages.PrepareAhead({0, 3 * kPage});

  CHECK(fixture.kernel_calls().calls == 0);
  CHECK(pages.huge_bytes() == 0);
  CHECK_THAT(pages.TakeNote().value(), ContainsSubstring("multiple of 2 MiB"));
}

TEST_CASE("HugePages ends while its thread has much to do", "[huge_pages]") {
  PreparedFile fixture(64 * kPage);
  HugePageOptions options = fixture.options();
  options.ahead_bytes = 64 * kPage;
  options.collapse = [](std::byte* region) {
    std::this_thread::sleep_for(1ms);
    return StandIn(region);
  };
  {
    HugePages pages(fixture.memory(), fixture.states(), options);
    pages.PrepareAhead({0, kPage});
    REQUIRE(ComesTrue([&] { return fixture.kernel_calls().calls > 0; }));
  }
  CHECK(fixture.kernel_calls().calls < 64);
}

}  // namespace
}  // namespace lmdbio::ranks
