// SPDX-License-Identifier: Apache-2.0
// Why Python's sqlite3 must never open a registry that we have open: the accident itself, with the
// shared libsqlite3 as the second copy. headrace/registry.py guards against it.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <chrono>
#include <string>

#include "headrace/base/file_lock.h"
#include "headrace/base/test_process.h"
#include "headrace/registry/test_models.h"
#include "headrace/registry/writer.h"

namespace headrace::registry {

namespace {

using base::TestProcess;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitizer = true;
#elif defined(__has_feature)
constexpr bool kSanitizer = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSanitizer = false;
#endif

/// The shared library, as Python's sqlite3 module uses it.
class OtherSqlite {
 public:
  OtherSqlite() {
    if (!kSanitizer) {  // they end the process at RTLD_DEEPBIND
      library_ = ::dlopen("libsqlite3.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    }
    if (library_ != nullptr) {
      open_ = reinterpret_cast<Open>(::dlsym(library_, "sqlite3_open"));
      exec_ = reinterpret_cast<Exec>(::dlsym(library_, "sqlite3_exec"));
      close_ = reinterpret_cast<Close>(::dlsym(library_, "sqlite3_close"));
    }
  }
  bool there() const { return library_ != nullptr; }
  /// Open, run, close; SQLite's code.
  int run(const Path& path, const char* sql) const {
    void* connection = nullptr;
    int code = open_(path.c_str(), &connection);
    if (code == 0) {
      code = exec_(connection, sql, nullptr, nullptr, nullptr);
    }
    close_(connection);
    return code;
  }

 private:
  using Open = int (*)(const char*, void**);
  using Exec = int (*)(void*, const char*, int (*)(void*, int, char**, char**), void*, char**);
  using Close = int (*)(void*);
  void* library_ = nullptr;
  Open open_ = nullptr;
  Exec exec_ = nullptr;
  Close close_ = nullptr;
};

void wait_for_file(const Path& path) {
  const base::Deadline deadline = base::Deadline::in(std::chrono::seconds(60));
  while (!std::filesystem::exists(path)) {
    REQUIRE(!deadline.passed());
    base::sleep_for(base::Micros(1000));
  }
}

constexpr const char* kOtherWrite =
    "BEGIN IMMEDIATE; INSERT INTO model(name, created_us) VALUES('theirs', 1); COMMIT";

}  // namespace

TEST_CASE(
    "a second SQLite in our process breaks our lock, and a change that was reported is gone") {
  const OtherSqlite other;
  if (!other.there()) {
    MESSAGE("skipped: ", (kSanitizer ? "address and thread sanitizer refuse RTLD_DEEPBIND"
                                     : "libsqlite3.so.0 is not installed"));
    return;
  }
  TestFolder folder;
  const Path path = folder.path() / "r";
  const Path database_path = path / "registry.db";
  must(open_registry(path).add(test_model("m", {1.0F}).version));

  // A third process that writes when it is told to, and says how it went.
  TestProcess third([&] {
    for (const char* step : {"1", "2"}) {
      wait_for_file(folder.path() / (std::string("go") + step));
      const int code = OtherSqlite().run(database_path, kOtherWrite);
      must(base::replace_file(folder.path() / (std::string("done") + step), std::to_string(code)));
    }
    return 0;
  });
  const auto ask_third = [&](const std::string& step) {
    must(base::replace_file(folder.path() / ("go" + step), ""));
    wait_for_file(folder.path() / ("done" + step));
    return must(base::read_file(folder.path() / ("done" + step)));
  };

  auto ours = must(Database::open(database_path, {.mode = DatabaseMode::read_write}));
  must(ours->execute("BEGIN IMMEDIATE; INSERT INTO model(name, created_us) VALUES('ours', 1)"));
  const auto lock = must(base::FileLock::acquire(path / "writer.lock", 0, "test"));
  CHECK(ask_third("1") == "5");  // SQLITE_BUSY: our lock holds

  CHECK(other.run(database_path, "SELECT count(*) FROM model") == 0);  // only looks, and closes
  const bool broken = ask_third("2") == "0";
  const bool committed = ours->execute("COMMIT").ok();
  ours.reset();
  CHECK(third.wait() == 0);
  auto reader = must(Database::open(database_path, {}));
  const int64_t rows =
      must(reader->integer("SELECT count(*) FROM model WHERE name IN ('ours', 'theirs')"));
  // Should a later SQLite not have this accident any more, the guard in Python can go.
  CHECK(broken);
  CHECK(committed);
  CHECK(rows < 2);  // both commits were reported; whose row is gone depends on who wrote first
  // The lock file is another file: what happened to SQLite's locks did not touch it.
  CHECK(code_of(base::FileLock::acquire(path / "writer.lock", 0, "other")) == Errc::busy);
}

}  // namespace headrace::registry
