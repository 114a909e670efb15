// SPDX-License-Identifier: Apache-2.0
// Plain values of the registry: what a new version is made of, what a stored one looks like, what a
// listing asks for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/file.h"
#include "headrace/base/json.h"
#include "headrace/registry/safetensors.h"

namespace headrace::registry {

using base::Path;

/// The final value of a metric. NaN and infinities are kept; -0.0 comes back as 0.0 (SQLite stores
/// whole numbers as integers).
struct Metric {
  std::string name = {};
  double value = 0.0;
  std::optional<int64_t> step = {};  ///< where it was taken
};

struct Pair {
  std::string name = {};
  std::string value = {};
};

/// The table that was read, as it was.
struct TableSnapshot {
  std::string url = {};
  std::string format = {};   ///< "parquet", "csv", "delta", ...
  std::string version = {};  ///< of the table, if it has versions
  std::string digest = {};   ///< hex, of what was listed; "" = unknown
  int64_t rows = -1;         ///< -1 = unknown
};

/// Where a model came from. Empty strings mean unknown.
struct Lineage {
  std::string run = {};              ///< uid of the run, no '/'
  std::string run_kind = {};         ///< "flow", "train", "mlflow", ...
  std::string parent_run = {};       ///< uid
  std::string pipeline_digest = {};  ///< hex
  std::string code_version = {};
  Json environment = {};  ///< an object, or null
  std::string item = {};  ///< key of the series
  int64_t attempt = 0;
  std::optional<TableSnapshot> table = {};
  std::string data_hash = {};   ///< 32 hex digits: XXH3-128 of the rows used
  std::string run_status = {};  ///< once the run has ended; `Registry::end_run` sets it
  base::Micros run_started{0};  ///< read only, as `run_ended`; 0 = unknown
  base::Micros run_ended{0};
};

/// A file that belongs to a version. When `file` is set its bytes are copied in, else `bytes`
/// (which is borrowed during the call) are stored.
struct Artifact {
  std::string path = {};  ///< name within the version: "model.onnx", "plots/fit.png"
  std::span<const std::byte> bytes = {};
  Path file = {};
  std::string kind = "file";
};

/// What `Registry::add` takes. With `tensors`, a model file "model.safetensors" is written from
/// `header` and them; other files come as `artifacts`.
struct NewVersion {
  std::string name = {};  ///< see check_name
  std::string kind = {};  ///< "deepar", "files", ...: never empty
  /// The model without its weights, an object: options, frequency, features, training, ... `kind`,
  /// `library`, `metrics` and `lineage` are filled in where absent. At most 16 MiB.
  Json header = Json::object();
  std::vector<Tensor> tensors = {};  ///< data borrowed during the call
  std::vector<Artifact> artifacts = {};
  /// Idempotency key, "RUN/ITEM" for pipeline items: a second add with the same key returns the
  /// version that exists; if its weights or files differ the call is `mismatch`.
  std::optional<std::string> once = {};
  Lineage lineage;
  std::vector<Metric> metrics = {};
  std::vector<Pair> params = {};
  std::vector<Pair> tags = {};
  std::optional<std::string> parent = {};  ///< reference of the model it was made from
};

struct StoredArtifact {
  std::string path = {};
  std::string hash = {};  ///< 64 hex digits, BLAKE2b-256
  int64_t bytes = 0;
  std::string kind = {};
  std::optional<int64_t> slot = {};  ///< record of a bundle
};

/// One row of the registry.
struct HR_API Version {
  int64_t id = 0;  ///< of this database only; `uid` is the same in every copy
  std::string uid = {};
  std::string name = {};
  int64_t version = 0;
  bool deleted = false;
  std::string kind = {};
  std::string once = {};
  Lineage lineage;
  std::string parent = {};  ///< uid, "" = none
  Json header = {};         ///< null when the listing did not ask for it
  base::Micros created{0};
  base::Micros deleted_at{0};
  std::vector<std::string> aliases = {};
  std::vector<Metric> metrics = {};
  std::vector<Pair> params = {};
  std::vector<Pair> tags = {};
  std::vector<StoredArtifact> artifacts = {};

  /// "NAME:7".
  std::string reference() const { return name + ":" + std::to_string(version); }
  const double* metric(std::string_view wanted) const;
  const StoredArtifact* artifact(std::string_view wanted) const;
};
/// The stable JSON form that the CLI and Python show.
HR_API Json to_json(const Version& version);

/// What to list. Empty fields do not restrict.
struct Query {
  std::string pattern = {};  ///< see parse_pattern
  std::string item = {};
  std::string run = {};
  std::string kind = {};
  std::string alias = {};
  std::string uid = {};
  std::vector<Pair> tags = {};
  std::optional<base::Micros> created_from = {};
  std::optional<base::Micros> created_to = {};  ///< exclusive
  std::string where = {};                       ///< see query.h: "mase < 0.9 and smape <= 12"
  /// "name", "created", "version" or the name of a metric; NaN last, then versions without it.
  std::string order_by = "name";
  bool descending = false;
  bool latest_only = false;  ///< the newest ready version of each model
  bool include_deleted = false;
  bool with_header = false;
  bool with_details = true;  ///< metrics, params, tags, aliases, artifacts
  int64_t limit = 1000;      ///< 1 to 10,000
  std::string cursor = {};   ///< `Page::next` of the page before
};

struct Page {
  std::vector<Version> versions = {};
  std::string next = {};  ///< "" at the end
};

struct AliasOptions {
  std::optional<int64_t> expect = {};  ///< compare and set: version it must point to now, 0 = none
  bool remove = false;
  bool dry_run = false;  ///< change nothing; refuse what would be refused
  std::string by = {};
  std::string reason = {};
};

/// One line of the alias log.
struct AliasChange {
  std::string alias = {};
  int64_t from_version = 0;  ///< 0 = was not set
  int64_t to_version = 0;    ///< 0 = removed
  base::Micros at{0};
  std::string by = {};
  std::string reason = {};
};

/// Bounds of a SELECT of a user.
struct SelectOptions {
  base::Micros timeout{0};          ///< 0 = none
  std::function<bool()> stop = {};  ///< asked every few thousand steps; true ends it
};
/// What a SELECT that ran for too long ends with.
HR_API Error select_timeout(double seconds);

/// A name that a listing asks for.
struct AskedName {
  std::string table = {};  ///< "metric", "param" or "tag"
  std::string name = {};
  bool operator==(const AskedName&) const = default;
};

struct ModelInfo {
  std::string name = {};
  std::string description = {};
  int64_t versions = 0;  ///< ready ones
  base::Micros created{0};
};

struct GcOptions {
  base::Micros grace = std::chrono::hours(24);     ///< objects younger than this stay
  base::Micros keep = std::chrono::hours(24 * 7);  ///< deleted versions can be restored so long
  bool dry_run = false;
};

struct GcReport {
  int64_t objects = 0;
  int64_t bytes = 0;
  int64_t versions = 0;    ///< deleted versions that lost their artifacts
  int64_t stray = 0;       ///< files in objects/ without a row
  int64_t temporary = 0;   ///< files in tmp/ whose owner is gone
  int64_t bytes_kept = 0;  ///< reachable
  /// Parts of bundles that could not be sealed, with the reason; they stay.
  std::vector<std::string> damaged = {};
};

struct VerifyOptions {
  bool deep = false;    ///< read every object: content hash, validation, record checksums
  bool repair = false;  ///< mark versions with damaged objects deleted, tag "headrace.damaged"
};

struct Finding {
  std::string what = {};  ///< "object_missing", "object_damaged", "stray_object", ...
  std::string text = {};
  bool harmless = false;  ///< nothing is lost (stray and temporary files)
};

struct HR_API VerifyReport {
  std::vector<Finding> findings = {};
  int64_t versions = 0;
  int64_t objects = 0;
  int64_t bytes_read = 0;
  int64_t repaired = 0;
  bool clean() const;
};

/// State of the hand-over of one version to another registry.
struct Push {
  int64_t version_id = 0;
  std::string uid = {};
  std::string reference = {};
  std::string target = {};
  std::string state = {};  ///< "waiting", "done", "failed"
  int64_t tries = 0;
  base::Micros next{0};
  Json remote = {};
  std::string error = {};
  bool deleted = false;  ///< the version: what is left to hand over is that its aliases went
  /// For `record_push`: `next` as it was read. Where the row has another by now, more was asked for
  /// meanwhile, and the row stays as it is.
  std::optional<base::Micros> seen = {};
};

}  // namespace headrace::registry
