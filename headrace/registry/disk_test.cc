// SPDX-License-Identifier: Apache-2.0
// Disks that are full or cannot be written, as small file systems in memory; needs root to mount.
#include <doctest/doctest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstring>

#include "headrace/registry/bundle.h"
#include "headrace/registry/test_models.h"

namespace headrace::registry {

namespace {

/// A tmpfs of `bytes`; `mounted()` is false where this process may not mount.
class SmallDisk {
 public:
  explicit SmallDisk(const std::string& options) {
    mounted_ = ::mount("headrace-test", folder_.path().c_str(), "tmpfs", 0, options.c_str()) == 0;
    if (!mounted_) {
      MESSAGE("skipped: cannot mount a tmpfs: ", std::strerror(errno));
    }
  }
  ~SmallDisk() {
    if (mounted_) {
      ::umount2(folder_.path().c_str(), MNT_DETACH);
    }
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  bool mounted() const { return mounted_; }
  const Path& path() const { return folder_.path(); }
  bool make_read_only() const {
    return ::mount("headrace-test", path().c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr) == 0;
  }

 private:
  TestFolder folder_;
  bool mounted_ = false;
};

std::vector<float> big_weights(int i) {
  std::vector<float> weights(10'000);
  for (size_t k = 0; k < weights.size(); ++k) {
    weights[k] = static_cast<float>(i) + static_cast<float>(k);
  }
  return weights;
}

void check_after_full(const Path& folder, int64_t added, const Path& ballast) {
  std::filesystem::remove(ballast);
  Registry registry = open_registry(folder);
  CHECK(must(registry.count({})) == added);
  must(registry.gc({.grace = base::Micros(0)}));
  CHECK(must(registry.verify({.deep = true})).findings.empty());
  CHECK(std::filesystem::is_empty(folder / "tmp"));
  must(registry.add(test_model("after", {1.0F}).version));
}

}  // namespace

TEST_CASE("a full disk is out_of_space with the path, and nothing is half there") {
  const SmallDisk disk("size=2m");
  if (!disk.mounted()) {
    return;
  }
  const Path folder = disk.path() / "r";
  const Path ballast = disk.path() / "ballast";
  must(base::replace_file(ballast, std::string(200'000, 'x')));
  Registry registry = open_registry(folder);
  int64_t added = 0;
  for (;; ++added) {
    REQUIRE(added < 100);
    const auto result = registry.add(test_model("m", big_weights(static_cast<int>(added))).version);
    if (!result.ok()) {
      CHECK(result.error().code() == Errc::out_of_space);
      CHECK(result.error().message().find(folder.string()) != std::string::npos);
      break;
    }
  }
  CHECK(added > 5);
  // Rows need space too: small ones until the database cannot grow.
  for (int i = 0;; ++i) {
    REQUIRE(i < 100'000);
    NewVersion version;
    version.name = "row";
    version.kind = "test";
    version.params = {{"text", std::string(4000, 'x')}};
    const auto result = registry.add(version);
    if (!result.ok()) {
      CHECK(result.error().code() == Errc::out_of_space);
      break;
    }
    ++added;
  }
  check_after_full(folder, added, ballast);
}

TEST_CASE("a disk that fills while a bundle is written loses no item that was flushed") {
  const SmallDisk disk("size=2m");
  if (!disk.mounted()) {
    return;
  }
  const Path folder = disk.path() / "r";
  const Path ballast = disk.path() / "ballast";
  must(base::replace_file(ballast, std::string(300'000, 'x')));
  int64_t flushed = 0;
  {
    Registry registry = open_registry(folder);
    BundleOptions options;
    options.key = "k";
    options.kind = "deepar";
    options.parameters = {{"w", {10'000}}};
    auto writer = must(BundleWriter::make(&registry, options));
    for (int i = 0;; ++i) {
      REQUIRE(i < 100);
      const std::vector<float> weights = big_weights(i);
      ItemRecord item;
      item.key = std::to_string(i);
      item.name = "m/" + item.key;
      item.weights = weights;
      const auto appended = writer.append(item);
      const auto done = appended.ok() ? writer.flush() : Result<void>(appended.error());
      if (!done.ok()) {
        CHECK(done.error().code() == Errc::out_of_space);
        break;
      }
      ++flushed;
    }
  }
  CHECK(flushed > 5);
  std::filesystem::remove(ballast);
  {
    Registry registry = open_registry(folder);
    const SealReport report = must(seal_orphans(&registry, base::Micros(0)));
    CHECK(report.items == flushed);
  }
  check_after_full(folder, flushed, ballast);
}

TEST_CASE("a registry on a read-only disk is read, and refuses changes with the reason") {
  const SmallDisk disk("size=4m");
  if (!disk.mounted()) {
    return;
  }
  const Path folder = disk.path() / "r%20?x";
  must(open_registry(folder).add(test_model("m", {1.0F}).version));
  must(open_registry(folder).check_writable());
  CHECK(std::filesystem::is_empty(folder / "tmp"));
  REQUIRE(disk.make_read_only());
  const Registry registry = open_registry(folder, {.read_only = true});
  must(registry.load(must(registry.find("m"))));
  CHECK(must(registry.list({})).versions.size() == 1);
  Registry writable = open_registry(folder);
  const auto refused = writable.add(test_model("m", {2.0F}).version);
  CHECK(code_of(refused) == Errc::io);
  CHECK(refused.error().message().find("Read-only file system") != std::string::npos);
  CHECK(code_of(writable.check_writable()) == Errc::io);
  CHECK(code_of(registry.check_writable()) == Errc::invalid_argument);
  CHECK(code_of(Registry::open(disk.path() / "new")) == Errc::io);
}

}  // namespace headrace::registry
