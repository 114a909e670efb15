// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/gpu/nccl_library.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "headrace/comm/gpu/library_search.h"

namespace headrace::comm {

namespace {

constexpr std::string_view kName[] = {"libnccl.so.2"};
constexpr int kOldest = 21800;

Errc code_of(int result) {
  switch (result) {
    case kNcclInvalidArgument:
    case kNcclInvalidUsage: return Errc::invalid_argument;
    case kNcclRemoteError: return Errc::peer_dead;
    case kNcclInternalError: return Errc::internal;
    default: return Errc::io;
  }
}

Result<void> bind_groups(const OpenLibrary& library, NcclLibrary* nccl) {
  HR_TRY(library.bind("ncclGetErrorString", &nccl->error_string));
  HR_TRY(library.bind("ncclGetLastError", &nccl->last_error));
  HR_TRY(library.bind("ncclGetUniqueId", &nccl->get_unique_id));
  HR_TRY(library.bind("ncclCommInitRankConfig", &nccl->init_rank));
  HR_TRY(library.bind("ncclCommFinalize", &nccl->finalize));
  HR_TRY(library.bind("ncclCommDestroy", &nccl->destroy));
  HR_TRY(library.bind("ncclCommAbort", &nccl->abort));
  HR_TRY(library.bind("ncclCommGetAsyncError", &nccl->async_error));
  HR_TRY(library.bind("ncclGroupStart", &nccl->group_start));
  HR_TRY(library.bind("ncclGroupEnd", &nccl->group_end));
  return {};
}

Result<void> bind_operations(const OpenLibrary& library, NcclLibrary* nccl) {
  HR_TRY(library.bind("ncclAllReduce", &nccl->all_reduce));
  HR_TRY(library.bind("ncclReduce", &nccl->reduce));
  HR_TRY(library.bind("ncclBroadcast", &nccl->broadcast));
  HR_TRY(library.bind("ncclAllGather", &nccl->all_gather));
  HR_TRY(library.bind("ncclReduceScatter", &nccl->reduce_scatter));
  HR_TRY(library.bind("ncclSend", &nccl->send));
  HR_TRY(library.bind("ncclRecv", &nccl->recv));
  HR_TRY(library.bind("ncclRedOpCreatePreMulSum", &nccl->make_scaled_sum));
  HR_TRY(library.bind("ncclRedOpDestroy", &nccl->free_op));
  return {};
}

}  // namespace

std::string nccl_version_text(int version) {
  // Up to 2.8 a code had four digits.
  const int major = version < 10000 ? version / 1000 : version / 10000;
  const int minor = version < 10000 ? version / 100 % 10 : version / 100 % 100;
  return fmt::format("{}.{}.{}", major, minor, version % 100);
}

std::string NcclLibrary::version_text() const { return nccl_version_text(version); }

Result<std::shared_ptr<const NcclLibrary>> NcclLibrary::load(std::span<const std::string> folders) {
  HR_TRY(const auto library, OpenLibrary::open("NCCL", library_places(kName, folders)));
  auto nccl = std::make_shared<NcclLibrary>();
  nccl->path = library.path();
  nccl->told_by = library.told_by();
  HR_TRY(library.bind("ncclGetVersion", &nccl->get_version));
  if (nccl->get_version(&nccl->version) != kNcclSuccess || nccl->version < kOldest) {
    return Error{Errc::unsupported,
                 fmt::format("{} (found by {}) is NCCL {}; headrace needs {} or later", nccl->path,
                             nccl->told_by, nccl->version_text(), nccl_version_text(kOldest))};
  }
  HR_TRY(bind_groups(library, nccl.get()));
  HR_TRY(bind_operations(library, nccl.get()));
  return std::shared_ptr<const NcclLibrary>(std::move(nccl));
}

Error NcclLibrary::error(int result, std::string_view call, ncclComm* comm) const {
  const char* kind = error_string(result);
  const char* last = comm != nullptr ? last_error(comm) : nullptr;
  return {code_of(result),
          fmt::format("comm: {} of NCCL {}: {} (result {}){}{}", call, version_text(),
                      kind != nullptr ? kind : "?", result,
                      last != nullptr && *last != '\0' ? ": " : "", last != nullptr ? last : "")};
}

}  // namespace headrace::comm
