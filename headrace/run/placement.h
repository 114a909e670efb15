// SPDX-License-Identifier: Apache-2.0
// Which rank goes where: hosts with slots in, ranks with their places out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/export.h"
#include "headrace/base/result.h"

namespace headrace::run {

/// A host as the user wrote it, and how many ranks it may have.
struct Host {
  std::string name;
  int slots = 1;
  bool operator==(const Host&) const = default;
};

/// "a:2,b:4"; without a number 1; an IPv6 address in brackets. `invalid_argument` says which item
/// is wrong and names a host that stands there twice.
HR_API Result<std::vector<Host>> parse_hosts(std::string_view text);
/// Lines "NAME slots=N"; "NAME:N" and "NAME" too. What follows a # is a comment.
HR_API Result<std::vector<Host>> parse_hostfile(std::string_view text, std::string_view file_name);

/// One rank: cross means among the hosts that have a rank with the same local rank.
struct Place {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;
  int cross_size = 1;
  size_t host = 0;  ///< index into the hosts
  std::string host_name;
  bool operator==(const Place&) const = default;
};

/// Fill the slots host by host, in the order given, up to `ranks`. Names are compared as they are
/// written: localhost and 127.0.0.1 are two hosts. `invalid_argument` for fewer slots than ranks.
HR_API Result<std::vector<Place>> place_ranks(const std::vector<Host>& hosts, int ranks);

/// Sum of the slots.
HR_API int slots_of(const std::vector<Host>& hosts);

}  // namespace headrace::run
