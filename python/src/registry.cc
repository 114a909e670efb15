// SPDX-License-Identifier: Apache-2.0
// The registry for Python: rows as JSON text, weights as arrays on the mapping. Converts and calls;
// headrace/registry.py documents it.
#include "headrace/registry/registry.h"

#include "python/src/border.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "headrace/registry/bundle.h"
#include "headrace/registry/columns.h"
#include "headrace/registry/version_json.h"

namespace headrace::python {

namespace {

namespace hr = headrace::registry;

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

/// (name, type, shape, bytes).
using TensorArgument = std::tuple<std::string, std::string, std::vector<int64_t>, Bytes>;
/// (path, kind, file or None, bytes or None).
using ArtifactArgument =
    std::tuple<std::string, std::string, std::optional<std::string>, std::optional<nb::bytes>>;

std::span<const std::byte> span_of(const Bytes& bytes) {
  return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
}

/// Read-only array over memory that `owner` keeps alive.
template <typename T, typename Owner>
nb::object array_of(const T* data, size_t count, const Owner& owner) {
  auto* kept = new Owner(owner);
  nb::capsule capsule(kept, [](void* pointer) noexcept { delete static_cast<Owner*>(pointer); });
  return nb::cast(nb::ndarray<nb::numpy, const T, nb::ndim<1>>(data, {count}, capsule));
}

hr::Query query_of(const Json& json) {
  hr::Query query;
  query.pattern = json.get_string("pattern");
  query.item = json.get_string("item");
  query.run = json.get_string("run");
  query.kind = json.get_string("kind");
  query.alias = json.get_string("alias");
  query.where = json.get_string("where");
  query.order_by = json.get_string("order_by", "name");
  query.descending = json.get_bool("descending");
  query.latest_only = json.get_bool("latest");
  query.include_deleted = json.get_bool("deleted");
  query.with_header = json.get_bool("header");
  query.limit = json.get_integer("limit", 1000);
  query.cursor = json.get_string("cursor");
  query.uid = json.get_string("uid");
  if (const Json* tags = json.find("tags"); tags != nullptr && tags->is_object()) {
    for (const Json::Member& tag : tags->members()) {
      query.tags.push_back({tag.first, tag.second.is_string() ? tag.second.string() : ""});
    }
  }
  return query;
}

std::vector<hr::Pair> pairs_of(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::vector<hr::Pair> out;
  for (const auto& [name, value] : pairs) {
    out.push_back({name, value});
  }
  return out;
}

/// What tensors and artifacts point into stays referenced by the arguments.
hr::NewVersion new_version(const std::string& json, const std::vector<TensorArgument>& tensors,
                           const std::vector<ArtifactArgument>& artifacts) {
  hr::NewVersion version =
      or_throw(hr::new_version_from_json(or_throw(parse_json(json, "version"))));
  for (const auto& [name, type, shape, bytes] : tensors) {
    const auto dtype = hr::parse_dtype(type);
    if (!dtype) {
      or_throw(Result<void>(Error(Errc::invalid_argument, "registry: tensor \"" + name +
                                                              "\" has no type \"" + type + "\"")));
    }
    version.tensors.push_back({name, *dtype, shape, span_of(bytes)});
  }
  for (const auto& [path, kind, file, bytes] : artifacts) {
    hr::Artifact artifact;
    artifact.path = path;
    artifact.kind = kind;
    if (file) {
      artifact.file = *file;
    } else if (bytes) {
      artifact.bytes = {static_cast<const std::byte*>(bytes->data()), bytes->size()};
    }
    version.artifacts.push_back(std::move(artifact));
  }
  return version;
}

std::string version_text(const hr::Version& version) { return hr::to_json(version).dump(); }

/// A registry handle; methods release the GIL while the core works.
class Handle {
 public:
  explicit Handle(hr::Registry registry) : registry_(std::move(registry)) {}
  hr::Registry& get() { return registry_; }

  std::string add(const std::string& json, const std::vector<TensorArgument>& tensors,
                  const std::vector<ArtifactArgument>& artifacts) {
    const hr::NewVersion version = new_version(json, tensors, artifacts);
    nb::gil_scoped_release release;
    return version_text(or_throw(registry_.add(version)));
  }

  std::vector<std::string> add_all(
      const std::vector<std::tuple<std::string, std::vector<TensorArgument>,
                                   std::vector<ArtifactArgument>>>& given) {
    std::vector<hr::NewVersion> versions;
    for (const auto& [json, tensors, artifacts] : given) {
      versions.push_back(new_version(json, tensors, artifacts));
    }
    std::vector<std::string> rows;
    nb::gil_scoped_release release;
    for (const hr::Version& version : or_throw(registry_.add_all(versions))) {
      rows.push_back(version_text(version));
    }
    return rows;
  }

  std::string find(const std::string& reference) {
    return version_text(or_throw(registry_.find(std::string_view(reference))));
  }

  std::pair<std::vector<std::string>, std::string> list(const std::string& query) {
    const hr::Page page = or_throw(registry_.list(query_of(or_throw(parse_json(query)))));
    std::vector<std::string> rows;
    for (const hr::Version& version : page.versions) {
      rows.push_back(version_text(version));
    }
    return {std::move(rows), page.next};
  }

 private:
  hr::Registry registry_;
};

nb::list tensors_of(const hr::ModelFile& file) {
  nb::list out;
  for (const hr::TensorView& view : file.tensors()) {
    out.append(nb::make_tuple(
        view.name, std::string(hr::dtype_name(view.dtype)), view.shape,
        array_of(reinterpret_cast<const uint8_t*>(view.data.data()), view.data.size(), file)));
  }
  return out;
}

nb::object text_column(const std::shared_ptr<hr::ColumnTable>& table,
                       const hr::TextColumn& column) {
  return nb::make_tuple(
      column.name, array_of(column.offsets.data(), column.offsets.size(), table),
      array_of(reinterpret_cast<const uint8_t*>(column.bytes.data()), column.bytes.size(), table),
      array_of(column.valid.data(), column.valid.size(), table));
}

nb::dict columns_of(Handle& handle, const std::string& query) {
  auto table = std::make_shared<hr::ColumnTable>();
  {
    nb::gil_scoped_release release;
    *table = or_throw(hr::read_columns(handle.get(), query_of(or_throw(parse_json(query)))));
  }
  nb::list texts;
  for (const hr::TextColumn& column : table->texts) {
    texts.append(text_column(table, column));
  }
  nb::list wholes;
  for (const hr::WholeColumn& column : table->wholes) {
    wholes.append(
        nb::make_tuple(column.name, array_of(column.values.data(), column.values.size(), table)));
  }
  nb::list metrics;
  for (const hr::NumberColumn& column : table->metrics) {
    metrics.append(nb::make_tuple(column.name,
                                  array_of(column.values.data(), column.values.size(), table),
                                  array_of(column.valid.data(), column.valid.size(), table)));
  }
  nb::list params;
  for (const hr::TextColumn& column : table->params) {
    params.append(text_column(table, column));
  }
  nb::dict out;
  out["rows"] = table->rows;
  out["texts"] = texts;
  out["wholes"] = wholes;
  out["metrics"] = metrics;
  out["params"] = params;
  return out;
}

std::vector<std::string> paths_of(const std::vector<hr::Path>& paths) {
  std::vector<std::string> out;
  for (const hr::Path& path : paths) {
    out.push_back(path.string());
  }
  return out;
}

Json push_json(const hr::Push& push) {
  return Json::object({{"version_id", push.version_id},
                       {"uid", push.uid},
                       {"reference", push.reference},
                       {"target", push.target},
                       {"state", push.state},
                       {"tries", push.tries},
                       {"next_us", int64_t{push.next.count()}},
                       {"remote", push.remote},
                       {"error", push.error},
                       {"deleted", push.deleted}});
}

hr::Push push_from(const Json& json) {
  hr::Push push;
  push.version_id = json.get_integer("version_id");
  push.target = json.get_string("target");
  push.state = json.get_string("state");
  push.tries = json.get_integer("tries");
  push.next = base::Micros(json.get_integer("next_us"));
  if (const Json* remote = json.find("remote")) {
    push.remote = *remote;
  }
  push.error = json.get_string("error");
  if (json.find("seen_us") != nullptr) {
    push.seen = base::Micros(json.get_integer("seen_us"));
  }
  return push;
}

void bind_changes(nb::class_<Handle>& handle) {
  handle
      .def(
          "set_alias",
          [](Handle& h, const std::string& reference, const std::string& alias,
             std::optional<int64_t> expect, bool remove, const std::string& reason) {
            or_throw(h.get().set_alias(or_throw(hr::parse_reference(reference)), alias,
                                       {.expect = expect, .remove = remove, .reason = reason}));
          },
          "reference"_a, "alias"_a, "expect"_a, "remove"_a, "reason"_a, release_gil())
      .def(
          "set_tags",
          [](Handle& h, const std::string& reference,
             const std::vector<std::pair<std::string, std::string>>& set,
             const std::vector<std::string>& removed) {
            or_throw(
                h.get().set_tags(or_throw(hr::parse_reference(reference)), pairs_of(set), removed));
          },
          "reference"_a, "set"_a, "removed"_a, release_gil())
      .def(
          "remove",
          [](Handle& h, const std::string& reference, bool force) {
            or_throw(h.get().remove(or_throw(hr::parse_reference(reference)), force));
          },
          "reference"_a, "force"_a, release_gil())
      .def(
          "restore",
          [](Handle& h, const std::string& reference) {
            or_throw(h.get().restore(or_throw(hr::parse_reference(reference))));
          },
          "reference"_a, release_gil())
      .def(
          "pushes",
          [](Handle& h, const std::string& target, bool unfinished, int64_t limit) {
            std::vector<std::string> out;
            for (const hr::Push& push : or_throw(h.get().pushes(target, unfinished, limit))) {
              out.push_back(push_json(push).dump());
            }
            return out;
          },
          "target"_a, "unfinished"_a, "limit"_a, release_gil())
      .def(
          "record_push",
          [](Handle& h, const std::string& push) {
            or_throw(h.get().record_push(push_from(or_throw(parse_json(push)))));
          },
          "push"_a, release_gil())
      .def(
          "request_pushes",
          [](Handle& h, const std::string& query, const std::string& target) {
            return or_throw(h.get().request_pushes(query_of(or_throw(parse_json(query))), target));
          },
          "query"_a, "target"_a, release_gil());
}

using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Doubles = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

hr::BundleOptions bundle_options(
    const std::string& common, const std::string& key,
    const std::vector<std::pair<std::string, std::vector<int64_t>>>& parameters,
    const std::string& dtype, const std::vector<std::string>& scalars,
    const std::vector<std::string>& metrics) {
  const hr::NewVersion shared = new_version(common, {}, {});
  hr::BundleOptions options;
  options.key = key;
  options.kind = shared.kind;
  options.header = shared.header;
  options.lineage = shared.lineage;
  for (const auto& [name, shape] : parameters) {
    options.parameters.push_back({name, shape});
  }
  options.dtype = hr::parse_dtype(dtype).value_or(hr::Dtype::u8);  // refused below
  options.scalars = scalars;
  options.metrics = metrics;
  return options;
}

int64_t append_item(hr::BundleWriter& writer, const std::string& json, const std::string& key,
                    const Floats& weights, const Doubles& scalars) {
  const hr::NewVersion version = new_version(json, {}, {});
  hr::ItemRecord item;
  item.name = version.name;
  item.key = key;
  item.weights = {weights.data(), weights.size()};
  item.scalars = {scalars.data(), scalars.size()};
  item.metrics = version.metrics;
  item.header = version.header.members().empty() ? Json() : version.header;
  item.once = version.once;
  item.params = version.params;
  item.tags = version.tags;
  item.attempt = version.lineage.attempt;
  item.data_hash = version.lineage.data_hash;
  nb::gil_scoped_release release;
  return or_throw(writer.append(item));
}

void bind_bundle(nb::module_& m) {
  nb::class_<hr::BundleWriter>(m, "BundleWriter")
      .def_static(
          "make",
          [](Handle& handle, const std::string& common, const std::string& key,
             const std::vector<std::pair<std::string, std::vector<int64_t>>>& parameters,
             const std::string& dtype, const std::vector<std::string>& scalars,
             const std::vector<std::string>& metrics) {
            return new hr::BundleWriter(or_throw(hr::BundleWriter::make(
                &handle.get(), bundle_options(common, key, parameters, dtype, scalars, metrics))));
          },
          "registry"_a, "common"_a, "key"_a, "parameters"_a, "dtype"_a, "scalars"_a, "metrics"_a)
      .def("append", &append_item, "version"_a, "key"_a, "weights"_a, "scalars"_a)
      .def(
          "flush", [](hr::BundleWriter& w) { or_throw(w.flush()); }, release_gil())
      .def(
          "seal",
          [](hr::BundleWriter& w) {
            const hr::SealReport report = or_throw(w.seal());
            return std::make_pair(report.items, report.conflicts);
          },
          release_gil());
}

void bind_files(nb::class_<Handle>& handle) {
  handle
      .def(
          "load",
          [](Handle& h, const std::string& reference) {
            return or_throw(h.get().load(or_throw(h.get().find(std::string_view(reference)))));
          },
          "reference"_a, release_gil())
      .def(
          "get",
          [](Handle& h, const std::string& reference, const std::string& folder) {
            const hr::Version version = or_throw(h.get().find(std::string_view(reference)));
            return paths_of(or_throw(h.get().get(version, folder)));
          },
          "reference"_a, "folder"_a, release_gil())
      .def(
          "artifact_path",
          [](Handle& h, const std::string& reference, const std::string& path) {
            const hr::Version version = or_throw(h.get().find(std::string_view(reference)));
            return or_throw(h.get().artifact_path(version, path)).string();
          },
          "reference"_a, "path"_a, release_gil())
      .def(
          "object_path",
          [](Handle& h, const std::string& hash) { return h.get().object_path(hash).string(); },
          "hash"_a);
}

void bind_exports(nb::class_<Handle>& handle) {
  handle
      .def(
          "export_folder",
          [](Handle& h, const std::string& reference, const std::string& folder, bool overwrite) {
            const hr::Version version = or_throw(h.get().find(std::string_view(reference)));
            or_throw(h.get().export_folder(version, folder, overwrite));
          },
          "reference"_a, "folder"_a, "overwrite"_a, release_gil())
      .def(
          "export_file",
          [](Handle& h, const std::string& text, const std::string& file, bool overwrite) {
            const hr::Query query = query_of(or_throw(parse_json(text)));
            return or_throw(h.get().export_file(query, file, overwrite));
          },
          "query"_a, "file"_a, "overwrite"_a, release_gil())
      .def(
          "import_file",
          [](Handle& h, const std::string& file, bool keep_versions) {
            const hr::ImportReport report =
                or_throw(h.get().import_file(file, {.keep_versions = keep_versions}));
            return std::make_pair(report.added, report.known);
          },
          "file"_a, "keep_versions"_a, release_gil())
      .def(
          "import_incoming",
          [](Handle& h, const std::string& folder) {
            const hr::ImportReport report = or_throw(h.get().import_incoming(folder));
            return std::make_pair(report.added, report.conflicts);
          },
          "folder"_a, release_gil())
      .def(
          "backup", [](Handle& h, const std::string& target) { or_throw(h.get().backup(target)); },
          "target"_a, release_gil())
      .def(
          "verify",
          [](Handle& h, bool deep) {
            std::vector<std::pair<std::string, std::string>> findings;
            for (const hr::Finding& finding : or_throw(h.get().verify({.deep = deep})).findings) {
              if (!finding.harmless) {
                findings.emplace_back(finding.what, finding.text);
              }
            }
            return findings;
          },
          "deep"_a, release_gil());
}

void bind_model_file(nb::module_& m) {
  nb::class_<hr::ModelFile>(m, "ModelFile")
      .def_static(
          "open",
          [](const std::string& path, bool copy, bool allow_nonfinite) {
            return or_throw(
                hr::ModelFile::open(path, {.copy = copy, .allow_nonfinite = allow_nonfinite}));
          },
          "path"_a, "copy"_a, "allow_nonfinite"_a, release_gil())
      .def("format", [](const hr::ModelFile& f) { return f.format(); })
      .def("header", [](const hr::ModelFile& f) { return f.header().dump(); })
      .def("metadata",
           [](const hr::ModelFile& f) {
             return std::vector<std::pair<std::string, std::string>>(f.metadata().begin(),
                                                                     f.metadata().end());
           })
      .def("tensors", &tensors_of)
      .def("item_count", [](const hr::ModelFile& f) { return f.item_count(); })
      .def(
          "item_key",
          [](const hr::ModelFile& f, int64_t slot) { return or_throw(f.item_key(slot)); }, "slot"_a)
      .def(
          "item",
          [](const hr::ModelFile& f, const std::string& key) { return or_throw(f.item(key)); },
          "key"_a, release_gil());
}

}  // namespace

void bind_registry(nb::module_& m) {
  bind_model_file(m);
  m.def(
      "registry_stage",
      [](const std::string& folder, const std::string& json,
         const std::vector<TensorArgument>& tensors,
         const std::vector<ArtifactArgument>& artifacts) {
        const hr::NewVersion version = new_version(json, tensors, artifacts);
        nb::gil_scoped_release release;
        return or_throw(hr::stage(folder, version));
      },
      "folder"_a, "version"_a, "tensors"_a, "artifacts"_a);

  m.def("registry_push_targets", &hr::push_targets);

  nb::class_<Handle> handle(m, "Registry");
  handle
      .def_static(
          "open",
          [](const std::string& folder, bool create, bool read_only, double lock_timeout,
             const std::vector<std::string>& push_to, bool shared_group) {
            hr::OpenOptions options;
            options.create = create;
            options.read_only = read_only;
            options.lock_timeout = base::Micros(static_cast<int64_t>(lock_timeout * 1e6));
            options.command = "python";
            options.push_to = push_to;
            options.shared_group = shared_group;
            return new Handle(
                or_throw(hr::Registry::open(or_throw(hr::registry_path(folder)), options)));
          },
          "folder"_a, "create"_a, "read_only"_a, "lock_timeout"_a, "push_to"_a,
          "shared_group"_a = false, release_gil())
      .def("folder", [](Handle& h) { return h.get().folder().string(); })
      .def("uuid", [](Handle& h) { return h.get().uuid(); })
      .def("add", &Handle::add, "version"_a, "tensors"_a, "artifacts"_a)
      .def("add_all", &Handle::add_all, "versions"_a)
      .def("find", &Handle::find, "reference"_a, release_gil())
      .def("list", &Handle::list, "query"_a, release_gil())
      .def("columns", &columns_of, "query"_a)
      .def(
          "count",
          [](Handle& h, const std::string& query) {
            return or_throw(h.get().count(query_of(or_throw(parse_json(query)))));
          },
          "query"_a, release_gil());
  bind_files(handle);
  bind_exports(handle);
  bind_changes(handle);
  bind_bundle(m);
}

}  // namespace headrace::python
