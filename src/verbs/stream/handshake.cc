// SPDX-License-Identifier: Apache-2.0
#include "verbs/stream/handshake.h"

#include <utility>

namespace verbena::verbs::streams {
namespace {

/// What the rdma_cm has connected.
class CmConnected : public Origin {
 public:
  explicit CmConnected(cm::connection made) : connection_(std::move(made)) {}
  [[nodiscard]] queue_pair<rc>& qp() override { return connection_.qp(); }
  [[nodiscard]] int fd() const override { return connection_.event_fd(); }
  [[nodiscard]] Result<> check() override {
    VERBENA_TRY(connection_.handle_waiting());
    if (connection_.is_connected()) return {};
    return fail(std::errc::connection_reset, "stream", "the peer has disconnected");
  }
  // Where the peer has been quicker there is nothing left to do.
  void disconnect() override { (void)connection_.disconnect(); }
  [[nodiscard]] cm::socket_address local_addr() const override { return connection_.local_addr(); }
  [[nodiscard]] cm::socket_address peer_addr() const override { return connection_.peer_addr(); }

 private:
  cm::connection connection_;
};

/// What is made for one end before it connects or accepts. `Phase`: resolved or incoming.
struct Prepared {
  queue_pair<rc> qp;
  Resources resources;
};
template <typename Phase>
Result<Prepared> prepare(Phase& phase, const stream_builder& sizes) {
  VERBENA_TRY(check_options(sizes.options()));
  const context ctx = VERBENA_TRY(phase.context());
  const protection_domain pd = VERBENA_TRY(ctx.alloc_pd());
  auto channel = VERBENA_TRY(ctx.create_channel());
  auto cq = VERBENA_TRY(ctx.create_cq({.depth = sizes.cq_depth(), .channel = &channel}));
  auto qp = VERBENA_TRY(phase.create_qp(pd, {.send_cq = cq, .recv_cq = cq, .caps = sizes.caps()}));
  auto resources =
      VERBENA_TRY(make_resources(sizes.options(), std::move(channel), std::move(cq), pd, qp));
  // Before the peer can send: one without a receive makes it wait.
  VERBENA_TRY(post_receives(resources, qp));
  return Prepared{std::move(qp), std::move(resources)};
}

}  // namespace

Result<Handshake> Handshake::begin(cm::resolved peer, const stream_builder& sizes) {
  auto prepared = VERBENA_TRY(prepare(peer, sizes));
  auto phase = VERBENA_TRY(std::move(peer).start_connect(std::move(prepared.qp)));
  return Handshake(std::move(phase), std::move(prepared.resources));
}

Result<Handshake> Handshake::begin(cm::incoming who, const stream_builder& sizes) {
  auto prepared = VERBENA_TRY(prepare(who, sizes));
  auto phase = VERBENA_TRY(std::move(who).start_accept(std::move(prepared.qp)));
  return Handshake(std::move(phase), std::move(prepared.resources));
}

Result<std::shared_ptr<connection>> Handshake::try_finish() {
  auto next = VERBENA_TRY(phase_.handle_waiting());
  if (!next)
    return fail(std::errc::operation_would_block, "stream", "the peer has not answered yet");
  return connection::make(std::move(resources_), std::make_unique<CmConnected>(std::move(*next)));
}

Result<std::unique_ptr<connecting>> connecting::start(const cm::socket_address& peer,
                                                      const stream_builder& sizes,
                                                      std::chrono::milliseconds at_most) {
  VERBENA_TRY(check_options(sizes.options()));
  auto first = VERBENA_TRY(cm::connector::start(peer, {.timeout = at_most}));
  return std::unique_ptr<connecting>(new connecting(std::move(first), sizes));
}

// The channel goes from phase to phase, and with it the descriptor.
int connecting::fd() const {
  const auto* const first = std::get_if<cm::connector>(&phase_);
  return first != nullptr ? first->event_fd() : std::get<Handshake>(phase_).fd();
}

Result<std::shared_ptr<connection>> connecting::try_finish() {
  if (auto* const first = std::get_if<cm::connector>(&phase_); first != nullptr) {
    auto found = VERBENA_TRY(first->handle_waiting());
    if (!found)
      return fail(std::errc::operation_would_block, "stream", "the peer is looked for still");
    phase_ = VERBENA_TRY(Handshake::begin(std::move(*found), sizes_));
  }
  return std::get<Handshake>(phase_).try_finish();
}

Result<std::shared_ptr<connection>> connect(cm::resolved peer, const stream_builder& sizes,
                                            const stream_connect_options& how) {
  auto prepared = VERBENA_TRY(prepare(peer, sizes));
  auto connected =
      VERBENA_TRY(std::move(peer).connect(std::move(prepared.qp), {}, how.timeout, how.stop));
  return connection::make(std::move(prepared.resources),
                          std::make_unique<CmConnected>(std::move(connected)));
}

}  // namespace verbena::verbs::streams
