// SPDX-License-Identifier: Apache-2.0
// The addresses of this machine, and a choice among them in one syntax.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/export.h"
#include "headrace/base/result.h"

namespace headrace::wire {

/// An address of an interface that is up.
struct LocalAddress {
  std::string interface_name;
  std::string address;  ///< a literal: "10.0.0.5", "2001:db8::7"
  int prefix_bits = 0;  ///< of its network
  bool operator==(const LocalAddress&) const = default;
};

struct LocalAddresses {
  std::vector<LocalAddress> network;   ///< what peers on other machines may reach
  std::vector<LocalAddress> loopback;  ///< what only this machine reaches
};

/// All addresses of the machine, in the kernel's order, by getifaddrs: no name is looked up.
/// Link-local IPv6 addresses are left out: they mean something only with an interface's name, which
/// differs from machine to machine.
HR_API Result<LocalAddresses> local_addresses();

/// Whether a host's name or address means this machine: one of its addresses, loopback included.
/// `not_found` for a name that nobody knows, `timeout`.
HR_API Result<bool> is_this_machine(const std::string& host, const base::Deadline& deadline);

/// A choice of interfaces (HEADRACE_IFACE): a comma list of exact names ("eth0"), prefixes ("ib*"),
/// addresses and networks ("10.1.0.0/16", "2001:db8::/32"). A ^ in front turns the whole list into
/// what is left out ("^docker0,veth*"). Empty: everything. Pure.
class HR_API InterfaceFilter {
 public:
  InterfaceFilter() = default;
  /// `invalid_argument` names the item that is wrong.
  static Result<InterfaceFilter> parse(std::string_view text);
  bool accepts(const LocalAddress& address) const;
  /// Those it accepts, in their order.
  std::vector<LocalAddress> choose(const std::vector<LocalAddress>& addresses) const;

 private:
  struct Item {
    std::string text;  // an interface's name, or the start of one
    bool prefix = false;
    std::string network;  // 4 or 16 bytes of an address; empty: a name
    int bits = 0;
  };
  static Result<Item> parse_item(std::string_view text);
  static bool matches(const Item& item, const LocalAddress& address);
  std::vector<Item> items_;
  bool exclude_ = false;
};

}  // namespace headrace::wire
