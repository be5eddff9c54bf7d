// SPDX-License-Identifier: Apache-2.0
#include "verbs/stream/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace verbena::verbs::streams {
namespace {

constexpr std::size_t kBatch = 16;
constexpr std::size_t kBatchesAtOnce = 16;
constexpr std::uint64_t kOfSend = std::uint64_t{1} << 63;  // in a wr_id

Result<> check_parts(const stream_options& options, const stream_parts& parts) {
  const auto refused = [](std::string what) {
    return fail(std::errc::invalid_argument, "stream_builder::start", std::move(what));
  };
  if (!parts.channel || !parts.cq || !parts.qp) return refused("a part is empty");
  const qp_caps& caps = parts.qp.caps();
  if (caps.max_send_wr < send_depth(options) || caps.max_recv_wr < receive_depth(options))
    return refused(fmt::format("the queue pair holds {} sends and {} receives; {} and {} are used",
                               caps.max_send_wr, caps.max_recv_wr, send_depth(options),
                               receive_depth(options)));
  if (parts.cq.depth() < send_depth(options) + receive_depth(options))
    return refused(fmt::format("the completion queue holds {}; {} are used", parts.cq.depth(),
                               send_depth(options) + receive_depth(options)));
  if (parts.cq.native()->channel != parts.channel.native())
    return refused("the completion queue sends its events elsewhere");
  if (parts.qp.native()->send_cq != parts.cq.native() ||
      parts.qp.native()->recv_cq != parts.cq.native() || parts.qp.native()->srq != nullptr)
    return refused("the queue pair completes elsewhere, or has a shared receive queue");
  return {};
}

}  // namespace

Result<std::shared_ptr<Connection>> Connection::make(const stream_options& options,
                                                     stream_parts parts,
                                                     const protection_domain& pd,
                                                     std::unique_ptr<Origin> origin) {
  VERBENA_TRY(check_options(options));
  VERBENA_TRY(check_parts(options, parts));
  VERBENA_TRY(parts.channel.set_blocking(false));
  auto send = VERBENA_TRY(pd.alloc_mr(send_bytes(options), access::local_write));
  auto slots = VERBENA_TRY(pd.alloc_mr(slot_bytes(options), access::local_write));
  std::optional<memory_region> ring;
  // The peer writes into this one only.
  if (const std::size_t size = ring_bytes(options); size != 0)
    ring = VERBENA_TRY(pd.alloc_mr(size, access::local_write | access::remote_write));
  auto wake = VERBENA_TRY(Flag::make());
  auto read_ready = VERBENA_TRY(Flag::make());
  auto write_ready = VERBENA_TRY(Flag::make());
  std::shared_ptr<Connection> made(new Connection(
      options, std::move(parts), {std::move(send), std::move(slots), std::move(ring)},
      std::move(origin), std::move(wake), std::move(read_ready), std::move(write_ready)));
  const std::lock_guard lock(made->mutex_);
  made->post();
  if (const auto& failure = made->core_.failure()) return std::unexpected(*failure);
  return made;
}

Memory Connection::memory_of(const Regions& regions) {
  Memory memory{.send = regions.send.bytes(),
                .slots = regions.slots.bytes(),
                .ring = {},
                .ring_for_peer = {}};
  if (regions.ring) {
    memory.ring = regions.ring->bytes();
    memory.ring_for_peer = regions.ring->remote().value_or(remote_region());
  }
  return memory;
}

Connection::Connection(const stream_options& options, stream_parts parts, Regions regions,
                       std::unique_ptr<Origin> origin, Flag wake, Flag read_ready, Flag write_ready)
    : options_(options),
      origin_(std::move(origin)),
      channel_(std::move(parts.channel)),
      cq_(std::move(parts.cq)),
      regions_(std::move(regions)),
      qp_(std::move(parts.qp)),
      core_(options, memory_of(regions_)),
      wake_(std::move(wake)),
      reader_{.one_at_a_time = {}, .timeout = {}, .ready = std::move(read_ready), .fd = {}},
      writer_{.one_at_a_time = {}, .timeout = {}, .ready = std::move(write_ready), .fd = {}} {}

Connection::~Connection() {
  if (options_.linger.count() != 0 && !core_.failure()) {
    Lock lock(mutex_);
    core_.shutdown();
    post();
    // A destructor cannot say what `close` does.
    (void)wait(lock, Clock::now() + options_.linger, "stream",
               [this] { return !is_pending(core_.settled()); });
  }
  if (origin_ != nullptr) origin_->disconnect();
}

// --- The queues

bool Connection::pump() {
  const bool all = poll_completions();
  post();
  return all;
}

/// False where there may be more: the next call goes on.
bool Connection::poll_completions() {
  bool any = false;
  bool all = false;
  for (std::size_t i = 0; i < kBatchesAtOnce && !all; ++i) {
    wc_batch<kBatch> room;
    const auto got = cq_.poll(room);
    if (!got) {
      fail_with(got.error());
      return true;
    }
    for (const work_completion& completion : *got) handle(completion);
    any = any || !got->empty();
    all = got->size() < room.size();
    if (!all) post_receives();
  }
  if (any) after_progress();
  return all;
}

void Connection::handle(const work_completion& completion) {
  if (!completion.ok()) return fail_with(completion.result().error());
  if ((completion.wr_id() & kOfSend) != 0) return core_.handle_sent();
  const bool written = completion.opcode() == IBV_WC_RECV_RDMA_WITH_IMM;
  const auto immediate = completion.immediate();
  if (written != (immediate && options_.transport == stream_transport::ring))
    return fail_with(protocol_error("data by the other transport").error());
  core_.handle_received(static_cast<std::uint32_t>(completion.wr_id()), completion.byte_len(),
                        immediate);
}

void Connection::fail_with(const Error& error) {
  core_.handle_failure(error);
  after_progress();
}

void Connection::post() {
  if (core_.failure()) {
    // So that the peer hears of it, and what is posted ends. It may be there already.
    if (!std::exchange(broken_, true)) (void)qp_.to_error();
    return;
  }
  post_receives();
  post_sends();
}

void Connection::post_receives() {
  for (;;) {
    recv_list<kBatch> list;
    std::array<mr_slice, kBatch> memory;
    while (list.size() < kBatch) {
      const auto receive = core_.poll_receive();
      if (!receive) break;
      mr_slice& into = memory.at(list.size());
      into = part_of(regions_.slots, core_.slot(*receive));
      (void)list.add(recv_request({&into, 1}, *receive));
    }
    if (list.empty()) return;
    if (const auto posted = qp_.post(list); !posted) return fail_with(posted.error().error);
  }
}

void Connection::post_sends() {
  for (;;) {
    send_list<rc, kBatch> list;
    std::array<mr_slice, kBatch> memory;
    while (list.size() < kBatch) {
      const auto next = core_.poll_transmit();
      if (!next) break;
      mr_slice& from = memory.at(list.size());
      from = part_of(regions_.send, regions_.send.bytes().subspan(next->offset, next->length));
      posting how{.wr_id = kOfSend};
      if (next->length <= qp_.caps().max_inline_data) how.flags |= send_flags::inlined;
      const std::span<const mr_slice> one(&from, 1);
      (void)list.add(request_of(*next, one, how));
    }
    if (list.empty()) return;
    if (const auto posted = qp_.post(list); !posted) return fail_with(posted.error().error);
  }
}

send_request<rc> Connection::request_of(const Transmit& transmit, std::span<const mr_slice> from,
                                        posting how) {
  switch (transmit.kind) {
    case Transmit::Kind::kMessage:
      return send_request<rc>::send_with_immediate(from, transmit.immediate, how);
    case Transmit::Kind::kWrite:
      return send_request<rc>::write_with_immediate(from, transmit.to, transmit.immediate, how);
    case Transmit::Kind::kProbe:
      // Of no bytes: no key is looked at (IBA 9.7.4.1.5), no receive is used.
      return send_request<rc>::write({}, remote_region(), {.wr_id = how.wr_id});
    case Transmit::Kind::kFrame: break;
  }
  return send_request<rc>::send(from, how);
}

mr_slice Connection::part_of(const memory_region& region, std::span<const std::byte> part) {
  return {reinterpret_cast<std::uint64_t>(part.data()), static_cast<std::uint32_t>(part.size()),
          region.lkey()};
}

void Connection::check_origin() {
  if (origin_ == nullptr) return;
  if (const auto there = origin_->check(); !there) {
    // What has completed before it was over comes first.
    poll_completions();
    fail_with(there.error());
  }
}

// --- The user

Result<std::size_t> Connection::read_some(std::span<std::byte> into, Wait how) {
  const std::lock_guard one(reader_.one_at_a_time);
  if (into.empty()) return 0;
  Lock lock(mutex_);
  reader_.parked = false;
  if (!has_to_read()) {
    if (how == Wait::kNo) {
      VERBENA_TRY(look(reader_, [this] { return has_to_read(); }));
    } else {
      VERBENA_TRY(wait(lock, deadline_of(reader_.timeout), "stream::read",
                       [this] { return has_to_read(); }));
    }
  }
  std::size_t done = 0;
  while (done < into.size()) {
    const auto front = core_.front();
    if (!front && done == 0) return std::unexpected(front.error());
    if (!front || front->empty()) break;
    const std::size_t n = std::min(front->size(), into.size() - done);
    lock.unlock();
    std::memcpy(into.data() + done, front->data(), n);
    lock.lock();
    core_.consume(n);
    done += n;
    post();
  }
  serve_parked();
  return done;
}

Result<std::size_t> Connection::write_some(std::span<const std::byte> from, Wait how) {
  const std::lock_guard one(writer_.one_at_a_time);
  if (from.empty()) return 0;
  Lock lock(mutex_);
  writer_.parked = false;
  if (!has_room()) {
    if (how == Wait::kNo) {
      VERBENA_TRY(look(writer_, [this] { return has_room(); }));
    } else {
      VERBENA_TRY(
          wait(lock, deadline_of(writer_.timeout), "stream::write", [this] { return has_room(); }));
    }
  }
  if (auto room = core_.room(); !room) return std::unexpected(room.error());
  std::size_t done = 0;
  while (done < from.size()) {
    const auto room = core_.room();
    if (!room) break;
    const std::size_t n = std::min(room->size(), from.size() - done);
    lock.unlock();
    std::memcpy(room->data(), from.data() + done, n);
    lock.lock();
    core_.commit(n);
    done += n;
    pump();
  }
  serve_parked();
  return done;
}

Result<> Connection::flush() {
  const std::lock_guard one(writer_.one_at_a_time);
  Lock lock(mutex_);
  VERBENA_TRY(wait(lock, deadline_of(writer_.timeout), "stream::flush",
                   [this] { return !is_pending(core_.delivered()); }));
  return core_.delivered();
}

Result<> Connection::shutdown() {
  const std::lock_guard lock(mutex_);
  core_.shutdown();
  pump();
  after_progress();
  serve_parked();
  if (const auto delivered = core_.delivered(); !delivered && !delivered.error().would_block())
    return std::unexpected(delivered.error());
  return {};
}

Result<> Connection::close(std::chrono::milliseconds at_most) {
  Lock lock(mutex_);
  core_.shutdown();
  post();
  VERBENA_TRY(wait(lock, Clock::now() + at_most, "stream::close", [this] {
    for (auto front = core_.front(); front && !front->empty(); front = core_.front())
      core_.consume(front->size());
    post();
    return !is_pending(core_.ended());
  }));
  return core_.ended();
}

void Connection::set_read_timeout(stream_timeout timeout) {
  const std::lock_guard lock(mutex_);
  reader_.timeout = timeout;
}

void Connection::set_write_timeout(stream_timeout timeout) {
  const std::lock_guard lock(mutex_);
  writer_.timeout = timeout;
}

stream_counters Connection::counters() const {
  const std::lock_guard lock(mutex_);
  return core_.counters();
}

std::string Connection::describe() const {
  const std::lock_guard lock(mutex_);
  const stream_counters counters = core_.counters();
  return fmt::format("stream of queue pair {:#x} ({}): {} bytes sent, {} received{}{}",
                     qp_.number().value(), name_of(qp_.state()), counters.bytes_sent,
                     counters.bytes_received, core_.failure() ? "; " : "",
                     core_.failure() ? core_.failure()->message() : std::string());
}

}  // namespace verbena::verbs::streams
