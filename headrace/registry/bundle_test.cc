// SPDX-License-Identifier: Apache-2.0
#include "headrace/registry/bundle.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "headrace/base/checksum.h"
#include "headrace/base/file_lock.h"
#include "headrace/base/random.h"
#include "headrace/registry/half.h"
#include "headrace/registry/test_models.h"

namespace headrace::registry {

namespace {

constexpr int64_t kWeights = 33;

BundleOptions options_for(const std::string& key) {
  BundleOptions options;
  options.key = key;
  options.kind = "deepar";
  options.header.set("horizon", 48);
  options.parameters = {{"rnn.weight", {4, 8}}, {"rnn.bias", {1}}};
  options.scalars = {"scale"};
  options.metrics = {"mase"};
  options.lineage.run = "run-1";
  return options;
}

std::vector<float> weights_of(int64_t item) {
  base::Rng rng(static_cast<uint64_t>(item));
  std::vector<float> weights(kWeights);
  for (float& weight : weights) {
    weight = rng.uniform_float() - 0.5F;
  }
  return weights;
}

Result<int64_t> append(BundleWriter* writer, int64_t index, const std::vector<float>& weights) {
  const double scale = 0.1 * static_cast<double>(index);
  ItemRecord item;
  item.key = "H" + std::to_string(index);
  item.name = "m4/" + item.key;
  item.weights = weights;
  item.scalars = std::span(&scale, 1);
  item.metrics = {{"mase", static_cast<double>(index), {}}};
  item.once = "run-1/" + item.key;
  item.attempt = 1;
  return writer->append(item);
}

bool same_floats(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

}  // namespace

TEST_CASE("every item of a bundle equals its single-file twin bit for bit") {
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  auto writer = must(BundleWriter::make(&registry, options_for("run-1/a")));
  constexpr int64_t kItems = 5000;  // more than fit in one bundle
  for (int64_t i = 0; i < kItems; ++i) {
    CHECK(must(append(&writer, i, weights_of(i))) == i % 4096);
  }
  const SealReport report = must(writer.seal());
  CHECK(report.items == kItems);
  CHECK(report.bundles == 2);
  CHECK(must(registry.count({})) == kItems);
  CHECK(must(registry.verify({.deep = true})).clean());

  for (const int64_t i : {int64_t{0}, int64_t{1}, int64_t{4095}, int64_t{4096}, kItems - 1}) {
    CAPTURE(i);
    const std::vector<float> weights = weights_of(i);
    const Version version = must(registry.find("run:run-1/H" + std::to_string(i)));
    CHECK(version.artifacts[0].slot == i % 4096);
    CHECK(*version.metric("mase") == static_cast<double>(i));
    const ModelFile file = must(registry.load(version));
    CHECK(
        same_floats(must(must(file.tensor("rnn.weight")).floats()), std::span(weights).first(32)));
    CHECK(same_floats(must(must(file.tensor("rnn.bias")).floats()), std::span(weights).last(1)));
    CHECK(file.header().at("item").at("scalars").get_number("scale") ==
          0.1 * static_cast<double>(i));
    CHECK(file.header().get_integer("horizon") == 48);
  }
}

TEST_CASE("a part that was left is sealed by the next writer of its key, once") {
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  {
    auto writer = must(BundleWriter::make(&registry, options_for("k")));
    for (int64_t i = 0; i < 10; ++i) {
      must(append(&writer, i, weights_of(i)));
    }
    must(writer.flush());
  }
  CHECK(must(registry.count({})) == 0);
  {
    auto other = must(BundleWriter::make(&registry, options_for("another key")));
    CHECK(other.sealed().items == 0);
  }
  auto writer = must(BundleWriter::make(&registry, options_for("k")));
  CHECK(writer.sealed().items == 10);
  CHECK(must(registry.count({})) == 10);
  const std::vector<float> weights = weights_of(7);
  const ModelFile file = must(registry.load(must(registry.find("m4/H7"))));
  CHECK(same_floats(must(must(file.tensor("rnn.weight")).floats()), std::span(weights).first(32)));
  must(registry.gc({.grace = base::Micros(0)}));
  CHECK(std::filesystem::is_empty(folder.path() / "r" / "tmp"));
}

TEST_CASE(
    "a repeated item gives the version that exists, other weights are reported and left out") {
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  auto writer = must(BundleWriter::make(&registry, options_for("k")));
  must(append(&writer, 1, weights_of(1)));
  must(writer.seal());
  must(append(&writer, 1, weights_of(1)));  // a retry of the same item
  must(append(&writer, 2, weights_of(2)));
  must(writer.seal());
  CHECK(must(registry.count({})) == 2);
  must(append(&writer, 1, weights_of(99)));
  const SealReport report = must(writer.seal());
  REQUIRE(report.conflicts.size() == 1);
  CHECK(report.conflicts[0].find("run-1/H1") != std::string::npos);
  CHECK(must(registry.count({})) == 2);
}

TEST_CASE("items appended after a seal that met a lock lie beside those of the part before") {
  TestFolder folder;
  const Path path = folder.path() / "r";
  Registry registry = open_registry(path, {.lock_timeout = std::chrono::milliseconds(20)});
  auto writer = must(BundleWriter::make(&registry, options_for("k")));
  for (int64_t i = 0; i < 3; ++i) {
    must(append(&writer, i, weights_of(i)));
  }
  {
    const auto lock = must(base::FileLock::acquire(path / "writer.lock", 0, "test"));
    CHECK(code_of(writer.seal()) == Errc::busy);
    CHECK(code_of(append(&writer, 3, weights_of(3))) == Errc::busy);
  }
  must(append(&writer, 3, weights_of(3)));
  must(writer.seal());
  CHECK(must(registry.count({})) == 4);
  CHECK(must(registry.verify({.deep = true})).clean());
  for (int64_t i = 0; i < 4; ++i) {
    const std::vector<float> weights = weights_of(i);
    const ModelFile file = must(registry.load(must(registry.find("m4/H" + std::to_string(i)))));
    CHECK(
        same_floats(must(must(file.tensor("rnn.weight")).floats()), std::span(weights).first(32)));
  }
}

TEST_CASE("keys with equal hashes are told apart") {
  // Lookup compares keys: a forged index in which all hashes are equal must still find each.
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  auto writer = must(BundleWriter::make(&registry, options_for("k")));
  for (int64_t i = 0; i < 5; ++i) {
    must(append(&writer, i, weights_of(i)));
  }
  must(writer.seal());
  const Version version = must(registry.find("m4/H0"));
  const Path path = registry.object_path(version.artifacts[0].hash);
  std::string bytes = must(base::read_file(path));
  const ModelFile file = must(ModelFile::open(path));
  const auto hashes = must(file.tensor("item.hash")).data;
  const ModelFile mapped = must(ModelFile::open(path));
  const auto first = must(mapped.tensor("weights")).data;
  const size_t data = bytes.size() - [&] {
    size_t total = 0;
    for (const TensorView& view : file.tensors()) {
      total += view.data.size();
    }
    return total;
  }();
  const auto offset =
      data + static_cast<size_t>(hashes.data() - must(file.tensor("weights")).data.data());
  (void)first;
  // One hash for all: the one of the key that is asked for.
  for (int64_t wanted = 0; wanted < 5; ++wanted) {
    const uint64_t hash = base::xxh3_64("H" + std::to_string(wanted));
    for (size_t i = 0; i < 5; ++i) {
      std::memcpy(bytes.data() + offset + 8 * i, &hash, 8);
    }
    const Path forged = folder.path() / "forged.safetensors";
    must(base::replace_file(forged, bytes));
    const ModelFile bundle = must(ModelFile::open(forged));
    const std::vector<float> weights = weights_of(wanted);
    const ModelFile item = must(bundle.item("H" + std::to_string(wanted)));
    CHECK(
        same_floats(must(must(item.tensor("rnn.weight")).floats()), std::span(weights).first(32)));
  }
}

TEST_CASE("a header beyond the reserve is written by copying once") {
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  BundleOptions options = options_for("k");
  options.header.set("dictionary", std::string(70'000, 'x'));
  auto writer = must(BundleWriter::make(&registry, options));
  for (int64_t i = 0; i < 20; ++i) {
    must(append(&writer, i, weights_of(i)));
  }
  must(writer.seal());
  const ModelFile file = must(registry.load(must(registry.find("m4/H13"))));
  CHECK(file.header().get_string("dictionary").size() == 70'000);
  const std::vector<float> weights = weights_of(13);
  CHECK(same_floats(must(must(file.tensor("rnn.weight")).floats()), std::span(weights).first(32)));
  CHECK(must(registry.verify({.deep = true})).clean());
}

TEST_CASE("a part whose log is damaged is reported and stops neither gc nor its key") {
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  {
    auto writer = must(BundleWriter::make(&registry, options_for("k")));
    for (int64_t i = 0; i < 3; ++i) {
      must(append(&writer, i, weights_of(i)));
      must(writer.flush());
    }
  }
  Path log;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "r" / "tmp")) {
    log = entry.path().extension() == ".log" ? entry.path() : log;
  }
  std::string bytes = must(base::read_file(log));
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  must(base::replace_file(log, bytes));

  CHECK(must(registry.gc({.grace = base::Micros(0)})).damaged.size() == 1);
  auto writer = must(BundleWriter::make(&registry, options_for("k")));
  REQUIRE(writer.sealed().damaged.size() == 1);
  CHECK(writer.sealed().damaged[0].find(log.string()) != std::string::npos);
  must(append(&writer, 7, weights_of(7)));
  CHECK(must(writer.seal()).items == 1);
  CHECK(std::filesystem::exists(log));
}

TEST_CASE("a damaged record is refused alone") {
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  auto writer = must(BundleWriter::make(&registry, options_for("k")));
  for (int64_t i = 0; i < 3; ++i) {
    must(append(&writer, i, weights_of(i)));
  }
  must(writer.seal());
  const Path path = registry.object_path(must(registry.find("m4/H0")).artifacts[0].hash);
  std::string bytes = must(base::read_file(path));
  bytes[kBundleReserveBytes + 192] = static_cast<char>(bytes[kBundleReserveBytes + 192] ^ 1);
  const Path damaged = folder.path() / "damaged.safetensors";
  must(base::replace_file(damaged, bytes));
  const ModelFile bundle = must(ModelFile::open(damaged));
  must(bundle.item("H0"));
  CHECK(code_of(bundle.item("H1")) == Errc::corrupt);
  must(bundle.item("H2"));
  CHECK(code_of(bundle.verify_items()) == Errc::corrupt);
  CHECK(code_of(bundle.item("H3")) == Errc::not_found);
}

TEST_CASE("a bundle keeps weights as half precision when asked") {
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    BundleOptions options = options_for(std::string(dtype_name(dtype)));
    options.dtype = dtype;
    auto writer = must(BundleWriter::make(&registry, options));
    ItemRecord item;
    const std::vector<float> weights = weights_of(3);
    const double scale = 1.0;
    item.key = "H3";
    item.name = std::string(dtype_name(dtype));
    item.weights = weights;
    item.scalars = std::span(&scale, 1);
    must(writer.append(item));
    must(writer.seal());
    const ModelFile file = must(registry.load(must(registry.find(item.name))));
    const TensorView view = must(file.tensor("rnn.weight"));
    CHECK(view.dtype == dtype);
    uint16_t half = 0;
    std::memcpy(&half, view.data.data() + 2 * 5, 2);
    CHECK(half == (dtype == Dtype::f16 ? to_float16(weights[5]) : to_bfloat16(weights[5])));
  }
}

TEST_CASE("half precision rounds as numpy does") {
  // numpy 2: np.float32(x).astype(np.float16).view(np.uint16)
  const std::pair<float, uint16_t> cases[] = {
      {0.0F, 0x0000},       {-0.0F, 0x8000},          {1.0F, 0x3C00},          {0.1F, 0x2E66},
      {65504.0F, 0x7BFF},   {65519.0F, 0x7BFF},       {65520.0F, 0x7C00},      {-1e30F, 0xFC00},
      {5.96e-8F, 0x0001},   {2.98e-8F, 0x0000},       {2.99e-8F, 0x0001},      {6.1e-5F, 0x03FF},
      {1.0009766F, 0x3C01}, {1.00048828125F, 0x3C00}, {1.00146484375F, 0x3C02}};
  for (const auto& [value, bits] : cases) {
    CAPTURE(value);
    CHECK(to_float16(value) == bits);
  }
  CHECK(to_float16(std::numeric_limits<float>::quiet_NaN()) == 0x7E00);
  CHECK(to_bfloat16(1.0F) == 0x3F80);
  CHECK(to_bfloat16(1.00390625F) == 0x3F80);  // half way, to the even one
  CHECK(to_bfloat16(1.01171875F) == 0x3F82);
}

TEST_CASE("wrong items are refused before anything is written") {
  TestFolder folder;
  Registry registry = open_registry(folder.path() / "r");
  auto writer = must(BundleWriter::make(&registry, options_for("k")));
  ItemRecord item;
  const std::vector<float> weights(kWeights);
  const double scale = 1.0;
  item.name = "m4/x";
  item.key = "x";
  item.weights = std::span(weights).first(kWeights - 1);
  item.scalars = std::span(&scale, 1);
  CHECK(code_of(writer.append(item)) == Errc::invalid_argument);
  item.weights = weights;
  item.scalars = {};
  CHECK(code_of(writer.append(item)) == Errc::invalid_argument);
  item.scalars = std::span(&scale, 1);
  item.name = "m4/x:1";
  CHECK(code_of(writer.append(item)) == Errc::invalid_argument);
  BundleOptions options = options_for("k");
  options.parameters.clear();
  CHECK(code_of(BundleWriter::make(&registry, options)) == Errc::invalid_argument);
}

}  // namespace headrace::registry
