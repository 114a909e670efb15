// SPDX-License-Identifier: Apache-2.0
#include "headrace/registry/object_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "headrace/base/random.h"
#include "headrace/registry/fault.h"
#include "headrace/registry/limits.h"

namespace headrace::registry {

namespace fault {

std::atomic<Hook>& hook() {
  static std::atomic<Hook> value = nullptr;
  return value;
}

std::atomic<int64_t>& filesystem_type() {
  static std::atomic<int64_t> value = 0;
  return value;
}

}  // namespace fault

namespace {

constexpr size_t kCopyBytes = 1 << 20;
constexpr int kPublishTriesMax = 100;
constexpr int kCreateTriesMax = 100;

base::Micros modified_time(const struct stat& info) {
  return std::chrono::seconds(info.st_mtim.tv_sec) + base::Micros(info.st_mtim.tv_nsec / 1000);
}

Result<void> make_folder(const Path& folder, unsigned mode) {
  if (::mkdir(folder.c_str(), 0700) != 0) {
    if (errno == EEXIST) {
      return {};
    }
    return errno_error(errno, "making folder " + folder.string());
  }
  if (::chmod(folder.c_str(), mode) != 0) {  // mkdir drops the setgid bit and what umask says
    return errno_error(errno, "setting the mode of " + folder.string());
  }
  return {};
}

/// Names in a folder without "." and ".."; a folder that is not there has none.
Result<std::vector<std::string>> names_in(const Path& folder) {
  std::vector<std::string> names;
  DIR* const dir = ::opendir(folder.c_str());
  if (dir == nullptr) {
    if (errno == ENOENT) {
      return names;
    }
    return errno_error(errno, "listing " + folder.string());
  }
  while (const dirent* entry = ::readdir(dir)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") {
      names.push_back(name);
    }
  }
  ::closedir(dir);
  std::sort(names.begin(), names.end());
  return names;
}

Result<void> feed_file(const base::Fd& fd, const Path& path,
                       const std::function<Result<void>(std::span<const std::byte>)>& sink) {
  std::vector<std::byte> buffer(kCopyBytes);
  int64_t total = 0;
  for (;;) {
    const ssize_t count = ::read(fd.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      return errno_error(errno, "reading " + path.string());
    }
    if (count == 0) {
      return {};
    }
    total += count;
    if (total > kFileBytesMax) {
      return Error{Errc::invalid_argument, "registry: " + path.string() + " has more than the " +
                                               std::to_string(kFileBytesMax) + " bytes allowed"};
    }
    HR_TRY(sink(std::span(buffer).first(static_cast<size_t>(count))));
  }
}

}  // namespace

std::optional<ObjectHash> parse_hash(std::string_view hex) {
  ObjectHash hash = {};
  if (hex.size() != hash.size() * 2) {
    return std::nullopt;
  }
  for (size_t i = 0; i < hex.size(); ++i) {
    const char c = hex[i];
    const bool digit = c >= '0' && c <= '9';
    if (!digit && (c < 'a' || c > 'f')) {
      return std::nullopt;
    }
    const auto value = static_cast<std::byte>(digit ? c - '0' : c - 'a' + 10);
    hash[i / 2] = (hash[i / 2] << 4U) | value;
  }
  return hash;
}

Result<TempFile> TempFile::create(const Path& tmp_folder) {
  TempFile file;
  char host[65] = "host";
  ::gethostname(host, sizeof host - 1);
  for (int attempt = 0; attempt < kCreateTriesMax; ++attempt) {
    std::array<std::byte, 8> nonce = {};
    base::random_bytes(nonce);
    file.path_ = tmp_folder /
                 (std::string(host) + "-" + std::to_string(::getpid()) + "-" + base::hex(nonce));
    HR_TRY(file.fd_, base::open_file(file.path_, O_RDWR | O_CREAT | O_EXCL, 0600));
    fault::point("object.opened");
    // A sweep between open and lock takes the file for nobody's: it holds the lock, or is done.
    struct stat info = {};
    if (::flock(file.fd_.get(), LOCK_EX | LOCK_NB) == 0) {
      if (::fstat(file.fd_.get(), &info) == 0 && info.st_nlink > 0) {
        fault::point("object.created");
        return file;
      }
    } else if (errno != EWOULDBLOCK) {
      return errno_error(errno, "locking " + file.path_.string());
    }
  }
  return Error{Errc::busy, "registry: every new file in " + tmp_folder.string() +
                               " is swept before it can be locked"};
}

TempFile::TempFile(TempFile&& other) noexcept
    : fd_(std::move(other.fd_)),
      path_(std::move(other.path_)),
      hash_(std::move(other.hash_)),
      bytes_(other.bytes_),
      owned_(std::exchange(other.owned_, false)) {}

TempFile& TempFile::operator=(TempFile&& other) noexcept {
  if (this != &other) {
    drop();
    fd_ = std::move(other.fd_);
    path_ = std::move(other.path_);
    hash_ = std::move(other.hash_);
    bytes_ = other.bytes_;
    owned_ = std::exchange(other.owned_, false);
  }
  return *this;
}

TempFile::~TempFile() { drop(); }

void TempFile::drop() {
  if (owned_ && fd_.valid()) {
    ::unlink(path_.c_str());
  }
  owned_ = false;
}

Result<void> TempFile::write(std::span<const std::byte> bytes) {
  HR_TRY(base::write_all(fd_.get(), bytes, path_));
  hash_.update(bytes);
  bytes_ += static_cast<int64_t>(bytes.size());
  fault::point("object.written");
  return {};
}

Result<void> TempFile::copy_from(const Path& source) {
  // What a person hands over may be a pipe.
  HR_TRY(const auto fd, base::open_any_file(source, O_RDONLY));
  return feed_file(fd, source, [this](std::span<const std::byte> bytes) { return write(bytes); });
}

void TempFile::start_sync() { ::sync_file_range(fd_.get(), 0, 0, SYNC_FILE_RANGE_WRITE); }

Result<ObjectFile> TempFile::finish() {
  if (::fchmod(fd_.get(), 0444) != 0) {
    return errno_error(errno, "setting the mode of " + path_.string());
  }
  fault::point("object.before_sync");
  HR_TRY(base::sync_data(fd_.get(), path_));
  fault::point("object.after_sync");
  return ObjectFile{base::hex(hash_.finish()), bytes_};
}

Result<void> make_file(const Path& path, unsigned mode) {
  const base::Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!fd.valid()) {
    return errno == EEXIST ? Result<void>() : errno_error(errno, "making " + path.string());
  }
  if (::fchmod(fd.get(), mode) != 0) {
    return errno_error(errno, "setting the mode of " + path.string());
  }
  return {};
}

ObjectStore::ObjectStore(Path registry_folder, bool shared_group)
    : objects_(registry_folder / "objects"),
      tmp_(registry_folder / "tmp"),
      trash_(registry_folder / "trash"),
      folder_mode_(shared_group ? 02770 : 0700) {}

Result<void> ObjectStore::make_folders() const {
  for (const Path& folder : {objects_, tmp_, trash_}) {
    HR_TRY(make_folder(folder, folder_mode_));
  }
  return {};
}

Path ObjectStore::path_of(std::string_view hash) const {
  return objects_ / std::string(hash.substr(0, 2)) / std::string(hash);
}

namespace {

/// Give `source` its object's name; 0 or an errno. `source` stays where the file system has hard
/// links, so that it can be published again.
int put_name(const Path& source, const Path& target) {
  if (::link(source.c_str(), target.c_str()) == 0) {
    return 0;
  }
  if (errno != EPERM && errno != EOPNOTSUPP) {
    return errno;
  }
  return ::renameat2(AT_FDCWD, source.c_str(), AT_FDCWD, target.c_str(), RENAME_NOREPLACE) == 0
             ? 0
             : errno;
}

}  // namespace

Result<void> ObjectStore::publish(const Path& source, const ObjectFile& object,
                                  std::set<Path>* folders) const {
  const Path target = path_of(object.hash);
  fault::point("object.before_link");
  for (int attempt = 0; attempt < kPublishTriesMax; ++attempt) {
    const int failure = put_name(source, target);
    struct stat info = {};
    if (failure == 0) {
      folders->insert(target.parent_path());
      fault::point("object.after_link");
      return {};
    }
    if (failure == EEXIST) {
      fault::point("object.exists");
      if (::stat(target.c_str(), &info) != 0) {
        continue;  // gc took it just now
      }
      if (info.st_size != object.bytes) {
        return Error{Errc::mismatch, "registry: object " + target.string() + " has " +
                                         std::to_string(info.st_size) + " bytes, its twin has " +
                                         std::to_string(object.bytes) +
                                         "; run headrace models verify --deep --repair"};
      }
      ::utimensat(AT_FDCWD, target.c_str(), nullptr, 0);  // a hint for gc: it may fail
      folders->insert(target.parent_path());              // its writer may not have synced it yet
      return {};
    }
    if (failure != ENOENT || ::stat(source.c_str(), &info) != 0) {
      return errno_error(failure, "putting " + source.string() + " at " + target.string());
    }
    HR_TRY(make_folder(target.parent_path(), folder_mode_));
    folders->insert(objects_);
  }
  return Error{Errc::busy, "registry: object " + target.string() + " came and went " +
                               std::to_string(kPublishTriesMax) +
                               " times while it was published; run gc with a longer grace"};
}

std::optional<int64_t> ObjectStore::size_of(std::string_view hash) const {
  struct stat info = {};
  if (::stat(path_of(hash).c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return std::nullopt;
  }
  return info.st_size;
}

Result<void> ObjectStore::for_each(
    const std::function<Result<void>(const std::string&, int64_t, base::Micros)>& body) const {
  HR_TRY(const auto folders, names_in(objects_));
  for (const std::string& folder : folders) {
    if (folder.size() != 2) {
      continue;
    }
    HR_TRY(const auto names, names_in(objects_ / folder));
    for (const std::string& name : names) {
      struct stat info = {};
      if (parse_hash(name) && ::lstat((objects_ / folder / name).c_str(), &info) == 0) {
        HR_TRY(body(name, info.st_size, modified_time(info)));
      }
    }
  }
  return {};
}

Result<int64_t> ObjectStore::sweep_tmp(base::Micros age, bool dry_run) const {
  int64_t swept = 0;
  HR_TRY(const auto names, names_in(tmp_));
  const base::Micros now = base::system_clock().wall();
  for (const std::string& name : names) {
    const Path path = tmp_ / name;
    // The parts of bundles hold finished items as long as their log is there: seal_orphans takes
    // them in.
    std::error_code ignored;
    if (path.extension() == ".log" ||
        ((path.extension() == ".part" || path.extension() == ".wide") &&
         std::filesystem::exists(Path(path).replace_extension(".log"), ignored))) {
      continue;
    }
    auto fd = base::open_file(path, O_RDONLY | O_NOFOLLOW);
    struct stat info = {};
    if (!fd.ok() || ::fstat(fd->get(), &info) != 0 || now - modified_time(info) < age) {
      continue;  // gone meanwhile, or too young to judge
    }
    if (::flock(fd->get(), LOCK_EX | LOCK_NB) != 0) {
      continue;  // its owner lives
    }
    ++swept;
    if (!dry_run && ::unlink(path.c_str()) != 0 && errno != ENOENT) {
      return errno_error(errno, "removing " + path.string());
    }
  }
  return swept;
}

Result<void> ObjectStore::empty_trash() const {
  HR_TRY(const auto names, names_in(trash_));
  for (const std::string& name : names) {
    if (::unlink((trash_ / name).c_str()) != 0 && errno != ENOENT) {
      return errno_error(errno, "removing " + (trash_ / name).string());
    }
  }
  return {};
}

Result<std::string> ObjectStore::hash_file(const Path& path) const {
  base::Blake2b256 hash;
  HR_TRY(const auto fd, base::open_file(path, O_RDONLY));
  HR_TRY(feed_file(fd, path, [&](std::span<const std::byte> bytes) -> Result<void> {
    hash.update(bytes);
    return {};
  }));
  return base::hex(hash.finish());
}

}  // namespace headrace::registry
