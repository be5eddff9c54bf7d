// SPDX-License-Identifier: Apache-2.0
#include "hostile/victim_listener.h"

#include <arpa/inet.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "hostile/victim_ends.h"

namespace verbena::hostile {
namespace {

constexpr int kBacklog = 64;
constexpr int kAtOnce = 64;
constexpr int kPatience = 30'000;  ///< milliseconds
/// What the victim's own request carries, and its own rejection.
constexpr char kMark[] = "the victim's own";

sockaddr_in address_of(const ibv_gid& gid) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  std::memcpy(&address.sin_addr, gid.raw + 12, sizeof address.sin_addr);
  return address;
}

}  // namespace

Listener::Listener(const ibv_gid& at) {
  sockaddr_in address = address_of(at);
  channel_ = rdma_create_event_channel();
  need(channel_ != nullptr, "an event channel");
  need_zero(rdma_create_id(channel_, &id_, nullptr, RDMA_PS_TCP), "an id");
  need_zero(rdma_bind_addr(id_, reinterpret_cast<sockaddr*>(&address)), "a port");
  need_zero(rdma_listen(id_, kBacklog), "listening");
  port_ = ntohs(rdma_get_src_port(id_));
}

Listener::~Listener() {
  rdma_destroy_id(id_);
  rdma_destroy_event_channel(channel_);
}

rdma_cm_event* Listener::next(rdma_event_channel* channel, int milliseconds) {
  pollfd poll{.fd = channel->fd, .events = POLLIN, .revents = 0};
  if (::poll(&poll, 1, milliseconds) <= 0) return nullptr;
  rdma_cm_event* event = nullptr;
  need_zero(rdma_get_cm_event(channel, &event), "an event");
  return event;
}

void Listener::attend() {
  for (int i = 0; i < kAtOnce; ++i) {
    rdma_cm_event* const event = next(channel_, 0);
    if (event == nullptr) return;
    rdma_cm_id* const requested =
        event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? event->id : nullptr;
    if (requested != nullptr) static_cast<void>(rdma_reject(requested, kMark, sizeof kMark));
    need_zero(rdma_ack_cm_event(event), "an event's acknowledgement");
    if (requested != nullptr) need_zero(rdma_destroy_id(requested), "destroying an id");
  }
}

void Listener::check() {
  rdma_event_channel* const channel = rdma_create_event_channel();
  need(channel != nullptr, "an event channel");
  rdma_cm_id* id = nullptr;
  need_zero(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), "an id");
  sockaddr_in address{};
  std::memcpy(&address, rdma_get_local_addr(id_), sizeof address);
  const auto expect = [&](rdma_cm_event_type wanted) {
    rdma_cm_event* event = nullptr;
    // Its own thread is the listener's too.
    for (int waited = 0; event == nullptr && waited < kPatience; ++waited) {
      attend();
      event = next(channel, 1);
    }
    if (event == nullptr) die("the listener does not answer");
    if (event->event != wanted) die(std::string("the listener: ") + rdma_event_str(event->event));
    need_zero(rdma_ack_cm_event(event), "an event's acknowledgement");
  };
  need_zero(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&address), 1000),
            "resolving the own address");
  expect(RDMA_CM_EVENT_ADDR_RESOLVED);
  need_zero(rdma_resolve_route(id, 1000), "resolving the own route");
  expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
  rdma_conn_param wanted{};
  wanted.private_data = kMark;
  wanted.private_data_len = sizeof kMark;
  need_zero(rdma_connect(id, &wanted), "asking the own listener");
  expect(RDMA_CM_EVENT_REJECTED);
  need_zero(rdma_destroy_id(id), "destroying an id");
  rdma_destroy_event_channel(channel);
}

}  // namespace verbena::hostile
