#include "lmdbio/device/driver_table.h"

#include <string>
#include <vector>

#include "lmdbio/device/device.h"
#include "tests/device/emulated_device.h"
#include "tests/support/catch.h"
#include "tests/support/check_in_child.h"

namespace lmdbio::device {
namespace {

using test::Control;
using test::EmulatedGpu;
using test::Good;
using test::kDriver;

Error ErrorOfLoading(const char* library) {
  Result<DriverTable> loaded = LoadDriver(library);
  if (loaded) throw std::runtime_error("the driver was loaded");
  return std::move(loaded).error();
}

std::vector<std::string> FunctionsOf(FunctionNeed wanted) {
  std::vector<std::string> names;
  const DriverTable table;
  ForEachFunction(table, [&](const char* name, FunctionNeed need, auto) {
    if (need == wanted) names.emplace_back(name);
  });
  return names;
}

TEST_CASE("A system without a driver is kNotFound", "[driver_table]") {
  const Error error = ErrorOfLoading("libno-such-gpu-driver.so.1");
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK_THAT(error.message(), ContainsSubstring("no GPU driver"));
  CHECK_THAT(error.message(), ContainsSubstring("libno-such-gpu-driver.so.1"));
}

TEST_CASE("A driver without the lookup function is too old", "[driver_table]") {
  const Error error = ErrorOfLoading(LMDBIO_TEST_OLD_DRIVER);
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK_THAT(error.message(), ContainsSubstring("cuGetProcAddress_v2"));
  CHECK_THAT(error.message(), ContainsSubstring("525"));
}

TEST_CASE("A driver for an older CUDA is kUnsupported with both versions", "[driver_table]") {
  Control().Reset(1);
  Control().SetVersion(11080);
  const Error error = ErrorOfLoading(kDriver);
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK_THAT(error.message(), ContainsSubstring("CUDA 11.8"));
  CHECK_THAT(error.message(), ContainsSubstring("CUDA 12.0 or later (driver 525 or later)"));

  Control().SetVersion(12000);
  CHECK(LoadDriver(kDriver));

  // This function came later than the others, and keeps its first interface.
  CHECK(Good(LoadDriver(kDriver)).MemcpyBatchAsync == nullptr);
  Control().SetVersion(12080);
  CHECK(Good(LoadDriver(kDriver)).MemcpyBatchAsync != nullptr);
}

TEST_CASE("A driver that does not tell its version is kUnsupported", "[driver_table]") {
  Control().Reset(1);
  Control().FailCall("cuDriverGetVersion", 1, 999);
  const Error error = ErrorOfLoading(kDriver);
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK_THAT(error.message(), ContainsSubstring("cuDriverGetVersion"));
}

TEST_CASE("Each required function that a driver lacks is named", "[driver_table]") {
  const std::vector<std::string> names = FunctionsOf(FunctionNeed::kRequired);
  REQUIRE(names.size() == 41);
  for (const std::string& name : names) {
    Control().Reset(1);
    Control().HideFunction(name.c_str());
    const Error error = ErrorOfLoading(kDriver);
    CHECK(error.code() == ErrorCode::kUnsupported);
    CHECK_THAT(error.message(), ContainsSubstring(name));
  }
}

TEST_CASE("All functions that a driver lacks are named at once", "[driver_table]") {
  Control().Reset(1);
  Control().HideFunction("cuMemAlloc");
  Control().HideFunction("cuEventQuery");
  CHECK_THAT(ErrorOfLoading(kDriver).message(),
             ContainsSubstring("lacks cuMemAlloc, cuEventQuery"));
}

TEST_CASE("A driver may lack each optional function", "[driver_table]") {
  const std::vector<std::string> names = FunctionsOf(FunctionNeed::kOptional);
  REQUIRE(names.size() == 11);
  for (const std::string& name : names) {
    Control().Reset(1);
    Control().HideFunction(name.c_str());
    const DriverTable table = Good(LoadDriver(kDriver));
    size_t missing = 0;
    ForEachFunction(table, [&](const char* one, FunctionNeed, auto function) {
      if (function == nullptr) {
        CHECK(one == name);
        ++missing;
      }
    });
    CHECK(missing == 1);
    const DeviceFacts facts = Good(Device::Open(0, table))->facts();
    const bool is_memory = name.find("Mem") != std::string::npos && name.find("cuIpc") == 0;
    const bool is_event = name.find("Event") != std::string::npos;
    CHECK(facts.can_share_memory == !is_memory);
    CHECK(facts.can_share_events == !is_event);
    const bool is_mark = name.find("cuStream") == 0;
    CHECK(facts.can_await_marks == !is_mark);
  }
}

TEST_CASE("A driver without a GPU is kNotFound", "[driver_table]") {
  Control().Reset(1);
  Control().SetDeviceCount(0);
  const Error error = ErrorOfLoading(kDriver);
  CHECK(error.code() == ErrorCode::kNotFound);
  CHECK_THAT(error.message(), ContainsSubstring("CUDA_VISIBLE_DEVICES"));
}

TEST_CASE("A driver that cannot start gives its own name of the reason", "[driver_table]") {
  Control().Reset(1);
  Control().FailCall("cuInit", 1, driver_code::kNotInitialized);
  const Error error = ErrorOfLoading(kDriver);
  CHECK(error.code() == ErrorCode::kInternal);
  CHECK_THAT(error.message(), ContainsSubstring("cuInit: CUDA_ERROR_NOT_INITIALIZED"));
}

TEST_CASE("The system's driver is opened once, and not in a child", "[driver_table]") {
  Control().Reset(1);
  Control().FailCall("cuInit", 1, 999);
  CHECK(SystemDriver().error().code() == ErrorCode::kInternal);
  const DriverTable* const driver = Good(SystemDriver());
  CHECK(Good(SystemDriver()) == driver);
  CHECK(Control().CallCount("cuInit") == 2);
  test::CheckInChild([] {
    const Result<const DriverTable*> in_child = SystemDriver();
    CHILD_CHECK(!in_child && in_child.error().code() == ErrorCode::kUnsupported);
    CHILD_CHECK(in_child.error().message().find("fork()") != std::string::npos);
    return test::Verdict::kRight;
  });
}

}  // namespace
}  // namespace lmdbio::device
