// SPDX-License-Identifier: Apache-2.0
#include "verbs/stream/resources.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace verbena::verbs::streams {
namespace {

constexpr std::size_t kBatch = 16;
constexpr std::uint64_t kOfSend = std::uint64_t{1} << 63;  // in a wr_id
constexpr std::uint64_t kOfDirect = kOfSend | std::uint64_t{1} << 62;
constexpr std::uint64_t kOfBefore = kOfSend | std::uint64_t{1} << 61;

Result<> check_queues(const stream_options& options, const completion_channel& channel,
                      const completion_queue& cq, const queue_pair<rc>& qp) {
  const auto refused = [](std::string what) {
    return fail(std::errc::invalid_argument, "stream_builder::start", std::move(what));
  };
  if (!channel || !cq || !qp) return refused("a part is empty");
  const std::size_t sends = send_depth(options);
  const std::size_t receives = receive_depth(options);
  const qp_caps& caps = qp.caps();
  if (caps.max_send_wr < sends || caps.max_recv_wr < receives)
    return refused(fmt::format("the queue pair holds {} sends and {} receives; {} and {} are used",
                               caps.max_send_wr, caps.max_recv_wr, sends, receives));
  if (cq.depth() < sends + receives)
    return refused(
        fmt::format("the completion queue holds {}; {} are used", cq.depth(), sends + receives));
  if (cq.native()->channel != channel.native())
    return refused("the completion queue sends its events elsewhere");
  if (qp.native()->send_cq != cq.native() || qp.native()->recv_cq != cq.native() ||
      qp.native()->srq != nullptr)
    return refused("the queue pair completes elsewhere, or has a shared receive queue");
  return {};
}

Memory memory_of(const Regions& regions, const queue_pair<rc>& qp) {
  Memory memory{.send = regions.send.bytes(),
                .slots = regions.slots.bytes(),
                .ring = {},
                .ring_for_peer = {},
                .pads = qp.caps().max_send_sge >= kMaxPieces};
  if (regions.ring) {
    memory.ring = regions.ring->bytes();
    memory.ring_for_peer = regions.ring->remote().value_or(remote_region());
  }
  return memory;
}

mr_slice part_of(const memory_region& region, std::span<const std::byte> part) {
  return {reinterpret_cast<std::uint64_t>(part.data()), static_cast<std::uint32_t>(part.size()),
          region.lkey()};
}

using Pieces = std::array<mr_slice, kMaxPieces>;

mr_slice memory_of(const Transmit& transmit, const Regions& regions) {
  if (transmit.direct == nullptr)
    return part_of(regions.send, regions.send.bytes().subspan(transmit.offset + transmit.before,
                                                              transmit.length - transmit.before));
  // Without the region, for which can_send_direct() was not asked, the device refuses it.
  const memory_region& all = regions.all ? *regions.all : regions.send;
  return part_of(all, {transmit.direct, transmit.length});
}

/// What goes out with the request that completes; the list lies in `room`.
std::span<const mr_slice> pieces_of(const Transmit& transmit, const Regions& regions,
                                    Pieces& room) {
  room[0] = memory_of(transmit, regions);
  if (transmit.padding == 0) return std::span(room).first(1);
  room[1] = part_of(regions.send, regions.send.bytes().subspan(kPaddingAt, transmit.padding));
  return room;
}

remote_region behind(const remote_region& region, std::uint32_t bytes) {
  return {region.address() + bytes, region.size() - bytes, region.rkey()};
}

send_request<rc> request_of(const Transmit& transmit, std::span<const mr_slice> from, posting how) {
  switch (transmit.kind) {
    case Transmit::Kind::kWrite:
      return send_request<rc>::write_with_immediate(from, behind(transmit.to, transmit.before),
                                                    transmit.immediate.value_or(0), how);
    case Transmit::Kind::kProbe:
      // Of no bytes: no key is looked at, and no receive is used (IBA 9.7.4.1.5).
      return send_request<rc>::write({}, remote_region(), {.wr_id = how.wr_id});
    case Transmit::Kind::kFrame:
    case Transmit::Kind::kMessage: break;
  }
  return transmit.immediate ? send_request<rc>::send_with_immediate(from, *transmit.immediate, how)
                            : send_request<rc>::send(from, how);
}

/// Bytes of data in a packet; 0 where that is not known.
std::uint32_t packet_of(const queue_pair<rc>& qp) {
  constexpr std::uint32_t kSmallest = 256;  // IBV_MTU_256, which is 1
  const auto attributes = qp.query();
  const bool known =
      attributes && attributes->path_mtu >= IBV_MTU_256 && attributes->path_mtu <= IBV_MTU_4096;
  return known ? kSmallest << (attributes->path_mtu - IBV_MTU_256) : 0;
}

}  // namespace

Result<Resources> make_resources(const stream_options& options, completion_channel channel,
                                 completion_queue cq, const protection_domain& pd,
                                 const queue_pair<rc>& qp) {
  VERBENA_TRY(check_options(options));
  VERBENA_TRY(check_queues(options, channel, cq, qp));
  VERBENA_TRY(channel.set_blocking(false));
  auto send = VERBENA_TRY(pd.alloc_mr(send_bytes(options), access::local_write));
  auto slots = VERBENA_TRY(pd.alloc_mr(slot_bytes(options), access::local_write));
  std::optional<memory_region> ring;
  if (const std::size_t size = ring_bytes(options); size != 0)
    ring = VERBENA_TRY(pd.alloc_mr(size, access::local_write | access::remote_write));
  Regions regions{std::move(send), std::move(slots), std::move(ring), std::nullopt};
  auto core = std::make_unique<Core>(options, memory_of(regions, qp));
  return Resources{options, std::move(channel), std::move(cq), std::move(regions), std::move(core)};
}

Result<> post_receives(Resources& of, const queue_pair<rc>& qp) {
  for (;;) {
    recv_list<kBatch> list;
    std::array<mr_slice, kBatch> memory;
    while (list.size() < kBatch) {
      const auto receive = of.core->poll_receive();
      if (!receive) break;
      mr_slice& into = memory.at(list.size());
      into = part_of(of.regions.slots, of.core->slot(*receive));
      (void)list.add(recv_request({&into, 1}, *receive));
    }
    if (list.empty()) return {};
    if (auto posted = qp.post(list); !posted) return std::unexpected(posted.error().error);
    if (list.size() < kBatch) return {};
  }
}

Result<> post_sends(Resources& of, const queue_pair<rc>& qp) {
  if (of.core->asks_for_packet()) of.core->set_packet(packet_of(qp));
  for (bool all = false; !all;) {
    send_list<rc, kBatch> list;
    std::array<Pieces, kBatch> memory;
    std::optional<std::size_t> direct;  // in the list, which has one at most
    while (list.size() + kMostRequests <= kBatch) {
      const auto next = of.core->poll_transmit();
      all = !next;
      if (all) break;
      if (next->before != 0) {
        mr_slice& first = memory.at(list.size()).front();
        first =
            part_of(of.regions.send, of.regions.send.bytes().subspan(next->offset, next->before));
        (void)list.add(send_request<rc>::write({&first, 1}, next->to,
                                               {.wr_id = kOfBefore, .flags = send_flags::none}));
      }
      const auto from = pieces_of(*next, of.regions, memory.at(list.size()));
      posting how{.wr_id = kOfSend};
      if (next->direct != nullptr) {
        how.wr_id = kOfDirect;
        direct = list.size();
      }
      if (next->length + next->padding <= qp.caps().max_inline_data)
        how.flags |= send_flags::inlined;
      (void)list.add(request_of(*next, from, how));
    }
    if (list.empty()) return {};
    const auto posted = qp.post(list);
    if (direct && (posted || posted.error().posted > *direct)) ++of.direct;
    if (!posted) return std::unexpected(posted.error().error);
  }
  return {};
}

bool can_send_direct(Resources& of) {
  if (!std::exchange(of.asked_for_all, true)) {
    // What has registered memory in the domain keeps it.
    const auto pd = protection_domain::adopt(of.regions.send.native()->pd, ownership::borrowed);
    auto all = pd ? pd->reg_on_demand(access::none) : std::unexpected(pd.error());
    if (all) of.regions.all = std::move(*all);
  }
  return of.regions.all.has_value();
}

}  // namespace verbena::verbs::streams
