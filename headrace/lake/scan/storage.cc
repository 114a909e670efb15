// SPDX-License-Identifier: Apache-2.0
#include <arrow/buffer.h>
#include <arrow/config.h>
#include <arrow/filesystem/filesystem.h>
#include <arrow/io/compressed.h>
#include <arrow/util/compression.h>
#include <arrow/util/future.h>
#include <arrow/util/io_util.h>
#include <dlfcn.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "headrace/lake/scan/arrow_internal.h"
#include "headrace/lake/table.h"

namespace headrace::lake::scan {

namespace {

/// A file that counts what is read of it.
class CountingFile final : public arrow::io::RandomAccessFile {
 public:
  CountingFile(std::shared_ptr<arrow::io::RandomAccessFile> file, ByteCounter counter)
      : file_(std::move(file)), counter_(std::move(counter)) {}

  arrow::Status Close() override { return file_->Close(); }
  bool closed() const override { return file_->closed(); }
  arrow::Result<int64_t> Tell() const override { return file_->Tell(); }
  arrow::Status Seek(int64_t position) override { return file_->Seek(position); }
  arrow::Result<int64_t> GetSize() override { return file_->GetSize(); }
  arrow::Result<int64_t> Read(int64_t bytes, void* out) override {
    return counted(file_->Read(bytes, out));
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t bytes) override {
    return counted(file_->Read(bytes));
  }
  arrow::Result<int64_t> ReadAt(int64_t position, int64_t bytes, void* out) override {
    return counted(file_->ReadAt(position, bytes, out));
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(int64_t position, int64_t bytes) override {
    return counted(file_->ReadAt(position, bytes));
  }

 private:
  arrow::Result<int64_t> counted(arrow::Result<int64_t> result) {
    count(result.ok() ? *result : 0);
    return result;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> counted(
      arrow::Result<std::shared_ptr<arrow::Buffer>> result) {
    count(result.ok() ? (*result)->size() : 0);
    return result;
  }
  void count(int64_t bytes) { counter_->fetch_add(bytes, std::memory_order_relaxed); }

  std::shared_ptr<arrow::io::RandomAccessFile> file_;
  ByteCounter counter_;
};

class ArrowStream final : public ByteStream {
 public:
  ArrowStream(std::unique_ptr<arrow::util::Codec> codec,
              std::shared_ptr<arrow::io::InputStream> input, std::string path)
      : codec_(std::move(codec)), input_(std::move(input)), path_(std::move(path)) {}
  Result<int64_t> read(std::span<char> out) override {
    return guarded(path_, [&]() -> Result<int64_t> {
      HR_ARROW(const int64_t count, input_->Read(std::ssize(out), out.data()), path_);
      return count;
    });
  }

 private:
  std::unique_ptr<arrow::util::Codec> codec_;  // before the stream that uses it
  std::shared_ptr<arrow::io::InputStream> input_;
  std::string path_;
};

Entry entry_of(const arrow::fs::FileInfo& info) {
  const int64_t ns =
      info.mtime() == arrow::fs::kNoTime ? 0 : info.mtime().time_since_epoch().count();
  return {.path = info.path(),
          .folder = info.type() == arrow::fs::FileType::Directory,
          .bytes = info.size() < 0 ? 0 : info.size(),
          .modified_us = ns / 1000};
}

bool has_scheme(const std::string& url) {
  const size_t colon = url.find("://");
  return colon != std::string::npos && colon > 0 &&
         url.find_first_of("/*?[") > colon;  // a path may hold "://" further on
}

/// Arrow keeps S3 in a library of its own, beside the one that we are linked to.
arrow::Status load_s3() {
  static const arrow::Status loaded = [] {
    Dl_info self = {};
    if (::dladdr(reinterpret_cast<const void*>(&arrow::GetBuildInfo), &self) == 0 ||
        self.dli_fname == nullptr) {
      return arrow::Status::IOError("the file of libarrow is not known");
    }
    std::filesystem::path path = self.dli_fname;
    std::string name = path.filename().string();
    constexpr std::string_view kArrow = "libarrow";
    if (name.rfind(kArrow, 0) != 0) {
      return arrow::Status::IOError("Arrow is not in a library of its own");
    }
    path.replace_filename(name.insert(kArrow.size(), "_s3"));
    return arrow::fs::LoadFileSystemFactories(path.c_str());
  }();
  return loaded;
}

/// Google's client tries again for 15 minutes when there are no credentials.
std::string with_bound(std::string url) {
  if ((url.starts_with("gs://") || url.starts_with("gcs://")) &&
      url.find("retry_limit_seconds=") == std::string::npos) {
    url += url.find('?') == std::string::npos ? "?" : "&";
    url += "retry_limit_seconds=20";
  }
  return url;
}

/// No library that is loaded knows the scheme.
bool is_unknown(const arrow::Status& status) {
  return status.message().starts_with("Unrecognized filesystem");
}

arrow::Result<std::shared_ptr<arrow::fs::FileSystem>> open_system(const std::string& text,
                                                                  std::string* path) {
  auto system = arrow::fs::FileSystemFromUriOrPath(with_bound(text), path);
  if (system.ok() || !text.starts_with("s3://") || !is_unknown(system.status())) {
    return system;
  }
  ARROW_RETURN_NOT_OK(load_s3());
  system = arrow::fs::FileSystemFromUriOrPath(text, path);
  // Only now: what it made at its first use must still be there when this runs.
  [[maybe_unused]] static const int kept = std::atexit([] { arrow::fs::EnsureFinalized(); });
  return system;
}

}  // namespace

Error arrow_error(const arrow::Status& status, std::string_view where) {
  Errc code = Errc::io;
  switch (status.code()) {
    case arrow::StatusCode::OutOfMemory: code = Errc::out_of_memory; break;
    case arrow::StatusCode::NotImplemented: code = Errc::unsupported; break;
    case arrow::StatusCode::Cancelled: code = Errc::cancelled; break;
    case arrow::StatusCode::IOError: {
      const int number = arrow::internal::ErrnoFromStatus(status);
      if (number != 0) {
        code = errno_error(number, "").code();
      } else {
        // Parquet and gzip tell of damaged bytes in this way too.
        code = Errc::corrupt;
      }
      break;
    }
    default: code = Errc::corrupt;
  }
  return Error{code, std::string(where) + ": " + status.message()};
}

arrow::Status arrow_status(const Error& error) {
  return arrow::Status(arrow::StatusCode::UnknownError, error.message());
}

Result<std::shared_ptr<arrow::io::RandomAccessFile>> Storage::State::open(
    const std::string& path, ByteCounter counter) const {
  // A pipe has no beginning to come back to, and opening one would wait for whoever writes.
  std::error_code code;
  const auto status = std::filesystem::status(path, code);
  if (system->type_name() == "local" && std::filesystem::exists(status) &&
      !std::filesystem::is_regular_file(status)) {
    return Error{Errc::invalid_argument,
                 path +
                     ": this is no regular file, and tables are read more than once; write what "
                     "it holds to a file and name that"};
  }
  HR_ARROW(auto file, system->OpenInputFile(path), path);
  return std::shared_ptr<arrow::io::RandomAccessFile>(
      std::make_shared<CountingFile>(std::move(file), std::move(counter)));
}

Result<Storage> Storage::open(const std::string& url) {
  if (url.empty()) {
    return Error{Errc::invalid_argument, "the name of the table is empty"};
  }
  return guarded(url, [&]() -> Result<Storage> {
    Storage out;
    auto state = std::make_shared<State>();
    std::string text = url;
    if (!has_scheme(url)) {
      std::error_code ignored;
      text = std::filesystem::absolute(url, ignored).lexically_normal().string();
    }
    auto system = open_system(text, &out.path_);
    if (!system.ok()) {
      const bool unknown = is_unknown(system.status());
      return Error{Errc::unsupported,
                   url + (unknown ? ": names of tables are paths, or begin with file://, s3://, "
                                    "gs://, abfss:// or hdfs://"
                                  : ": " + system.status().message())};
    }
    state->system = *std::move(system);
    out.state_ = std::move(state);
    while (out.path_.size() > 1 && out.path_.back() == '/') {
      out.path_.pop_back();
    }
    return out;
  });
}

Result<std::optional<Entry>> Storage::find(const std::string& path) const {
  return guarded(path, [&]() -> Result<std::optional<Entry>> {
    HR_ARROW(const auto info, state_->system->GetFileInfo(path), path);
    if (info.type() == arrow::fs::FileType::NotFound) {
      return std::optional<Entry>();
    }
    return std::optional<Entry>(entry_of(info));
  });
}

Result<std::vector<Entry>> Storage::list(const std::string& folder) const {
  return guarded(folder, [&]() -> Result<std::vector<Entry>> {
    arrow::fs::FileSelector selector;
    selector.base_dir = folder;
    selector.recursive = true;
    HR_ARROW(const auto infos, state_->system->GetFileInfo(selector), folder);
    std::vector<Entry> out;
    out.reserve(infos.size());
    for (const arrow::fs::FileInfo& info : infos) {
      out.push_back(entry_of(info));
    }
    return out;
  });
}

Result<std::unique_ptr<ByteStream>> Storage::stream(const std::string& path, bool packed,
                                                    ByteCounter counter) const {
  return guarded(path, [&]() -> Result<std::unique_ptr<ByteStream>> {
    HR_TRY(auto file, state_->open(path, std::move(counter)));
    std::shared_ptr<arrow::io::InputStream> input = std::move(file);
    std::unique_ptr<arrow::util::Codec> codec;
    if (packed) {
      HR_ARROW(codec, arrow::util::Codec::Create(arrow::Compression::GZIP), path);
      HR_ARROW(input, arrow::io::CompressedInputStream::Make(codec.get(), input), path);
    }
    return std::unique_ptr<ByteStream>(
        std::make_unique<ArrowStream>(std::move(codec), std::move(input), path));
  });
}

}  // namespace headrace::lake::scan

namespace headrace::lake {

std::string arrow_version() { return arrow::GetBuildInfo().version_string; }

}  // namespace headrace::lake
