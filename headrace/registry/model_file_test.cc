// SPDX-License-Identifier: Apache-2.0
#include "headrace/registry/model_file.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "headrace/registry/test_models.h"

namespace headrace::registry {

namespace {

const Path kCorpus = Path(HEADRACE_SOURCE_DIR) / "fuzz" / "corpus" / "safetensors";

std::vector<Path> corpus() {
  std::vector<Path> files;
  for (const auto& entry : std::filesystem::directory_iterator(kCorpus)) {
    if (entry.path().extension() == ".safetensors") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

TEST_CASE("each rule of the container is kept: what must be refused is, the rest opens") {
  // tools/safetensors_corpus.py wrote the files; tests/python/test_safetensors.py reads the same
  // ones with the reference reader.
  CHECK(corpus().size() > 50);
  for (const Path& path : corpus()) {
    const std::string name = path.filename().string();
    CAPTURE(name);
    for (const bool copy : {false, true}) {
      const auto file = ModelFile::open(path, {.copy = copy});
      if (name.substr(0, 3) == "ok-") {
        CHECK_MESSAGE(file.ok(), (file.ok() ? "" : file.error().message()));
      } else {
        REQUIRE(!file.ok());
        const Errc code = file.error().code();
        CHECK((code == Errc::corrupt || code == Errc::unsupported));
        CHECK(file.error().message().find(name) != std::string::npos);
      }
    }
  }
}

TEST_CASE("a file that is cut anywhere is refused") {
  TestFolder folder;
  const std::string whole = must(base::read_file(kCorpus / "ok-model.safetensors"));
  for (size_t length = 0; length < whole.size(); ++length) {
    const Path path = folder.path() / "cut.safetensors";
    must(base::replace_file(path, whole.substr(0, length)));
    CHECK(!ModelFile::open(path).ok());
  }
}

TEST_CASE(
    "the same model gives the same bytes, data begins at a multiple of 64, names keep order") {
  const std::vector<float> w = {1.0F, 2.0F};
  const std::vector<double> d = {3.0};
  const std::vector<uint8_t> u = {4, 5, 6};
  const std::vector<Tensor> tensors = {{"u", Dtype::u8, {3}, std::as_bytes(std::span(u))},
                                       {"b.w", Dtype::f32, {2}, std::as_bytes(std::span(w))},
                                       {"d", Dtype::f64, {}, std::as_bytes(std::span(d))},
                                       {"a.w", Dtype::f32, {2, 1}, std::as_bytes(std::span(w))}};
  Json header = Json::object({{"kind", "x"}, {"b", 1}, {"a", 0.1}});
  Json other = Json::object({{"a", 0.1}, {"b", 1}, {"kind", "x"}});
  std::vector<size_t> order;
  const std::string head = must(model_file_head(header, tensors, &order));
  CHECK(head.size() % 64 == 0);
  CHECK(order == std::vector<size_t>{2, 3, 1, 0});  // f64, then f32 by name, then u8
  CHECK(head == must(model_file_head(other, tensors, &order)));
  CHECK(head.find(R"({\"a\":0.1,\"b\":1,\"kind\":\"x\"})") != std::string::npos);

  std::vector<Tensor> wrong = tensors;
  wrong[1].shape = {3};
  CHECK(code_of(model_file_head(header, wrong, &order)) == Errc::invalid_argument);
  wrong = tensors;
  wrong[1].name = "u";
  CHECK(code_of(model_file_head(header, wrong, &order)) == Errc::invalid_argument);
}

TEST_CASE("a file for newer readers is refused, naming what is needed") {
  TestFolder folder;
  std::string text = must(base::read_file(kCorpus / "ok-model.safetensors"));
  const std::string ours = R"("headrace.min_reader": "1")";
  REQUIRE(text.find(ours) != std::string::npos);
  text.replace(text.find(ours), ours.size(), R"("headrace.min_reader": "2")");
  must(base::replace_file(folder.path() / "newer", text));
  const auto refused = ModelFile::open(folder.path() / "newer");
  CHECK(code_of(refused) == Errc::unsupported);
  CHECK(refused.error().message().find("readers of version \"2\"") != std::string::npos);
  CHECK(refused.error().message().find("update headrace") != std::string::npos);
}

TEST_CASE("what a file lacks is named") {
  const ModelFile file = must(ModelFile::open(kCorpus / "ok-model.safetensors"));
  const auto absent = file.tensor("v");
  CHECK(code_of(absent) == Errc::not_found);
  CHECK(absent.error().message().find("it has w") != std::string::npos);
  CHECK(code_of(file.item("a")) == Errc::invalid_argument);
  CHECK(code_of(ModelFile::open(kCorpus / "absent")) == Errc::not_found);
  CHECK(code_of(ModelFile::open(kCorpus)) == Errc::invalid_argument);
  const ModelFile nan =
      must(ModelFile::open(kCorpus / "strict-model-nan.safetensors", {.allow_nonfinite = true}));
  CHECK(nan.tensors().size() == 1);
}

}  // namespace headrace::registry
