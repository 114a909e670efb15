// SPDX-License-Identifier: Apache-2.0
// Small models for tests, and an opened registry that fails the test when it cannot be opened.
#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headrace/registry/registry.h"
#include "headrace/registry/test_folder.h"

namespace headrace::registry {

/// Keep the weights beside the version that borrows them.
struct TestModel {
  std::shared_ptr<std::vector<float>> weights;
  NewVersion version;
};

inline TestModel test_model(const std::string& name, std::vector<float> values) {
  TestModel model;
  model.weights = std::make_shared<std::vector<float>>(std::move(values));
  model.version.name = name;
  model.version.kind = "deepar";
  model.version.header.set("horizon", 48);
  model.version.tensors = {{"w",
                            Dtype::f32,
                            {static_cast<int64_t>(model.weights->size())},
                            std::as_bytes(std::span(*model.weights))}};
  return model;
}

inline Registry open_registry(const Path& folder, const OpenOptions& options = {}) {
  auto registry = Registry::open(folder, options);
  REQUIRE_MESSAGE(registry.ok(), registry.error().message());
  return *std::move(registry);
}

template <typename T>
T must(Result<T> result) {
  REQUIRE_MESSAGE(result.ok(), result.error().message());
  return *std::move(result);
}
inline void must(const Result<void>& result) {
  REQUIRE_MESSAGE(result.ok(), result.error().message());
}
template <typename T>
Errc code_of(const Result<T>& result) {
  REQUIRE(!result.ok());
  return result.error().code();
}

}  // namespace headrace::registry
