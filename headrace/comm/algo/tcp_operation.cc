// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/algo/tcp_operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "headrace/base/random.h"
#include "headrace/comm/algo/reduce_kernel.h"

namespace headrace::comm {

namespace {

// A rank that sends nothing in an operation may be that many operations behind.
constexpr size_t kBehindMost = 8;
// What is reduced at once while more is coming: small enough that it is still in the caches of the
// core that received it.
constexpr size_t kReduceBytes = size_t{64} << 10;
// Contributions of one rank that wait for those of the others.
constexpr size_t kRingBytesMost = size_t{1} << 20;
constexpr size_t kRingBytesLeast = size_t{64} << 10;
constexpr size_t kStagingBytes = size_t{8} << 20;  // all rings together, where there are many
constexpr size_t kCallBytes = size_t{1} << 30;     // of one system call, at most
// Two ranks that exchange go back and forth in steps of this size, and neither gets further ahead
// of what came from the other than that: the bytes are copied into and out of the kernel while they
// are in the caches. 1 MiB between two ranks took 0.19 ms so and 0.51 ms with as much as the socket
// takes at once; smaller steps cost more calls than they save.
constexpr size_t kStepBytes = size_t{128} << 10;
constexpr size_t kAheadBytes = size_t{256} << 10;
// Where there are several streams between two ranks, bytes go to them in turns of this size.
constexpr size_t kStripeBytes = size_t{128} << 10;

TcpHeader header_of(const Call& part, uint64_t sequence) {
  const Call& call = part.as_told();
  TcpHeader header;
  header.flag = base::derive_seed(part.fingerprint(), sequence) | 1;
  header.sequence = sequence;
  header.count = call.count;
  header.kind = static_cast<uint8_t>(call.kind);
  header.op = static_cast<uint8_t>(call.op_as_told());
  header.dtype = static_cast<uint8_t>(call.dtype);
  header.wire16 = static_cast<uint8_t>(call.wire16);
  header.root = call.root;
  std::memcpy(header.name, call.name.data(), std::min(call.name.size(), sizeof header.name - 1));
  return header;
}

std::string describe(const TcpHeader& header) {
  TcpHeader ended = header;  // it came over the network
  ended.name[sizeof ended.name - 1] = '\0';
  if (header.kind > static_cast<uint8_t>(Kind::scatter) ||
      header.op > static_cast<uint8_t>(Op::bxor) ||
      header.dtype > static_cast<uint8_t>(Dtype::boolean) ||
      header.wire16 > static_cast<uint8_t>(Wire16::bf16)) {
    return "something that this version does not know";
  }
  return describe(static_cast<Kind>(header.kind), static_cast<Op>(header.op),
                  static_cast<Dtype>(header.dtype), header.count, header.root, ended.name,
                  static_cast<Wire16>(header.wire16));
}

/// A system call's list of pieces.
class Parts {
 public:
  explicit Parts(size_t most = kCallBytes) : most_(most) {}
  /// Append; false when it is full.
  bool add(const void* data, size_t bytes) {
    bytes = std::min(bytes, most_ - total_);
    if (bytes == 0 || count_ == parts_.size()) {
      return false;
    }
    parts_[count_++] = {.iov_base = const_cast<void*>(data), .iov_len = bytes};
    total_ += bytes;
    return true;
  }
  std::span<const iovec> span() const { return std::span(parts_).first(count_); }

 private:
  std::array<iovec, 8> parts_;
  size_t most_;
  size_t count_ = 0;
  size_t total_ = 0;
};

class TcpOperation : public Operation {
 public:
  TcpOperation(const Call& call, const TcpGroup& group, TcpLinks& links, TcpSetState& state);
  Step step() override;
  Algorithm algorithm() const override { return Algorithm::tcp; }

 private:
  /// Offsets are in contribution and result, one behind the other.
  struct Lane {
    TcpHeader header;  // ours to this rank
    size_t send_contribution = 0;
    size_t send_result = 0;
    size_t header_sent = 0;
    std::array<size_t, TcpLinks::kStreamsMax> send_at = {};  // by stream: what it sends next
    size_t sent = 0;                                         // bytes, with the header
    size_t take_contribution = 0;
    size_t take_result = 0;
    std::array<size_t, TcpLinks::kStreamsMax> take_at = {};
    size_t taken = 0;               // bytes
    size_t taken_contribution = 0;  // without a gap
    size_t taken_result = 0;        // the same

    bool receives() const { return take_contribution + take_result > 0; }
    bool all_taken() const { return taken == take_contribution + take_result; }
    /// From here on it is enough that is on its way to the other rank, which sends as much itself.
    /// Only where it has as much to send: else the rest would wait for nothing.
    size_t ahead_at(size_t ahead_bytes) const {
      const bool exchanges = take_contribution + kAheadBytes / 2 >= send_contribution;
      return exchanges && !all_taken() ? taken_contribution + taken_result + ahead_bytes : SIZE_MAX;
    }
    size_t to_send() const { return sizeof header + send_contribution + send_result; }
  };

  void narrow(Piece* piece) const;
  void prescale();
  void open_lanes();
  bool send(size_t to);
  bool send(size_t to, size_t stream);
  bool receive(size_t from);
  bool receive(size_t from, size_t stream);
  void plan_receive(size_t from, size_t stream, Parts* parts);
  void plan_payload(size_t from, size_t stream, Parts* parts);
  bool plan_run(size_t from, size_t at, size_t end, Parts* parts);
  bool on_received(size_t from, size_t stream, size_t bytes);
  void on_payload(Lane& lane, size_t stream, size_t bytes) const;
  bool check_header(size_t from);
  bool reduce();
  bool finished();
  bool needs_header(size_t from) const;
  size_t result_ready() const;
  void fail_mismatch(size_t from, const TcpHeader& ours);
  void fail_damaged(size_t from);

  std::vector<int> absent() const override {
    std::vector<int> ranks;
    for (const int rank : group_.ranks) {
      if (!state_.peers[static_cast<size_t>(rank)].expected.empty()) {
        ranks.push_back(rank);
      }
    }
    return ranks.empty() ? Operation::absent() : ranks;
  }

  int rank_of(size_t place) const { return group_.ranks[place]; }
  TcpSetState::Peer& peer_of(size_t place) {
    return state_.peers[static_cast<size_t>(rank_of(place))];
  }
  /// Bytes of the results of so many bytes of contributions.
  size_t out_bytes(size_t in_bytes) const {
    return in_bytes / dtype_bytes(call_.dtype) * dtype_bytes(call_.result_dtype());
  }

  /// Where the run of bytes ends that a stream sends one behind the other.
  size_t run_end(size_t at) const {
    return streams_ == 1 ? SIZE_MAX : at / kStripeBytes * kStripeBytes + kStripeBytes;
  }
  /// What a stream sends after `bytes` from `at` on.
  size_t after(size_t at, size_t bytes) const;
  size_t first_unsent(const Lane& lane) const {
    return *std::min_element(lane.send_at.begin(),
                             lane.send_at.begin() + static_cast<int64_t>(streams_));
  }

  const Call& call_;
  const TcpGroup& group_;
  TcpLinks& links_;
  const size_t streams_;
  TcpSetState& state_;
  const uint64_t sequence_;
  const size_t self_;  // place in the group, as all indices below
  ExchangePlan plan_;
  bool direct_ = false;  // the result lies where the contribution is sent from
  std::vector<std::byte> scaled_;
  std::vector<std::byte> result_;  // of the own part, where the user has no place for it
  std::byte* result_to_ = nullptr;
  std::vector<Lane> lanes_;
  std::vector<const std::byte*> sources_;
  size_t ring_ = 0;     // bytes of one rank's staging
  size_t reduced_ = 0;  // bytes of the own part
};

TcpOperation::TcpOperation(const Call& call, const TcpGroup& group, TcpLinks& links,
                           TcpSetState& state)
    : call_(call),
      group_(group),
      links_(links),
      streams_(static_cast<size_t>(links.streams())),
      state_(state),
      sequence_(state.sequence++),
      self_(static_cast<size_t>(std::find(group.ranks.begin(), group.ranks.end(), links.rank()) -
                                group.ranks.begin())),
      lanes_(group.ranks.size()) {
  const size_t bytes = call.count * dtype_bytes(call.dtype);
  const auto place = static_cast<int>(self_);
  const auto places = static_cast<int>(lanes_.size());
  direct_ =
      (call.kind == Kind::all_reduce || call.kind == Kind::reduce) && bytes <= state.small_bytes;
  plan_ =
      direct_ ? plan_direct(call, place, places) : plan_exchange(call, place, places, kReduceBytes);
  if (call.result_dtype() != call.dtype) {
    narrow(&plan_.result);
    std::for_each(plan_.take_result.begin(), plan_.take_result.end(),
                  [this](Piece& one) { narrow(&one); });
  }
  prescale();
  open_lanes();
}

/// The plan is in bytes of contributions; those of results are fewer.
void TcpOperation::narrow(Piece* piece) const {
  if (piece->data != nullptr) {
    piece->data = call_.out + out_bytes(static_cast<size_t>(piece->data - call_.out));
    piece->bytes = out_bytes(piece->bytes);
  }
}

/// Contributions are scaled before they leave, in a copy.
void TcpOperation::prescale() {
  if (call_.prescale == 1.0 || !is_reduction(call_.kind)) {
    return;
  }
  const size_t element = dtype_bytes(call_.dtype);
  const size_t bytes = call_.count * element;
  scaled_.resize(bytes);
  scale_elements(call_.dtype, call_.prescale, call_.in, scaled_.data(), call_.count);
  for (ConstPiece& piece : plan_.send) {
    if (piece.bytes > 0) {
      piece.data = scaled_.data() + (piece.data - call_.in);
    }
  }
  if (plan_.own.bytes > 0) {
    plan_.own.data = scaled_.data() + (plan_.own.data - call_.in);
  }
}

void TcpOperation::open_lanes() {
  const size_t ranks = lanes_.size();
  const TcpHeader header = header_of(call_, sequence_);
  for (size_t p = 0; p < ranks; ++p) {
    Lane& lane = lanes_[p];
    lane.header = header;
    for (size_t stream = 0; stream < streams_; ++stream) {
      lane.send_at[stream] = lane.take_at[stream] = stream * kStripeBytes;
    }
    if (p == self_) {
      lane.sent = lane.to_send();
      continue;
    }
    const bool published =
        plan_.publishes && (plan_.publish_to < 0 || plan_.publish_to == static_cast<int>(p));
    lane.send_contribution = plan_.send[p].bytes;
    lane.send_result = published ? out_bytes(plan_.result_bytes) : 0;
    lane.take_contribution = plan_.reduces ? plan_.result_bytes : plan_.take_sent[p].bytes;
    lane.take_result = plan_.take_result[p].bytes;
    lane.header.contribution_bytes = lane.send_contribution;
    lane.header.result_bytes = lane.send_result;
    TcpHeader expected = header;
    expected.contribution_bytes = lane.take_contribution;
    expected.result_bytes = lane.take_result;
    peer_of(p).expected.push_back(expected);
  }
  result_to_ = plan_.result.data;
  if (!plan_.reduces) {
    return;
  }
  sources_.resize(ranks);
  if (plan_.result.data == nullptr && plan_.publishes) {
    result_.resize(out_bytes(plan_.result_bytes));
    result_to_ = result_.data();
  }
  constexpr size_t kLine = 64;
  const size_t fair = std::clamp(kStagingBytes / std::max<size_t>(ranks - 1, 1) / kLine * kLine,
                                 kRingBytesLeast, kRingBytesMost);
  ring_ = std::min(fair, (plan_.result_bytes + kLine - 1) / kLine * kLine);
  if (state_.staging.size() < ring_ * ranks) {
    state_.staging.resize(ring_ * ranks);
  }
}

size_t TcpOperation::result_ready() const {
  return out_bytes(plan_.reduces ? reduced_ : plan_.result_bytes);
}

size_t TcpOperation::after(size_t at, size_t bytes) const {
  if (streams_ == 1) {
    return at + bytes;
  }
  while (bytes > 0) {
    const size_t some = std::min(bytes, run_end(at) - at);
    at += some;
    bytes -= some;
    if (at % kStripeBytes == 0) {
      at += (streams_ - 1) * kStripeBytes;
    }
  }
  return at;
}

/// One step to `to`; false: nothing could be sent.
bool TcpOperation::send(size_t to) {
  if (streams_ == 1) {
    return send(to, 0);
  }
  bool sent = false;
  for (size_t stream = 0; stream < streams_; ++stream) {
    sent = send(to, stream) || sent;
  }
  return sent;
}

bool TcpOperation::send(size_t to, size_t stream) {
  Lane& lane = lanes_[to];
  const size_t at = lane.send_at[stream];
  const size_t ready = lane.send_contribution + std::min(lane.send_result, result_ready());
  const size_t header_left = stream == 0 ? sizeof lane.header - lane.header_sent : 0;
  const size_t ahead = std::max(kAheadBytes, 2 * streams_ * kStripeBytes);
  if ((at >= ready && header_left == 0) || at > lane.ahead_at(ahead) ||
      !links_.may_send(rank_of(to), static_cast<int>(stream))) {
    return false;
  }
  Parts parts(kStepBytes);
  parts.add(reinterpret_cast<const std::byte*>(&lane.header) + lane.header_sent, header_left);
  // With checksums a header is a segment of its own: it is believed before others have come.
  const bool alone = header_left > 0 && links_.checks();
  const size_t end = alone ? at : std::min(ready, run_end(at));
  if (at < std::min(end, lane.send_contribution)) {
    parts.add(plan_.send[to].data + at, std::min(end, lane.send_contribution) - at);
  }
  const std::byte* result = plan_.reduces ? result_to_ : plan_.own.data;
  const size_t result_at = std::max(at, lane.send_contribution);
  if (result_at < end) {
    parts.add(result + (result_at - lane.send_contribution), end - result_at);
  }
  const size_t count = links_.send(rank_of(to), parts.span(), static_cast<int>(stream));
  const size_t of_header = std::min(count, header_left);
  lane.sent += count;
  lane.header_sent += of_header;
  lane.send_at[stream] = after(at, count - of_header);
  return count > 0;
}

bool TcpOperation::needs_header(size_t from) const {
  return lanes_[from].receives() || call_.kind == Kind::barrier ||
         state_.peers[static_cast<size_t>(rank_of(from))].expected.size() > kBehindMost;
}

/// Places for the bytes [at, end) that come from `from`; false: there is no room for more.
bool TcpOperation::plan_run(size_t from, size_t at, size_t end, Parts* parts) {
  const Lane& lane = lanes_[from];
  while (plan_.reduces && at < std::min(end, lane.take_contribution)) {
    const size_t may = std::min({end, lane.take_contribution, reduced_ + ring_});
    if (at >= may) {
      return false;
    }
    const size_t place = at % ring_;
    const size_t some = std::min(may - at, ring_ - place);
    if (!parts->add(state_.staging.data() + ring_ * from + place, some)) {
      return false;
    }
    at += some;
  }
  if (at < std::min(end, lane.take_contribution)) {
    const size_t some = std::min(end, lane.take_contribution) - at;
    if (!parts->add(plan_.take_sent[from].data + at, some)) {
      return false;
    }
    at += some;
  }
  return at == end ||
         parts->add(plan_.take_result[from].data + (at - lane.take_contribution), end - at);
}

void TcpOperation::plan_payload(size_t from, size_t stream, Parts* parts) {
  const Lane& lane = lanes_[from];
  const size_t all = lane.take_contribution + lane.take_result;
  size_t at = lane.take_at[stream];
  while (at < all) {
    const size_t end = std::min(all, run_end(at));
    if (!plan_run(from, at, end, parts)) {
      return;
    }
    at = after(at, end - at);
  }
}

void TcpOperation::plan_receive(size_t from, size_t stream, Parts* parts) {
  TcpSetState::Peer& peer = peer_of(from);
  if (stream > 0) {  // headers are in the first one
    plan_payload(from, stream, parts);
    return;
  }
  if (!peer.expected.empty()) {
    parts->add(reinterpret_cast<std::byte*>(&peer.header) + peer.header_bytes,
               sizeof peer.header - peer.header_bytes);
  }
  if (peer.expected.size() <= 1) {  // of operations before nothing but the headers is left
    plan_payload(from, stream, parts);
  }
}

void TcpOperation::fail_mismatch(size_t from, const TcpHeader& ours) {
  const TcpHeader& theirs = peer_of(from).header;
  const int rank = rank_of(from);
  const int own = links_.rank();
  std::string text;
  if (theirs.flag == ours.flag) {
    text = fmt::format("in operation {}, {}, rank {} sends {} bytes to rank {}, which expects {}",
                       ours.sequence, describe(ours), state_.told(rank),
                       theirs.contribution_bytes + theirs.result_bytes, state_.told(own),
                       ours.contribution_bytes + ours.result_bytes);
  } else {
    const bool first = rank < own;  // all ranks that find it say the same
    const TcpHeader& low = first ? theirs : ours;
    const TcpHeader& high = first ? ours : theirs;
    text = describe_difference(ours.sequence, describe(low), state_.told(std::min(rank, own)),
                               describe(high), state_.told(std::max(rank, own)));
  }
  error_ = Error{Errc::mismatch,
                 fmt::format("comm: {}; all ranks of a process set must call the same operations "
                             "in the same order",
                             text)};
  Origin origin;
  origin.rank = state_.told(rank);
  error_->set_origin(std::move(origin));
}

void TcpOperation::fail_damaged(size_t from) {
  const int rank = rank_of(from);
  error_ =
      Error{Errc::corrupt,
            fmt::format("comm: in operation {}, {}, bytes from rank {} came to rank {} damaged: "
                        "their checksum is not that of what was sent; see whether a network "
                        "card or the memory of either host is broken",
                        sequence_, describe(lanes_[from].header), state_.told(rank),
                        state_.told(links_.rank()))};
  Origin origin;
  origin.rank = state_.told(rank);
  error_->set_origin(std::move(origin));
}

/// A whole header is there.
bool TcpOperation::check_header(size_t from) {
  TcpSetState::Peer& peer = peer_of(from);
  peer.header_bytes = 0;
  if (peer.header.flag == TcpHeader::kGoodbye) {
    if (peer.header.sequence == TcpHeader::kFailed) {
      peer.failed = true;
    } else {
      peer.closed = true;
    }
    return false;
  }
  const TcpHeader ours = peer.expected.front();
  peer.expected.pop_front();
  if (peer.header.flag != ours.flag || peer.header.contribution_bytes != ours.contribution_bytes ||
      peer.header.result_bytes != ours.result_bytes) {
    fail_mismatch(from, ours);
    return false;
  }
  return true;
}

void TcpOperation::on_payload(Lane& lane, size_t stream, size_t bytes) const {
  lane.taken += bytes;
  lane.take_at[stream] = after(lane.take_at[stream], bytes);
  const size_t whole = *std::min_element(lane.take_at.begin(),
                                         lane.take_at.begin() + static_cast<int64_t>(streams_));
  lane.taken_contribution = std::min(whole, lane.take_contribution);
  lane.taken_result = std::min(whole - lane.taken_contribution, lane.take_result);
}

/// Note where the bytes of a receive() have gone; false: nothing more is to be read.
bool TcpOperation::on_received(size_t from, size_t stream, size_t bytes) {
  TcpSetState::Peer& peer = peer_of(from);
  if (stream == 0 && !peer.expected.empty()) {
    const size_t some = std::min(bytes, sizeof peer.header - peer.header_bytes);
    peer.header_bytes += some;
    bytes -= some;
    if (peer.header_bytes < sizeof peer.header) {
      return true;
    }
    if (!check_header(from)) {
      return false;
    }
  }
  on_payload(lanes_[from], stream, bytes);
  return true;
}

bool TcpOperation::receive(size_t from) {
  bool moved = false;
  for (size_t stream = 0; stream < streams_; ++stream) {
    moved = receive(from, stream) || moved;
  }
  if (links_.damaged(rank_of(from))) {
    fail_damaged(from);
  } else if (!links_.broken(rank_of(from)).empty()) {
    peer_of(from).ended = true;
  }
  return moved;
}

bool TcpOperation::receive(size_t from, size_t stream) {
  bool moved = false;
  const int rank = rank_of(from);
  TcpSetState::Peer& peer = peer_of(from);
  while (links_.may_receive(rank, static_cast<int>(stream)) && !peer.closed && !peer.failed) {
    Parts parts;
    plan_receive(from, stream, &parts);
    if (parts.span().empty()) {
      break;
    }
    const size_t count = links_.receive(rank, parts.span(), static_cast<int>(stream));
    moved = moved || count > 0;
    if (count == 0 || !on_received(from, stream, count)) {
      break;
    }
  }
  return moved;
}

/// Put together what has come from all.
bool TcpOperation::reduce() {
  bool moved = false;
  const size_t element = dtype_bytes(call_.dtype);
  while (plan_.reduces && reduced_ < plan_.result_bytes) {
    size_t there = plan_.result_bytes;
    for (size_t p = 0; p < lanes_.size(); ++p) {
      there = p == self_ ? there : std::min(there, lanes_[p].taken_contribution);
      // In place the contribution must be gone before the result takes its place.
      if (direct_ && p != self_ && first_unsent(lanes_[p]) < lanes_[p].send_contribution) {
        return moved;
      }
    }
    const size_t ready = (there - reduced_) / element * element;
    if (ready == 0 || (there < plan_.result_bytes && ready < std::min(kReduceBytes, ring_ / 2))) {
      return moved;
    }
    const size_t some = std::min(ready, ring_ - reduced_ % ring_);
    for (size_t p = 0; p < lanes_.size(); ++p) {
      sources_[p] = p == self_ ? plan_.own.data + reduced_
                               : state_.staging.data() + ring_ * p + reduced_ % ring_;
    }
    reduce_node_tree(
        {.in = call_.dtype, .out = call_.result_dtype(), .op = call_.op, .scale = call_.postscale},
        group_.tree, sources_, result_to_ + out_bytes(reduced_), some / element);
    reduced_ += some;
    moved = true;
  }
  return moved;
}

bool TcpOperation::finished() {
  if (plan_.reduces && reduced_ < plan_.result_bytes) {
    for (size_t p = 0; p < lanes_.size(); ++p) {
      if (p != self_ && (lanes_[p].taken_contribution == reduced_ || direct_)) {
        missing_ = rank_of(p);
      }
    }
  }
  bool done = true;
  for (size_t p = 0; p < lanes_.size(); ++p) {
    const Lane& lane = lanes_[p];
    if (p == self_) {
      continue;
    }
    const int rank = rank_of(p);
    // Who has gone needs no more headers; of what it was to have, the operation is not done.
    const bool gone = !links_.takes(rank) && lane.to_send() == sizeof lane.header;
    const bool waits = (lane.sent < lane.to_send() && !gone) || !lane.all_taken() ||
                       (needs_header(p) && !peer_of(p).expected.empty());
    if (waits) {
      done = false;
      missing_ = missing_ < 0 || peer_of(p).closed ? rank : missing_;
    }
  }
  return done && (!plan_.reduces || reduced_ == plan_.result_bytes);
}

Step TcpOperation::step() {
  if (error_) {
    return Step::failed;
  }
  bool moved = false;
  bool again = true;
  while (again) {
    again = false;
    for (size_t i = 1; i < lanes_.size(); ++i) {
      const size_t p = (self_ + i) % lanes_.size();  // not all to one first
      again = send(p) || again;
      again = receive(p) || again;
      if (error_) {
        return Step::failed;
      }
    }
    again = reduce() || again;
    moved = moved || again;
    if (!again) {
      missing_ = -1;
      if (finished()) {
        break;
      }
      if (!links_.refresh()) {
        return moved ? Step::moved : Step::stuck;
      }
      again = true;
    }
  }
  if (!plan_.reduces && plan_.result.data != nullptr && plan_.own.bytes > 0 &&
      plan_.result.data != plan_.own.data) {
    std::memmove(plan_.result.data, plan_.own.data, plan_.own.bytes);
  }
  return Step::done;
}

}  // namespace

std::unique_ptr<Operation> start_tcp_operation(const Call& call, const TcpGroup& group,
                                               TcpLinks& links, TcpSetState& state) {
  return std::make_unique<TcpOperation>(call, group, links, state);
}

bool next_tcp_begun(const TcpLinks& links, const TcpSetState& state) {
  for (int r = 0; r < links.ranks(); ++r) {
    const TcpSetState::Peer& peer = state.peers[static_cast<size_t>(r)];
    // Headers of operations in which it sent nothing may come first.
    const size_t before = peer.expected.size() * sizeof(TcpHeader) - peer.header_bytes;
    if (r != links.rank() && !peer.closed && !peer.failed &&
        links.has_bytes_after(r, before, peer.expected.size())) {
      return true;
    }
  }
  return false;
}

void say_goodbye(TcpLinks& links, bool failed) {
  TcpHeader goodbye;
  goodbye.sequence = failed ? TcpHeader::kFailed : 0;
  const iovec part = {.iov_base = &goodbye, .iov_len = sizeof goodbye};
  for (int r = 0; r < links.ranks(); ++r) {
    if (r != links.rank() && links.may_send(r)) {
      links.send(r, {&part, 1});
    }
  }
  links.finish();
}

}  // namespace headrace::comm
