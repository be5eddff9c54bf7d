// SPDX-License-Identifier: Apache-2.0
//
// A program with connections of its own and one to a peer that turns out to be hostile. Standard
// verbs only. It obeys lines on its standard input, each answered by a line:
//   target GID QPN   a new queue pair, connected to that; prints what the peer is told of it
//   check            one round over its own connections, then whether all is as it should be
//   heap             KiB that it and its libraries have from malloc
// Between them it keeps its own connections busy.
#include <arpa/inet.h>
#include <malloc.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include "hostile/victim_ends.h"
#include "hostile/victim_listener.h"

namespace verbena::hostile {
namespace {

constexpr std::uint32_t kQkey = 0x1111;
constexpr std::size_t kMessage = 3000;  // some packets
constexpr std::size_t kGrh = 40;

ibv_sge piece_of(const Ground& ground, std::size_t region, std::size_t offset, std::size_t length) {
  ibv_mr* const mr = ground.region(region);
  return {.addr = reinterpret_cast<std::uintptr_t>(mr->addr) + offset,
          .length = static_cast<std::uint32_t>(length),
          .lkey = mr->lkey};
}

/// Two reliable queue pairs connected to each other. They come anew when a flood breaks them.
class OwnPair {
 public:
  explicit OwnPair(Ground& ground) : ground_(ground) { renew(); }

  /// A SEND and a READ, checked by their bytes. A connection may break in a flood, for one reason.
  void round() {
    const auto bytes = ground_.bytes(Ground::kOwn);
    const auto mark = static_cast<std::byte>(++rounds_);
    std::memset(bytes.data(), static_cast<int>(mark), kMessage);
    std::memset(bytes.data() + kMessage, 0, 2 * kMessage);
    second_->receive(piece_of(ground_, Ground::kOwn, kMessage, kMessage));
    ibv_sge from = piece_of(ground_, Ground::kOwn, 0, kMessage);
    ibv_send_wr request{};
    request.sg_list = &from;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    if (!done(*first_, request, "SEND")) return;
    ibv_wc completion;
    if (!second_->completion(completion)) die("a receive has no completion");
    ibv_sge to = piece_of(ground_, Ground::kOwn, 2 * kMessage, kMessage);
    request.sg_list = &to;
    request.opcode = IBV_WR_RDMA_READ;
    request.wr.rdma.remote_addr = from.addr + kMessage;
    request.wr.rdma.rkey = ground_.region(Ground::kOwn)->rkey;
    if (!done(*first_, request, "READ")) return;
    for (std::size_t i = kMessage; i < 3 * kMessage; ++i) {
      if (bytes[i] != mark) die("the bytes of an own message are wrong");
    }
  }

  [[nodiscard]] const End& first() const { return *first_; }
  [[nodiscard]] std::uint64_t rounds() const { return rounds_; }
  [[nodiscard]] std::uint64_t broken() const { return broken_; }

 private:
  bool done(End& end, const ibv_send_wr& request, const char* what) {
    end.post(request);
    ibv_wc completion;
    if (!end.completion(completion)) die(std::string(what) + " has no completion");
    if (completion.status == IBV_WC_SUCCESS) return true;
    if (completion.status != IBV_WC_RETRY_EXC_ERR)
      die(std::string(what) + " ended with " + ibv_wc_status_str(completion.status));
    ++broken_;
    renew();
    return false;
  }

  void renew() {
    first_.reset();
    second_.reset();
    first_ = std::make_unique<End>(ground_, IBV_QPT_RC);
    second_ = std::make_unique<End>(ground_, IBV_QPT_RC);
    first_->connect({.gid = ground_.gid(), .qp_number = second_->number(), .psn = second_->psn()});
    second_->connect({.gid = ground_.gid(), .qp_number = first_->number(), .psn = first_->psn()});
  }

  Ground& ground_;
  std::unique_ptr<End> first_;
  std::unique_ptr<End> second_;
  std::uint64_t rounds_ = 0;
  std::uint64_t broken_ = 0;
};

class Victim {
 public:
  Victim() : own_(ground_), datagrams_(ground_, IBV_QPT_UD), listener_(ground_.gid()) {
    datagrams_.activate(kQkey);
  }

  /// Until its input ends.
  void run() {
    std::string line;
    for (;;) {
      pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
      if (poll(&input, 1, 1) > 0) {
        if (!std::getline(std::cin, line)) return;
        std::cout << obey(line) << '\n' << std::flush;
      }
      attend();
      listener_.attend();
      own_.round();
    }
  }

 private:
  std::string obey(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (command == "target") return target(words);
    if (command == "check") return check();
    if (command == "heap") return heap();
    return "what?";
  }

  std::string target(std::istringstream& words) {
    std::string address;
    Remote remote{.psn = 1000};
    if (!(words >> address >> remote.qp_number) ||
        inet_pton(AF_INET6, address.c_str(), remote.gid.raw) != 1)
      return "which peer?";
    target_.reset();
    target_ = std::make_unique<End>(ground_, IBV_QPT_RC);
    target_->connect(remote);
    attend();
    std::ostringstream text;
    text << "--qpn " << target_->number() << " --psn " << remote.psn << " --own-psn "
         << target_->psn() << " --address "
         << reinterpret_cast<std::uintptr_t>(ground_.region(Ground::kReachable)->addr)
         << " --length " << Ground::kRegion << " --rkey "
         << ground_.region(Ground::kReachable)->rkey << " --read-only-rkey "
         << ground_.region(Ground::kReadOnly)->rkey << " --read-only-address "
         << reinterpret_cast<std::uintptr_t>(ground_.region(Ground::kReadOnly)->addr)
         << " --datagram-qpn " << datagrams_.number() << " --qkey " << kQkey << " --other-qpn "
         << own_.first().number() << " --service-port " << listener_.port();
    return text.str();
  }

  /// Gives the peer's messages room again: without it a flood of them would end in RNR NAKs.
  void attend() {
    if (target_ && target_->state() == IBV_QPS_RTS) supply(*target_);
    supply(datagrams_);
  }

  void supply(End& end) {
    end.clear();
    const ibv_sge room = piece_of(ground_, Ground::kReceives, 0, 4096 + kGrh);
    // Bounded: on a queue pair that has just ended each post is flushed at once.
    for (std::uint32_t i = 0; i < End::kDepth && end.try_receive(room); ++i) {}
  }

  static std::string heap() {
    const struct mallinfo2 now = mallinfo2();
    return std::to_string((now.uordblks + now.hblkhd) / 1024);
  }

  std::string check() {
    own_.round();
    listener_.check();
    const std::size_t changed = ground_.first_changed();
    if (changed != ground_.size()) return "wrong: byte " + std::to_string(changed) + " changed";
    const bool alive = target_ && target_->state() == IBV_QPS_RTS;
    std::ostringstream text;
    text << "fine " << (alive ? "alive" : "ended") << ' ' << own_.rounds() << ' ' << own_.broken();
    return text.str();
  }

  Ground ground_;
  OwnPair own_;
  End datagrams_;
  Listener listener_;
  std::unique_ptr<End> target_;
};

}  // namespace
}  // namespace verbena::hostile

int main() {
  verbena::hostile::Victim().run();
  return 0;
}
