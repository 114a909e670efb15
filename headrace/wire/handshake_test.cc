// SPDX-License-Identifier: Apache-2.0
// Bytes of the worked example were calculated with Python 3.11's hmac and hashlib.
#include "headrace/wire/handshake.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "headrace/base/checksum.h"
#include "headrace/base/random.h"
#include "headrace/wire/crypto_internal.h"
#include "headrace/wire/frame.h"
#include "headrace/wire/store.h"

namespace headrace::wire {

namespace {

Nonce nonce_of(int value) {
  Nonce nonce;
  nonce.fill(static_cast<std::byte>(value));
  return nonce;
}

Handshake make(Side side, const HandshakeOptions& options) {
  auto handshake = Handshake::make(side, options, make_nonce());
  REQUIRE(handshake.ok());
  return *std::move(handshake);
}

std::string code_text(const std::optional<Error>& error) {
  return error.has_value() ? std::string(errc_name(error->code())) : "none";
}

struct Outcome {
  std::string initiator;  // "done", or the name of its error's code
  std::string acceptor;
  std::string initiator_text;
  std::string acceptor_text;
};

/// Let both sides talk, `piece` bytes at a time, until nothing more comes.
Outcome talk(Handshake& initiator, Handshake& acceptor, size_t piece = 1000) {
  std::string to_acceptor = initiator.step({}).out;
  std::string to_initiator;
  Outcome out{"open", "open", {}, {}};
  const auto feed = [piece](Handshake& side, std::string* in, std::string* reply,
                            std::string* state, std::string* text) {
    Handshake::Step step = side.step(std::string_view(*in).substr(0, piece));
    in->erase(0, step.taken);
    *reply += step.out;
    if (step.error.has_value()) {
      *state = code_text(step.error);
      *text = step.error->message();
      in->clear();
    } else if (step.done) {
      *state = "done";
    }
  };
  for (int i = 0; i < 10'000 && !(to_acceptor.empty() && to_initiator.empty()); ++i) {
    if (!to_acceptor.empty()) {
      feed(acceptor, &to_acceptor, &to_initiator, &out.acceptor, &out.acceptor_text);
    }
    if (!to_initiator.empty()) {
      feed(initiator, &to_initiator, &to_acceptor, &out.initiator, &out.initiator_text);
    }
  }
  return out;
}

Outcome talk(const HandshakeOptions& initiator, const HandshakeOptions& acceptor) {
  Handshake a = make(Side::initiator, initiator);
  Handshake b = make(Side::acceptor, acceptor);
  return talk(a, b);
}

}  // namespace

TEST_CASE("two sides with one secret agree on keys, however their bytes are cut") {
  const Secret secret = Secret::generate();
  const HandshakeOptions options{.job_id = "job", .generation = 5, .secret = &secret};
  for (const size_t piece : {1U, 7U, 1000U}) {
    Handshake initiator = make(Side::initiator, options);
    Handshake acceptor = make(Side::acceptor, options);

    const Outcome outcome = talk(initiator, acceptor, piece);

    CHECK(outcome.initiator == "done");
    CHECK(outcome.acceptor == "done");
    const SessionKeys a = initiator.take_keys();
    const SessionKeys b = acceptor.take_keys();
    CHECK(a.send.equals(b.receive));
    CHECK(a.receive.equals(b.send));
    CHECK_FALSE(a.send.equals(a.receive));
    CHECK_FALSE(a.send.equals(secret));
    CHECK(initiator.peer_generation() == 5);
    CHECK(acceptor.peer_generation() == 5);
  }
}

TEST_CASE("the messages are those of the worked example") {
  std::array<std::byte, 32> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(i);
  }
  const Secret secret = Secret::from_bytes(bytes);
  const HandshakeOptions options{.job_id = "job-7", .generation = 3, .secret = &secret};
  Handshake initiator = *Handshake::make(Side::initiator, options, nonce_of(0x11));
  Handshake acceptor = *Handshake::make(Side::acceptor, options, nonce_of(0x22));

  const std::string hello = initiator.step({}).out;
  CHECK(base::hex(bytes_of(hello)) ==
        "48525749524501000101050000000000111111111111111111111111111111110300000000000000"
        "6a6f622d37");
  const std::string challenge = acceptor.step(hello).out;
  CHECK(base::hex(bytes_of(challenge)) ==
        "485257495245010001000000000000002222222222222222222222222222222265af08beee0fc18a"
        "65672e1760dedfb8b9e101b1ac65f7010b8c8478abaade3c");
  const std::string proof = initiator.step(challenge).out;
  CHECK(base::hex(bytes_of(proof)) ==
        "ce8def5dbca41143c39777bb5e6178eb912e4c1a62c33e6fbe32e2b0023dbc3e");
  const std::string verdict = acceptor.step(proof).out;
  CHECK(base::hex(bytes_of(verdict)) ==
        "0000000000000000030000000000000093cea33f8907048ea46224e792e8e8f6");
  CHECK(initiator.step(verdict + "next").taken == verdict.size());

  SessionKeys keys = initiator.take_keys();
  FrameSealer request(std::move(keys.send));
  std::string out;
  const StoreMessage set{.id = 1, .texts = {"rank/3", "10.0.0.5:4711"}};
  REQUIRE(request.seal({.type = 1, .flags = 0, .payload = encode_store_message(set)}, &out).ok());
  CHECK(base::hex(bytes_of(out)) ==
        "37000000010000000100000000000000000000000000000000000000000000000200000006000000"
        "72616e6b2f330d00000031302e302e302e353a34373131831e4e577e2f54a856e761aa4a2eeba5");
  FrameReader answer(std::move(keys.receive));
  SessionKeys others = acceptor.take_keys();
  FrameSealer sealer(std::move(others.send));
  out.clear();
  REQUIRE(sealer.seal({.type = 0x81, .flags = 0, .payload = encode_store_message({.id = 1})}, &out)
              .ok());
  CHECK(base::hex(bytes_of(out)) ==
        "1c0000008100000001000000000000000000000000000000000000000000000000000000c6201e12"
        "18e18eb8726b996329f4246b");
  answer.append(out);
  CHECK(answer.next()->value().type == 0x81);
}

TEST_CASE("another secret is told by the initiator before it has proved anything") {
  const Secret one = Secret::generate();
  const Secret other = Secret::generate();
  const Outcome outcome = talk({.secret = &one}, {.secret = &other});
  CHECK(outcome.initiator == "auth_failed");
  CHECK(outcome.acceptor == "open");  // it sees a closed connection
}

TEST_CASE("an acceptor takes no proof that was made without the secret") {
  const Secret one = Secret::generate();
  const Secret other = Secret::generate();
  Handshake honest = make(Side::acceptor, {.secret = &one});
  Handshake liar = make(Side::initiator, {.secret = &other});
  static_cast<void>(honest.step(liar.step({}).out));
  std::array<std::byte, 32> guess;
  base::random_bytes(guess);

  const Handshake::Step step = honest.step(text_of(guess));

  CHECK(code_text(step.error) == "auth_failed");
  CHECK(step.out.empty());
}

TEST_CASE("a secret on one side only is told on both sides") {
  const Secret secret = Secret::generate();
  for (const bool initiator_has : {true, false}) {
    const Outcome outcome = talk({.secret = initiator_has ? &secret : nullptr},
                                 {.secret = initiator_has ? nullptr : &secret});
    CHECK(outcome.initiator == "auth_failed");
    CHECK(outcome.acceptor == "auth_failed");
  }
  const Outcome insecure = talk(HandshakeOptions{}, HandshakeOptions{});
  CHECK(insecure.initiator == "done");
  CHECK(insecure.acceptor == "done");
}

TEST_CASE("another job, generation or service is a mismatch that both sides can name") {
  const Secret secret = Secret::generate();
  const HandshakeOptions base{.job_id = "a", .generation = 2, .secret = &secret};
  HandshakeOptions other = base;
  other.job_id = "b\x1b[2J";
  Outcome outcome = talk(other, base);
  CHECK(outcome.initiator == "mismatch");
  CHECK(outcome.acceptor == "mismatch");
  CHECK(outcome.acceptor_text.find("b\\x1b[2J") != std::string::npos);

  other = base;
  other.generation = 3;
  outcome = talk(other, base);
  CHECK(outcome.initiator == "mismatch");
  CHECK(outcome.initiator_text == "the job is at generation 2, this process at 3");
  CHECK(outcome.acceptor_text == "it is of generation 3, the job is at 2");

  other = base;
  other.service = Service::data;
  outcome = talk(other, base);
  CHECK(outcome.initiator == "mismatch");
  CHECK(outcome.acceptor_text == "it wants the service data, this is store");

  HandshakeOptions several = base;
  several.any_service = true;
  Handshake asking = make(Side::initiator, other);
  Handshake taking = make(Side::acceptor, several);
  CHECK(talk(asking, taking).acceptor == "done");
  CHECK(taking.peer_service() == Service::data);
  other.service = static_cast<Service>(9);
  CHECK(talk(other, several).acceptor == "mismatch");

  other = base;
  other.generation = 9;
  HandshakeOptions any = base;
  any.any_generation = true;
  CHECK(talk(other, any).initiator == "done");
  any.full = true;
  outcome = talk(base, any);
  CHECK(outcome.initiator == "busy");
  CHECK(outcome.acceptor == "busy");
}

TEST_CASE("bytes of another protocol are refused at the first that is wrong") {
  const std::vector<std::string> texts = {"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02", "H",
                                          "HRWIRX", std::string(3, '\0')};
  for (const std::string& text : texts) {
    Handshake acceptor = make(Side::acceptor, {});
    const Handshake::Step step = acceptor.step(text);
    const bool prefix = text == "H";
    CHECK(code_text(step.error) == (prefix ? "none" : "corrupt"));
    CHECK(step.out.empty());
    CHECK(acceptor.step("more").taken == (prefix ? 4 : 0));
  }
  Handshake initiator = make(Side::initiator, {});
  static_cast<void>(initiator.step({}));
  CHECK(code_text(initiator.step("SSH-2.0-OpenSSH").error) == "corrupt");
}

TEST_CASE("another version of the protocol is named on both sides") {
  Handshake acceptor = make(Side::acceptor, {});
  Handshake initiator = make(Side::initiator, {});
  std::string hello = initiator.step({}).out;
  hello[6] = 2;

  const Handshake::Step refused = acceptor.step(hello);

  CHECK(code_text(refused.error) == "mismatch");
  CHECK(refused.error->message().find("speaks version 2") != std::string::npos);
  CHECK(refused.out.size() == 8);
  std::string answer = refused.out;
  answer[6] = 9;  // as an acceptor of version 9 would answer
  CHECK(code_text(initiator.step(answer).error) == "mismatch");
}

TEST_CASE("a flipped bit anywhere in a handshake ends it on one side at least") {
  const Secret secret = Secret::generate();
  const HandshakeOptions options{.job_id = "job", .secret = &secret};
  const size_t lengths[] = {43, 64, 32, 32};
  for (size_t message = 0; message < 4; ++message) {
    for (size_t bit = 0; bit < lengths[message] * 8; ++bit) {
      Handshake initiator = make(Side::initiator, options);
      Handshake acceptor = make(Side::acceptor, options);
      std::string bytes = initiator.step({}).out;
      bool bad = false;
      bool both = false;
      for (size_t i = 0; i < 4 && !bad; ++i) {
        REQUIRE(bytes.size() == lengths[i]);
        if (i == message) {
          bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
        }
        Handshake::Step step = (i % 2 == 0 ? acceptor : initiator).step(bytes);
        // a longer or shorter job id leaves the acceptor waiting, or with bytes too many
        bad =
            step.error.has_value() || step.taken < bytes.size() || (step.out.empty() && !step.done);
        both = i == 3 && step.done;
        bytes = step.out;
      }
      CAPTURE(message);
      CAPTURE(bit);
      CHECK((bad && !both));
    }
  }
}

TEST_CASE("a handshake that was recorded is worth nothing in another connection") {
  const Secret secret = Secret::generate();
  Handshake initiator = make(Side::initiator, {.secret = &secret});
  Handshake first = make(Side::acceptor, {.secret = &secret});
  const std::string hello = initiator.step({}).out;
  const std::string proof = initiator.step(first.step(hello).out).out;

  Handshake second = make(Side::acceptor, {.secret = &secret});
  static_cast<void>(second.step(hello));

  CHECK(code_text(second.step(proof).error) == "auth_failed");
}

TEST_CASE("a job id above 255 bytes is refused here and from a peer") {
  CHECK(Handshake::make(Side::acceptor, {.job_id = std::string(256, 'j')}, make_nonce())
            .error()
            .code() == Errc::invalid_argument);
  Handshake initiator = make(Side::initiator, {.job_id = std::string(255, 'j')});
  std::string hello = initiator.step({}).out;
  hello[10] = 0;
  hello[11] = 1;
  Handshake acceptor = make(Side::acceptor, {});
  CHECK(code_text(acceptor.step(hello).error) == "corrupt");
}

}  // namespace headrace::wire
