// SPDX-License-Identifier: Apache-2.0
#include "headrace/wire/interface.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <memory>

#include "headrace/wire/endpoint.h"
#include "headrace/wire/socket_internal.h"

namespace headrace::wire {

namespace {

/// 4 or 16 bytes of an address literal; empty when it is none.
std::string address_bytes(const std::string& text) {
  std::string bytes(sizeof(in6_addr), '\0');
  if (::inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1) {
    return bytes;
  }
  bytes.resize(sizeof(in_addr));
  return ::inet_pton(AF_INET, text.c_str(), bytes.data()) == 1 ? bytes : std::string();
}

bool same_network(std::string_view a, std::string_view b, int bits) {
  if (a.size() != b.size()) {
    return false;
  }
  const auto whole = static_cast<size_t>(bits / 8);
  if (a.substr(0, whole) != b.substr(0, whole)) {
    return false;
  }
  const int rest = bits % 8;
  if (rest == 0) {
    return true;
  }
  const auto difference = static_cast<unsigned char>(a[whole] ^ b[whole]);
  return (difference >> (8 - rest)) == 0;
}

int ones(const void* mask, size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(mask);
  int count = 0;
  for (size_t i = 0; i < bytes; ++i) {
    count += std::popcount(at[i]);
  }
  return count;
}

/// The literal of an interface's address; false for what is no address of a host.
bool read_address(const ifaddrs& entry, LocalAddress* out) {
  char text[INET6_ADDRSTRLEN] = {};
  if (entry.ifa_addr->sa_family == AF_INET) {
    const auto* address = reinterpret_cast<const sockaddr_in*>(entry.ifa_addr);
    ::inet_ntop(AF_INET, &address->sin_addr, text, sizeof text);
    if (entry.ifa_netmask != nullptr) {
      const auto* mask = reinterpret_cast<const sockaddr_in*>(entry.ifa_netmask);
      out->prefix_bits = ones(&mask->sin_addr, sizeof mask->sin_addr);
    }
  } else if (entry.ifa_addr->sa_family == AF_INET6) {
    const auto* address = reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr);
    if (IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr)) {
      return false;
    }
    ::inet_ntop(AF_INET6, &address->sin6_addr, text, sizeof text);
    if (entry.ifa_netmask != nullptr) {
      const auto* mask = reinterpret_cast<const sockaddr_in6*>(entry.ifa_netmask);
      out->prefix_bits = ones(&mask->sin6_addr, sizeof mask->sin6_addr);
    }
  } else {
    return false;
  }
  out->interface_name = entry.ifa_name;
  out->address = text;
  return true;
}

}  // namespace

Result<LocalAddresses> local_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return errno_error(errno, "listing the addresses of this machine");
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  LocalAddresses out;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    LocalAddress address;
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0 ||
        !read_address(*entry, &address)) {
      continue;
    }
    const bool loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    (loopback ? out.loopback : out.network).push_back(std::move(address));
  }
  return out;
}

Result<bool> is_this_machine(const std::string& host, const base::Deadline& deadline) {
  const Endpoint endpoint = Endpoint::tcp(host, 1);
  if (endpoint.is_loopback()) {
    return true;
  }
  HR_TRY(const auto own, local_addresses());
  HR_TRY(const auto theirs, resolve(endpoint, deadline));
  for (const SocketAddress& address : theirs) {
    const Endpoint one = endpoint_of(address);
    const auto is_it = [&](const LocalAddress& local) { return local.address == one.host; };
    if (one.is_loopback() || std::any_of(own.network.begin(), own.network.end(), is_it) ||
        std::any_of(own.loopback.begin(), own.loopback.end(), is_it)) {
      return true;
    }
  }
  return false;
}

Result<InterfaceFilter> InterfaceFilter::parse(std::string_view text) {
  InterfaceFilter filter;
  if (text.empty()) {
    return filter;
  }
  std::string_view rest = text;
  if (rest.front() == '^') {
    filter.exclude_ = true;
    rest.remove_prefix(1);
  }
  for (;;) {
    const size_t comma = rest.find(',');
    HR_TRY(auto item, parse_item(rest.substr(0, comma)),
           fmt::format("the choice of interfaces \"{}\"", text));
    filter.items_.push_back(std::move(item));
    if (comma == std::string_view::npos) {
      return filter;
    }
    rest.remove_prefix(comma + 1);
  }
}

Result<InterfaceFilter::Item> InterfaceFilter::parse_item(std::string_view text) {
  if (text.empty()) {
    return Error{Errc::invalid_argument, "an item of the list is empty"};
  }
  if (text.front() == '^') {
    return Error{Errc::invalid_argument,
                 fmt::format("\"{}\": a ^ stands once, in front of the whole list, and leaves out "
                             "all of it",
                             text)};
  }
  if (text.find_first_of(" \t") != std::string_view::npos) {
    return Error{Errc::invalid_argument,
                 fmt::format("\"{}\": no interface has a blank in its name", text)};
  }
  const size_t slash = text.find('/');
  Item item;
  item.network = address_bytes(std::string(text.substr(0, slash)));
  if (slash == std::string_view::npos && item.network.empty()) {
    const size_t star = text.find('*');
    if (star != std::string_view::npos && star + 1 != text.size()) {
      return Error{Errc::invalid_argument, fmt::format("\"{}\": a * stands at the end only", text)};
    }
    item.prefix = star != std::string_view::npos;
    item.text = std::string(text.substr(0, star));
    return item;
  }
  const int bits_max = static_cast<int>(item.network.size()) * 8;
  item.bits = bits_max;
  if (slash != std::string_view::npos) {
    const std::string_view number = text.substr(slash + 1);
    const auto end = std::from_chars(number.data(), number.data() + number.size(), item.bits);
    if (item.network.empty() || end.ec != std::errc() || end.ptr != number.data() + number.size() ||
        item.bits < 0 || item.bits > bits_max) {
      return Error{Errc::invalid_argument,
                   fmt::format("\"{}\" is no network; write 10.1.0.0/16 or 2001:db8::/32", text)};
    }
  }
  return item;
}

bool InterfaceFilter::matches(const Item& item, const LocalAddress& address) {
  if (!item.network.empty()) {
    return same_network(item.network, address_bytes(address.address), item.bits);
  }
  return item.prefix ? address.interface_name.starts_with(item.text)
                     : address.interface_name == item.text;
}

bool InterfaceFilter::accepts(const LocalAddress& address) const {
  if (items_.empty()) {
    return true;
  }
  const bool listed = std::any_of(items_.begin(), items_.end(),
                                  [&](const Item& item) { return matches(item, address); });
  return listed != exclude_;
}

std::vector<LocalAddress> InterfaceFilter::choose(
    const std::vector<LocalAddress>& addresses) const {
  std::vector<LocalAddress> out;
  std::copy_if(addresses.begin(), addresses.end(), std::back_inserter(out),
               [this](const LocalAddress& address) { return accepts(address); });
  return out;
}

}  // namespace headrace::wire
