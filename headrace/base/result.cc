// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/result.h"

#include <cerrno>
#include <cstring>

namespace headrace {

std::string_view errc_name(Errc code) {
  switch (code) {
    case Errc::invalid_argument: return "invalid_argument";
    case Errc::not_found: return "not_found";
    case Errc::already_exists: return "already_exists";
    case Errc::mismatch: return "mismatch";
    case Errc::corrupt: return "corrupt";
    case Errc::io: return "io";
    case Errc::out_of_space: return "out_of_space";
    case Errc::out_of_memory: return "out_of_memory";
    case Errc::timeout: return "timeout";
    case Errc::cancelled: return "cancelled";
    case Errc::child_failed: return "child_failed";
    case Errc::unsupported: return "unsupported";
    case Errc::busy: return "busy";
    case Errc::peer_dead: return "peer_dead";
    case Errc::auth_failed: return "auth_failed";
    case Errc::internal: return "internal";
  }
  return "internal";
}

Error errno_error(int error_number, std::string_view what) {
  Errc code = Errc::io;
  switch (error_number) {
    case ENOSPC:
    case EDQUOT: code = Errc::out_of_space; break;
    case ENOENT: code = Errc::not_found; break;
    case EEXIST: code = Errc::already_exists; break;
    case ENOMEM: code = Errc::out_of_memory; break;
    default: break;
  }
  char buffer[128];
  std::string text = std::string(what) + ": " + strerror_r(error_number, buffer, sizeof buffer);
  if (code == Errc::out_of_space) {
    text += "; free some space there and try again";
  } else if (error_number == EROFS) {
    text += "; mount it for writing, or name another place";
  } else if (error_number == EACCES) {
    text += "; give this user the right, or name another place";
  }
  return Error{code, std::move(text)};
}

}  // namespace headrace
