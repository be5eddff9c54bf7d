// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "verbena/cm_connection.h"
#include "verbena/stream.h"
#include "verbena/stream_listener.h"
#include "verbs/stream/connection.h"

namespace verbena::verbs {
namespace {

/// How long the other end of a handshake may take where its caller has not said.
constexpr std::chrono::seconds kHandshake{30};

/// What the rdma_cm has connected.
class CmConnected : public streams::Origin {
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
  streams::Resources resources;
};
template <typename Phase>
Result<Prepared> prepare(Phase& phase, const stream_builder& sizes) {
  VERBENA_TRY(streams::check_options(sizes.options()));
  const context ctx = VERBENA_TRY(phase.context());
  const protection_domain pd = VERBENA_TRY(ctx.alloc_pd());
  auto channel = VERBENA_TRY(ctx.create_channel());
  auto cq = VERBENA_TRY(ctx.create_cq({.depth = sizes.cq_depth(), .channel = &channel}));
  auto qp = VERBENA_TRY(phase.create_qp(pd, {.send_cq = cq, .recv_cq = cq, .caps = sizes.caps()}));
  auto resources = VERBENA_TRY(
      streams::make_resources(sizes.options(), std::move(channel), std::move(cq), pd, qp));
  // Before the peer can send: one without a receive makes it wait.
  VERBENA_TRY(streams::post_receives(resources, qp));
  return Prepared{std::move(qp), std::move(resources)};
}

Result<std::shared_ptr<streams::connection>> accept(Result<cm::incoming> who,
                                                    const stream_builder& sizes,
                                                    std::chrono::milliseconds at_most) {
  cm::incoming incoming = VERBENA_TRY(std::move(who));
  auto prepared = VERBENA_TRY(prepare(incoming, sizes));
  auto accepted = VERBENA_TRY(std::move(incoming).accept(std::move(prepared.qp), {}, at_most));
  return streams::connection::make(std::move(prepared.resources),
                                   std::make_unique<CmConnected>(std::move(accepted)));
}

}  // namespace

Result<stream> stream_builder::connect(const cm::socket_address& peer,
                                       const stream_connect_options& how) const {
  auto resolved = VERBENA_TRY(
      cm::connector::resolve(peer, {.from = how.from, .timeout = how.timeout, .stop = how.stop}));
  auto prepared = VERBENA_TRY(prepare(resolved, *this));
  auto connected =
      VERBENA_TRY(std::move(resolved).connect(std::move(prepared.qp), {}, how.timeout, how.stop));
  return stream(VERBENA_TRY(streams::connection::make(
      std::move(prepared.resources), std::make_unique<CmConnected>(std::move(connected)))));
}

Result<stream> stream_builder::connect(std::string_view peer,
                                       std::chrono::milliseconds at_most) const {
  return connect(VERBENA_TRY(cm::socket_address::from_string(peer)), at_most);
}

Result<listener> listener::bind(const cm::socket_address& to, const stream_builder& sizes,
                                const cm::listen_options& options) {
  VERBENA_TRY(streams::check_options(sizes.options()));
  return listener(VERBENA_TRY(cm::listener::bind(to, options)), sizes);
}

Result<listener> listener::bind(std::string_view to, const stream_builder& sizes,
                                const cm::listen_options& options) {
  return bind(VERBENA_TRY(cm::socket_address::from_string(to)), sizes, options);
}

Result<stream> listener::accept() {
  return stream(VERBENA_TRY(verbs::accept(listener_.accept(), sizes_, kHandshake)));
}

Result<stream> listener::accept(std::chrono::milliseconds at_most) {
  return stream(VERBENA_TRY(verbs::accept(listener_.accept(at_most), sizes_, at_most)));
}

Result<stream> listener::try_accept() {
  return stream(VERBENA_TRY(verbs::accept(listener_.try_accept(), sizes_, kHandshake)));
}

}  // namespace verbena::verbs
