// SPDX-License-Identifier: Apache-2.0
// Messages from one rank to another, by set and tag: matched in the order they were sent.
//
// A stream leads from each rank to each other one that it has written to. Short messages come with
// their header and are kept until somebody asks for them, up to a bound; longer ones, and short
// ones above the bound, are offered first and sent once the other side has a place for them. So no
// message ever holds up another one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/file.h"
#include "headrace/base/result.h"

namespace headrace::comm {

/// First in every message; little-endian.
struct MailHeader {
  enum Type : uint32_t {
    letter = 1,   ///< `bytes` follow
    offer = 2,    ///< of `bytes`, under `id`
    accept = 3,   ///< answer to the offer `id`
    refuse = 4,   ///< the same; `bytes` is what there is room for
    content = 5,  ///< of the offer `id`; `bytes` follow
    taken = 6,    ///< `bytes` of letters were handed out
    ended = 7,    ///< answer to the offer `id`: its set has ended here
  };
  uint32_t type = 0;
  int32_t tag = 0;
  uint64_t set = 0;
  uint64_t bytes = 0;
  uint64_t id = 0;
};
static_assert(sizeof(MailHeader) == 32);

/// Called with the outcome and the rank at the other end; must not block.
using MailDone = std::function<void(const Result<void>&, int rank)>;

struct MailSend {
  uint64_t set = 0;
  int to = 0;
  int tag = 0;
  const std::byte* data = nullptr;
  size_t bytes = 0;
  base::Deadline deadline = base::Deadline::never();
  std::string what;  ///< for messages
  MailDone done;
  /// Nobody will take it any longer; why. Asked from time to time while it is an offer.
  std::function<std::string()> hopeless;
  bool seems_hopeless = false;
  bool set_ended = false;  ///< as the other side says
};

struct MailReceive {
  uint64_t set = 0;
  int from = -1;  ///< -1: any
  int tag = 0;
  std::byte* data = nullptr;
  size_t bytes = 0;
  base::Deadline deadline = base::Deadline::never();
  std::string what;
  MailDone done;
  /// Nobody can write it any longer; why. Asked from time to time.
  std::function<std::string()> hopeless;
  bool seems_hopeless = false;
  uint64_t arrived = 0;  ///< bytes from the sender, when it last seemed so
};

/// For the thread of one loop; ranks are those of the world.
class Mail {
 public:
  /// `on_lost`: the stream to a rank has ended; adopt() may bring another one.
  Mail(int epoll, std::function<void(int rank)> on_lost)
      : epoll_(epoll), on_lost_(std::move(on_lost)) {}

  /// A stream that leads to `rank`, or comes from it. Events of the key kKey + place come back.
  static constexpr uint64_t kKey = uint64_t{1} << 32;
  void adopt(int rank, base::Fd fd, bool outgoing);
  void on_event(uint64_t key);
  void send(MailSend send);
  void receive(MailReceive receive);
  /// End what is under way of a set, and all that comes later.
  void fail_set(uint64_t set, const Error& error);
  /// Nothing more is sent or taken; the connections, by rank, for what the kernel has still to
  /// send.
  std::vector<std::pair<int, base::Fd>> release();
  /// End what takes too long or has become hopeless; when to call again.
  base::Micros check();

 private:
  using SendPointer = std::shared_ptr<MailSend>;
  using ReceivePointer = std::shared_ptr<MailReceive>;
  /// A message that nobody has asked for yet.
  struct Unclaimed {
    MailHeader header;
    int from = 0;
    size_t stream = 0;  // it came by
    std::vector<std::byte> data;
    bool whole = false;
    ReceivePointer claimed;  // while it is not whole
  };
  using UnclaimedPointer = std::shared_ptr<Unclaimed>;
  struct Outgoing {
    MailHeader header;
    SendPointer send;  // whose data follow; done once they are gone
    size_t gone = 0;
    std::unique_ptr<std::byte[]> rest = nullptr;  // of the data of one that was given up
  };
  struct Stream {
    base::Fd fd;
    int rank = 0;
    bool outgoing = false;
    std::deque<Outgoing> out;
    uint64_t kept_bytes = 0;                 // of letters the other side has not said `taken` to
    std::map<uint64_t, SendPointer> offers;  // not yet answered
    std::map<uint64_t, ReceivePointer> accepted;
    uint64_t arrived = 0;  // bytes
    MailHeader in;
    size_t in_bytes = 0;      // of the header
    size_t left = 0;          // of what follows it
    std::byte* to = nullptr;  // null: thrown away
    ReceivePointer receive;
    UnclaimedPointer unclaimed;
  };
  struct Set {
    std::deque<ReceivePointer> receives;
    std::deque<UnclaimedPointer> unclaimed;
  };

  void queue(size_t stream, const MailHeader& header, SendPointer send = nullptr);
  void flush(size_t stream);
  void read(size_t stream);
  bool read_some(Stream& stream);
  void on_header(size_t stream);
  void on_end(size_t stream);
  void on_message(size_t stream);
  void refuse(const UnclaimedPointer& one);
  void check_offers();
  bool is_hopeless(MailReceive& receive, std::string* why) const;
  void take_offer(size_t stream, const MailHeader& header, const ReceivePointer& receive);
  void claim(const ReceivePointer& receive, const UnclaimedPointer& found);
  void hand_over(const UnclaimedPointer& unclaimed, const ReceivePointer& receive);
  ReceivePointer match(int from, const MailHeader& header);
  void broke(size_t stream, const std::string& why);
  void drop(const ReceivePointer& receive, const Error& error);
  void drop(const SendPointer& send, const Error& error);
  std::vector<SendPointer> sends_under_way();
  std::vector<ReceivePointer> receives_under_way();

  bool keep_rest(Outgoing& one);

  int epoll_;
  std::function<void(int)> on_lost_;
  std::vector<Stream> streams_;
  std::map<int, size_t> stream_to_;  // by rank
  std::map<uint64_t, Set> sets_;
  std::vector<std::weak_ptr<MailSend>> sends_;        // that may be under way
  std::vector<std::weak_ptr<MailReceive>> receives_;  // the same
  std::map<uint64_t, Error> failed_;                  // sets
  uint64_t next_id_ = 1;
};

}  // namespace headrace::comm
