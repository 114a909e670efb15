// SPDX-License-Identifier: Apache-2.0
// Which library is found, and what NCCL is asked for. The libraries are stand-ins (tests/gpu).
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "headrace/base/file.h"
#include "headrace/base/test_folder.h"
#include "headrace/base/test_process.h"
#include "headrace/comm/gpu/gpu_setup.h"
#include "headrace/comm/gpu/library_search.h"

namespace headrace::comm {

namespace {

const std::string kFake = HEADRACE_FAKE_GPU;

/// What `body` returns in a process of its own: a library that was loaded stays.
std::string in_child(const std::function<std::string()>& body) {
  const base::TestFolder folder;
  const auto file = folder / "said";
  base::TestProcess child([&] { return base::replace_file(file, body()).ok() ? 0 : 1; });
  REQUIRE(child.wait() == 0);
  return base::read_file(file).value_or("nothing");
}

std::string nccl_in(const std::vector<std::string>& folders) {
  const auto nccl = NcclLibrary::load(folders);
  if (!nccl.ok()) {
    return std::string(errc_name(nccl.error().code())) + ": " + nccl.error().message();
  }
  return (*nccl)->version_text() + " " + (*nccl)->path + " " + (*nccl)->told_by;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("NCCL comes from the first folder that has it") {
  CHECK(in_child([] { return nccl_in({kFake + "/good", kFake + "/other"}); }) ==
        "2.21.5 " + kFake + "/good/libnccl.so.2 " + kFake + "/good");
  CHECK(in_child([] { return nccl_in({kFake + "/other", kFake + "/good"}); }) ==
        "2.23.4 " + kFake + "/other/libnccl.so.2 " + kFake + "/other");
  CHECK(in_child([] { return nccl_in({kFake + "/nowhere", kFake + "/other"}); }) ==
        "2.23.4 " + kFake + "/other/libnccl.so.2 " + kFake + "/other");
}

TEST_CASE("a copy of NCCL that the process has loaded already wins") {
  CHECK(in_child([] {
          if (::dlopen((kFake + "/other/libnccl.so.2").c_str(), RTLD_NOW) == nullptr) {
            return std::string(::dlerror());
          }
          return nccl_in({kFake + "/good"});
        }) == "2.23.4 " + kFake + "/other/libnccl.so.2 this process");
}

TEST_CASE("an NCCL that is too old is refused with its version and its file") {
  CHECK(in_child([] { return nccl_in({kFake + "/old", kFake + "/good"}); }) ==
        "unsupported: " + kFake + "/old/libnccl.so.2 (found by " + kFake +
            "/old) is NCCL 2.17.1; headrace needs 2.18.0 or later");
}

TEST_CASE("an NCCL without a function is refused with the function's name") {
  CHECK(in_child([] { return nccl_in({kFake + "/lacking"}); }) ==
        "unsupported: " + kFake + "/lacking/libnccl.so.2 has no function ncclSend");
}

TEST_CASE("where no library is found the error has every place that was looked at") {
  const LibraryPlace places[] = {{"libnone.so.2", "this process", true},
                                 {kFake + "/nowhere/libnone.so.2", "a variable", false},
                                 {"libnone.so.2", "the system", false}};
  const auto opened = OpenLibrary::open("None", places);
  REQUIRE_FALSE(opened.ok());
  CHECK(opened.error().code() == Errc::unsupported);
  const std::string& text = opened.error().message();
  CHECK(has(text, "None was not found. Looked for: libnone.so.2 (this process): not loaded; " +
                      kFake + "/nowhere/libnone.so.2 (a variable): "));
  CHECK(has(text, "; libnone.so.2 (the system): "));
}

TEST_CASE("places are this process, the folders in their order, and the system") {
  const std::string_view names[] = {"libx.so.2"};
  const std::string folders[] = {"/a", "/b"};
  const auto places = library_places(names, folders);
  REQUIRE(places.size() == 4);
  CHECK(places[0].mapped_only);
  CHECK(places[1].path == "/a/libx.so.2");
  CHECK(places[2].path == "/b/libx.so.2");
  CHECK(places[3].path == "libx.so.2");
  CHECK_FALSE(places[3].mapped_only);
}

TEST_CASE("CUDA's runtime comes from the first folder that has one") {
  CHECK(in_child([] {
          const std::string folders[] = {kFake + "/other", kFake + "/good"};
          const auto cuda = CudaLibrary::load(folders);
          return cuda.ok() ? (*cuda)->path() : cuda.error().message();
        }) == kFake + "/good/libcudart.so.12");
}

TEST_CASE("version codes of NCCL are told as versions") {
  CHECK(nccl_version_text(21805) == "2.18.5");
  CHECK(nccl_version_text(2708) == "2.7.8");
}

TEST_CASE("NCCL's types and operations are those of the call") {
  Call call;
  call.kind = Kind::all_reduce;
  const auto is = [&](Dtype dtype, Op op, int type, int number) {
    call.dtype = dtype;
    call.op = op;
    const auto how = nccl_reduction(call, 4);
    return how.ok() && how->type == type && how->op == number && how->scale == 1.0;
  };
  CHECK(is(Dtype::f32, Op::sum, kNcclFloat32, kNcclSum));
  CHECK(is(Dtype::bf16, Op::average, kNcclBfloat16, kNcclAvg));
  CHECK(is(Dtype::f16, Op::max, kNcclFloat16, kNcclMax));
  CHECK(is(Dtype::f64, Op::min, kNcclFloat64, kNcclMin));
  CHECK(is(Dtype::i64, Op::product, kNcclInt64, kNcclProd));
  CHECK(is(Dtype::u32, Op::sum, kNcclUint32, kNcclSum));
  CHECK(is(Dtype::boolean, Op::sum, kNcclUint8, kNcclMax));
  CHECK(is(Dtype::boolean, Op::product, kNcclUint8, kNcclMin));
  CHECK(is(Dtype::boolean, Op::bor, kNcclUint8, kNcclMax));
}

TEST_CASE("a scaled average on GPUs is one scaled sum") {
  Call call;
  call.kind = Kind::all_reduce;
  call.dtype = Dtype::f32;
  call.op = Op::average;
  call.prescale = 3.0;
  call.postscale = 2.0;
  const auto how = nccl_reduction(call, 4);
  REQUIRE(how.ok());
  CHECK(how->op == kNcclSum);
  CHECK(how->scale == 1.5);
}

TEST_CASE("what NCCL cannot do is refused in words") {
  Call call;
  call.kind = Kind::all_reduce;
  const auto refused = [&](Dtype dtype, Op op, double scale, const char* why) {
    call.dtype = dtype;
    call.op = op;
    call.prescale = scale;
    const auto how = check_nccl(call, 2);
    return !how.ok() && how.error().code() == Errc::unsupported && has(how.error().message(), why);
  };
  CHECK(refused(Dtype::i16, Op::sum, 1.0, "no 16-bit integers"));
  CHECK(refused(Dtype::u16, Op::max, 1.0, "all_reduce(max) of uint16 on a GPU"));
  CHECK(refused(Dtype::i32, Op::band, 1.0, "no such operation"));
  CHECK(refused(Dtype::boolean, Op::average, 1.0, "no such operation"));
  CHECK(refused(Dtype::i32, Op::sum, 0.5, "scales sums and averages of floats only"));
  CHECK(refused(Dtype::f32, Op::max, 0.5, "scales sums and averages of floats only"));
}

TEST_CASE("ranks go through NCCL when all have the same one") {
  GpuCard card;
  card.version = 22105;
  card.cuda = 1;
  GpuCard patched = card;
  patched.version = 22108;
  const GpuCard cards[] = {card, patched};
  const int ranks[] = {0, 5};
  const auto way = common_way(cards, ranks, true);
  REQUIRE(way.ok());
  CHECK(*way == GpuWay::nccl);
}

TEST_CASE("a rank without NCCL is named, and what to do about it") {
  GpuCard with;
  with.version = 22105;
  with.cuda = 1;
  GpuCard without;
  without.cuda = 1;
  std::string("it rains").copy(without.why.data(), without.why.size() - 1);
  const GpuCard cards[] = {with, without};
  const int ranks[] = {0, 5};

  const auto refused = common_way(cards, ranks, false);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code() == Errc::unsupported);
  CHECK(has(refused.error().message(), "rank 5 cannot use it: it rains"));
  CHECK(has(refused.error().message(), "HEADRACE_COMM_GPU_STAGING=1"));

  const auto staged = common_way(cards, ranks, true);
  REQUIRE(staged.ok());
  CHECK(*staged == GpuWay::host);
}

TEST_CASE("without CUDA's runtime nothing goes through host memory either") {
  GpuCard without;
  const GpuCard cards[] = {without, without};
  const int ranks[] = {0, 1};
  const auto way = common_way(cards, ranks, true);
  REQUIRE_FALSE(way.ok());
  CHECK(way.error().code() == Errc::unsupported);
}

TEST_CASE("ranks with different versions of NCCL are told apart") {
  GpuCard one;
  one.version = 22105;
  GpuCard other;
  other.version = 22304;
  const GpuCard cards[] = {one, other};
  const int ranks[] = {0, 1};
  const auto way = common_way(cards, ranks, true);
  REQUIRE_FALSE(way.ok());
  CHECK(way.error().code() == Errc::mismatch);
  CHECK(has(way.error().message(), "rank 0 has NCCL 2.21.5, rank 1 has 2.23.4"));
}

}  // namespace headrace::comm
