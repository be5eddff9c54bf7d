// SPDX-License-Identifier: Apache-2.0
#include "verbs/stream/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "verbs/stream/copy.h"

namespace verbena::verbs::streams {
namespace {

constexpr std::size_t kBatch = 16;
constexpr std::size_t kBatchesAtOnce = 16;

}  // namespace

Result<std::shared_ptr<connection>> connection::make(Resources resources,
                                                     std::unique_ptr<Origin> origin) {
  auto wake = VERBENA_TRY(Flag::make());
  auto read_ready = VERBENA_TRY(Flag::make());
  auto write_ready = VERBENA_TRY(Flag::make());
  std::shared_ptr<connection> made(new connection(std::move(resources), std::move(origin),
                                                  std::move(wake), std::move(read_ready),
                                                  std::move(write_ready)));
  const std::lock_guard lock(made->mutex_);
  made->post();
  if (const auto& failure = made->core().failure(); failure) return std::unexpected(*failure);
  return made;
}

connection::connection(Resources resources, std::unique_ptr<Origin> origin, Flag wake,
                       Flag read_ready, Flag write_ready)
    : resources_(std::move(resources)),
      origin_(std::move(origin)),
      wake_(std::move(wake)),
      reader_{.one_at_a_time = {}, .timeout = {}, .ready = std::move(read_ready), .fd = {}},
      writer_{.one_at_a_time = {}, .timeout = {}, .ready = std::move(write_ready), .fd = {}} {}

connection::~connection() {
  if (lingers_ && resources_.options.linger.count() != 0 && is_pending(core().ended())) {
    Lock lock(mutex_);
    core().leave();
    post();
    // A destructor cannot say what `close` does.
    (void)wait(lock, deadline_of(resources_.options.linger), "stream",
               [this] { return !is_pending(core().settled()); });
  }
  origin_->disconnect();
}

// --- The queues

bool connection::pump() {
  const bool all = poll_completions();
  post();
  return all;
}

/// False where there may be more: the next call goes on.
bool connection::poll_completions() {
  bool any = false;
  bool all = false;
  for (std::size_t i = 0; i < kBatchesAtOnce && !all; ++i) {
    wc_batch<kBatch> room;
    const auto got = resources_.cq.poll(room);
    if (!got) {
      fail_with(got.error());
      return true;
    }
    for (const work_completion& completion : *got) handle(completion);
    any = any || !got->empty();
    all = got->size() < room.size();
    if (!all)
      if (const auto posted = post_receives(resources_, qp()); !posted) fail_with(posted.error());
  }
  if (any) after_progress();
  return all;
}

void connection::handle(const work_completion& completion) {
  if (is_direct(completion.wr_id()) && resources_.direct != 0) --resources_.direct;
  if (!completion.ok()) return handle_failed(completion);
  if (is_before(completion.wr_id())) return;
  if (is_send(completion.wr_id())) return core().handle_sent();
  const bool written = completion.opcode() == IBV_WC_RECV_RDMA_WITH_IMM;
  const auto immediate = completion.immediate();
  const bool data = immediate != kFrameImmediate;
  if (written && !data) return fail_with(protocol_error("a frame by a WRITE").error());
  if (data && written != (resources_.options.transport == stream_transport::ring))
    return fail_with(protocol_error("data by the other transport").error());
  core().handle_received(static_cast<std::uint32_t>(completion.wr_id()), completion.byte_len(),
                         immediate);
}

/// A flush says nothing: why the queue pair is in ERR the origin may know.
void connection::handle_failed(const work_completion& completion) {
  if (completion.status() == IBV_WC_WR_FLUSH_ERR)
    if (const auto there = origin_->check(); !there) return fail_with(there.error());
  fail_with(completion.result().error());
}

void connection::fail_with(const Error& error) {
  core().handle_failure(error);
  after_progress();
}

void connection::post() {
  if (core().failure()) {
    // So that the peer hears of it, and what is posted ends. It may be there already. A device that
    // does not even take that is gone, and reads no memory.
    if (!std::exchange(broken_, true) && !qp().to_error()) resources_.direct = 0;
    return;
  }
  if (const auto posted = post_receives(resources_, qp()); !posted)
    return fail_with(posted.error());
  if (const auto posted = post_sends(resources_, qp()); !posted) fail_with(posted.error());
}

/// What was written goes out. Completions are looked for when much is under way: one look finds
/// several then, and costs as much as one that finds none.
void connection::post_written() {
  if (core().much_under_way())
    pump();
  else
    post();
}

void connection::check_origin() {
  if (const auto there = origin_->check(); !there) {
    // What has completed before it was over comes first; a peer that goes on sending is not waited
    // for.
    for (std::size_t left = resources_.cq.depth(); left > 0 && !poll_completions(); --left) {}
    fail_with(there.error());
  }
}

// --- The user

/// What `get` returns, once it is not pending.
template <typename Get>
std::invoke_result_t<Get> connection::await(Lock& lock, Side& side, Wait how, const char* verb,
                                            const Get& get) {
  side.parked = false;
  if (auto got = get(); !is_pending(got)) return got;
  const auto ready = [&get] { return !is_pending(get()); };
  if (how == Wait::kNo)
    VERBENA_TRY(look(side, ready));
  else
    VERBENA_TRY(wait(lock, deadline_of(side.timeout), verb, ready));
  return get();
}

/// Empty at the end.
Result<std::span<const std::byte>> connection::await_bytes(Lock& lock, Wait how) {
  return await(lock, reader_, how, "stream::read", [this] { return core().front(); });
}

Result<std::span<std::byte>> connection::await_room(Lock& lock, Wait how) {
  return await(lock, writer_, how, "stream::write", [this] { return core().room(); });
}

Result<std::size_t> connection::await_direct_room(Lock& lock) {
  return await(lock, writer_, Wait::kYes, "stream::write", [this] { return core().direct_room(); });
}

Result<std::size_t> connection::read_some(std::span<std::byte> into, Wait how) {
  const std::lock_guard one(reader_.one_at_a_time);
  if (into.empty()) return 0;
  Lock lock(mutex_);
  auto front = VERBENA_TRY(await_bytes(lock, how));
  std::size_t done = 0;
  while (!front.empty()) {
    const std::size_t n = std::min(front.size(), into.size() - done);
    lock.unlock();
    copy_bytes(into.data() + done, front.data(), n);
    lock.lock();
    core().consume(n);
    done += n;
    post();
    if (done == into.size()) break;
    front = core().front().value_or(std::span<const std::byte>());
  }
  serve_parked();
  return done;
}

Result<std::size_t> connection::write_some(std::span<const std::byte> from, Wait how) {
  const std::lock_guard one(writer_.one_at_a_time);
  if (from.empty()) return 0;
  Lock lock(mutex_);
  auto room = VERBENA_TRY(await_room(lock, how));
  std::size_t done = 0;
  while (!room.empty()) {
    const std::size_t n = std::min(room.size(), from.size() - done);
    lock.unlock();
    copy_bytes(room.data(), from.data() + done, n);
    lock.lock();
    core().commit(n);
    done += n;
    post_written();
    if (done == from.size()) break;
    room = core().room().value_or(std::span<std::byte>());
  }
  serve_parked();
  return done;
}

Result<std::span<const std::byte>> connection::peek() {
  const std::lock_guard one(reader_.one_at_a_time);
  Lock lock(mutex_);
  return await_bytes(lock, Wait::kYes);
}

Result<> connection::consume(std::size_t bytes) {
  const std::lock_guard one(reader_.one_at_a_time);
  const std::lock_guard lock(mutex_);
  const auto front = core().front();
  if (!front || front->size() < bytes)
    return fail(std::errc::invalid_argument, "stream::consume",
                fmt::format("{} bytes, where {} are there", bytes, front ? front->size() : 0));
  core().consume(bytes);
  post();
  serve_parked();
  return {};
}

Result<std::span<std::byte>> connection::prepare() {
  const std::lock_guard one(writer_.one_at_a_time);
  Lock lock(mutex_);
  return await_room(lock, Wait::kYes);
}

Result<> connection::commit(std::size_t bytes) {
  const std::lock_guard one(writer_.one_at_a_time);
  const std::lock_guard lock(mutex_);
  const auto room = core().room();
  if (!room && !room.error().would_block()) return std::unexpected(room.error());
  if (!room || room->size() < bytes)
    return fail(std::errc::invalid_argument, "stream::commit",
                fmt::format("{} bytes, where {} are prepared", bytes, room ? room->size() : 0));
  core().commit(bytes);
  post_written();
  serve_parked();
  return {};
}

Result<> connection::flush() {
  const std::lock_guard one(writer_.one_at_a_time);
  Lock lock(mutex_);
  VERBENA_TRY(wait(lock, deadline_of(writer_.timeout), "stream::flush",
                   [this] { return !is_pending(core().delivered()); }));
  return core().delivered();
}

Result<> connection::shutdown() {
  const std::lock_guard lock(mutex_);
  core().shutdown();
  pump();
  after_progress();
  serve_parked();
  if (const auto delivered = core().delivered(); !delivered && !delivered.error().would_block())
    return std::unexpected(delivered.error());
  return {};
}

Result<> connection::check_idle() {
  const std::lock_guard lock(mutex_);
  if (!asleep_) take_events();
  pump();
  serve_parked();
  if (const auto& failure = core().failure(); failure) return std::unexpected(*failure);
  if (core().was_shut())
    return fail(std::errc::broken_pipe, "stream::check_idle", "the stream was shut down");
  const auto front = core().front();
  if (!front) return {};  // it waits for the peer
  if (front->empty())
    return fail(std::errc::broken_pipe, "stream::check_idle", "the peer has ended its direction");
  return fail(std::errc::device_or_resource_busy, "stream::check_idle",
              fmt::format("{} bytes or more came and were not read", front->size()));
}

Result<> connection::probe(std::chrono::milliseconds at_most) {
  Lock lock(mutex_);
  core().ask_for_life();
  const auto answered = wait(lock, deadline_of(at_most), "stream::probe",
                             [this] { return core().failure() || !core().asks_for_life(); });
  if (!answered) {
    fail_with(answered.error());
    post();
    serve_parked();
  }
  if (const auto& failure = core().failure(); failure) return std::unexpected(*failure);
  return {};
}

Result<> connection::close(std::chrono::milliseconds at_most) {
  Lock lock(mutex_);
  core().shutdown();
  post();
  const auto waited = wait(lock, deadline_of(at_most), "stream::close", [this] {
    for (auto front = core().front(); front && !front->empty(); front = core().front())
      core().consume(front->size());
    post();
    return !is_pending(core().ended());
  });
  if (waited) return core().ended();
  // It has been waited for long enough: the destructor does not linger.
  lingers_ = false;
  core().leave();
  post();
  return waited;
}

void connection::set_read_timeout(stream_timeout timeout) {
  const std::lock_guard lock(mutex_);
  reader_.timeout = timeout;
}

void connection::set_write_timeout(stream_timeout timeout) {
  const std::lock_guard lock(mutex_);
  writer_.timeout = timeout;
}

stream_counters connection::counters() const {
  const std::lock_guard lock(mutex_);
  return core().counters();
}

cm::socket_address connection::local_addr() const {
  const std::lock_guard lock(mutex_);
  return origin_->local_addr();
}

cm::socket_address connection::peer_addr() const {
  const std::lock_guard lock(mutex_);
  return origin_->peer_addr();
}

std::string connection::describe() const {
  const std::lock_guard lock(mutex_);
  const stream_counters counters = core().counters();
  const auto& failure = core().failure();
  const cm::socket_address peer = origin_->peer_addr();
  const std::string between =
      peer ? fmt::format(" from {} to {}", origin_->local_addr().to_string(), peer.to_string())
           : std::string();
  return fmt::format("stream of queue pair {:#x} ({}){}: {} bytes sent, {} received{}{}",
                     qp().number().value(), name_of(qp().state()), between, counters.bytes_sent,
                     counters.bytes_received, failure ? "; " : "",
                     failure ? failure->message() : std::string());
}

}  // namespace verbena::verbs::streams
