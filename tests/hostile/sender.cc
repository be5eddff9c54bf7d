// SPDX-License-Identifier: Apache-2.0
#include "hostile/sender.h"

#include <netinet/udp.h>

#include <array>
#include <cstring>
#include <utility>

#include "link/send_batch.h"
#include "link/udp_socket.h"
#include "wire/headers.h"
#include "wire/icrc.h"

namespace verbena::hostile {
namespace {

constexpr int kAnswersAtOnce = 4096;
constexpr int kAnswerBuffer = 4 << 20;

}  // namespace

bool Run::takes(const Datagram& datagram) const {
  return count_ == 0 || (datagram.size == segment_ && count_ < wire::kMaxSendSegments &&
                         bytes_.size() + datagram.size <= wire::kMaxSendBytes);
}

void Run::add(const Datagram& datagram, const wire::Path& path) {
  const std::size_t before = bytes_.size();
  bytes_.insert(bytes_.end(), datagram.bytes.begin(), datagram.bytes.begin() + datagram.size);
  if (datagram.right_icrc && datagram.size >= wire::kIcrcSize) {
    std::byte* const to = bytes_.data() + before;
    const std::size_t covered = datagram.size - wire::kIcrcSize;
    wire::store_icrc(to + covered, wire::icrc(path, count_, ConstBytes(to, covered)));
  }
  segment_ = static_cast<std::uint16_t>(datagram.size);
  ++count_;
}

void Run::clear() {
  bytes_.clear();
  count_ = 0;
}

Result<Sender> Sender::create(const wire::Path& path) {
  sys::OwnedFd socket =
      VERBENA_TRY(link::open_udp_socket(path.source, 0, link::Sharing::kExclusive));
  auto answers = link::open_udp_socket(path.source, wire::kRoceUdpPort, link::Sharing::kExclusive);
  if (answers) link::set_receive_buffer(answers->get(), kAnswerBuffer);
  wire::Path from = path;
  from.source_port = VERBENA_TRY(link::bound_address(socket.get())).port();
  return Sender(from, std::move(socket), answers ? std::move(*answers) : sys::OwnedFd());
}

Sender::Sender(const wire::Path& path, sys::OwnedFd socket, sys::OwnedFd answers)
    : path_(path), socket_(std::move(socket)), answers_(std::move(answers)) {}

void Sender::send(const Datagram& datagram) {
  if (!waiting_.takes(datagram)) flush();
  waiting_.add(datagram, path_);
}

void Sender::flush() {
  if (waiting_.count() == 0) return;
  send(waiting_);
  waiting_.clear();
}

void Sender::send(const Run& run) {
  const link::SocketAddress to(path_.destination, wire::kRoceUdpPort, 0);
  iovec piece{.iov_base = const_cast<std::byte*>(run.bytes().data()),
              .iov_len = run.bytes().size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(std::uint16_t))> control{};
  msghdr message{};
  message.msg_name = const_cast<sockaddr*>(to.get());
  message.msg_namelen = to.size();
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (run.count() > 1) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = IPPROTO_UDP;
    header->cmsg_type = UDP_SEGMENT;
    header->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
    const std::uint16_t size = run.segment();
    std::memcpy(CMSG_DATA(header), &size, sizeof size);
  }
  if (sys::sendmsg(socket_.get(), &message, MSG_NOSIGNAL) >= 0) {
    counts_.packets += run.count();
    counts_.bytes += run.bytes().size();
  }
  count_answers();
}

void Sender::count_answers() {
  if (!answers_) return;
  for (int i = 0; i < kAnswersAtOnce; ++i) {
    std::array<std::byte, 1> bin;  // an attacker does not read them, and needs no processor for it
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
    iovec piece{.iov_base = bin.data(), .iov_len = bin.size()};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t size = sys::recvmsg(answers_.get(), &message, MSG_DONTWAIT | MSG_TRUNC);
    if (size <= 0) return;
    int segment = static_cast<int>(size);
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level == IPPROTO_UDP && header->cmsg_type == UDP_GRO)
        std::memcpy(&segment, CMSG_DATA(header), sizeof segment);
    }
    counts_.answers += static_cast<std::uint64_t>((size + segment - 1) / segment);
    counts_.answer_bytes += static_cast<std::uint64_t>(size);
  }
}

}  // namespace verbena::hostile
