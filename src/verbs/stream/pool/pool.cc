// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "verbena/stream_pool.h"
#include "verbs/stream/pool/connector.h"
#include "verbs/stream/pool/lease_pool.h"
#include "verbs/stream/resources.h"

namespace verbena::verbs {
namespace streams {
namespace {

retry_environment& environment_of(const stream_pool_options& options) {
  retry_environment* const own = options.reconnect.environment;
  return own != nullptr ? *own : retry_environment::system();
}

}  // namespace

class pool_core : public std::enable_shared_from_this<pool_core> {
 public:
  pool_core(std::vector<stream_endpoint> peers, const stream_pool_options& options)
      : leases_(
            peers.size(), options, environment_of(options),
            {.open = [this](std::size_t peer, auto until,
                            const auto& stop) { return peers_[peer]->connect(until, stop); },
             .probe = [at_most = options.probe_timeout](stream& one) { return one.probe(at_most); },
             .check = [](stream& one) { return one.check_idle(); }}) {
    for (stream_endpoint& peer : peers)
      peers_.push_back(
          std::make_unique<connector_core>(std::move(peer), options.sizes, options.reconnect));
  }

  [[nodiscard]] Result<stream_lease> acquire(const acquire_options& how) {
    return leased(how.peer, VERBENA_TRY(leases_.acquire(how.peer, how.at_most, how.stop)));
  }
  [[nodiscard]] Result<stream_lease> try_acquire(std::size_t peer) {
    return leased(peer, VERBENA_TRY(leases_.try_acquire(peer)));
  }
  void give_back(std::size_t peer, stream one, retry_environment::time_point opened, bool is_good) {
    one.set_read_timeout({});
    one.set_write_timeout({});
    leases_.give_back(peer, {.one = std::move(one), .opened = opened}, is_good);
  }
  void trim() { leases_.trim(); }
  void close() { leases_.close(); }
  [[nodiscard]] stream_pool_counters counters() const { return leases_.counters(); }
  [[nodiscard]] std::vector<stream_path_state> paths(std::size_t peer) {
    return peer < peers_.size() ? peers_[peer]->states() : std::vector<stream_path_state>();
  }

 private:
  [[nodiscard]] stream_lease leased(std::size_t peer, LeasePool<stream>::Kept kept) {
    return {shared_from_this(), peer, std::move(kept.one), kept.opened};
  }

  std::vector<std::unique_ptr<connector_core>> peers_;
  LeasePool<stream> leases_;
};

}  // namespace streams

namespace {

Result<> check_options(const stream_pool_options& options) {
  const auto refused = [](const char* what) {
    return fail(std::errc::invalid_argument, "stream_pool::create", what);
  };
  VERBENA_TRY(streams::check_options(options.sizes.options()));
  if (options.max_open == 0) return refused("max_open is 0");
  if (options.max_open_per_peer == 0) return refused("max_open_per_peer is 0");
  if (options.idle_timeout.count() < 0 || options.max_age.count() < 0 ||
      options.probe_after.count() < 0)
    return refused("a time is negative");
  if (options.probe_timeout.count() <= 0) return refused("probe_timeout is not positive");
  return {};
}

}  // namespace

// --- stream_lease

stream_lease& stream_lease::operator=(stream_lease&& from) noexcept {
  if (this == &from) return *this;
  end(true);
  pool_ = std::move(from.pool_);
  peer_ = from.peer_;
  stream_ = std::move(from.stream_);
  opened_ = from.opened_;
  return *this;
}

stream_lease::~stream_lease() { end(true); }

void stream_lease::discard() { end(false); }

void stream_lease::end(bool is_good) {
  if (const auto pool = std::exchange(pool_, nullptr))
    pool->give_back(peer_, std::move(stream_), opened_, is_good);
}

// --- stream_pool

Result<stream_pool> stream_pool::create(stream_endpoint peer, const stream_pool_options& options) {
  std::vector<stream_endpoint> peers;
  peers.push_back(std::move(peer));
  return create(std::move(peers), options);
}

Result<stream_pool> stream_pool::create(std::vector<stream_endpoint> peers,
                                        const stream_pool_options& options) {
  VERBENA_TRY(check_options(options));
  for (const stream_endpoint& peer : peers)
    VERBENA_TRY(streams::Redial::check(peer, options.reconnect));
  return stream_pool(std::make_shared<streams::pool_core>(std::move(peers), options));
}

stream_pool& stream_pool::operator=(stream_pool&& from) noexcept {
  if (this == &from) return *this;
  close();
  core_ = std::move(from.core_);
  return *this;
}

stream_pool::~stream_pool() { close(); }

namespace {

Result<streams::pool_core*> open(const std::shared_ptr<streams::pool_core>& core,
                                 const char* operation) {
  if (core != nullptr) return core.get();
  return fail(std::errc::bad_file_descriptor, operation, "the pool is empty: it was moved from");
}

}  // namespace

Result<stream_lease> stream_pool::acquire(const acquire_options& how) const {
  return VERBENA_TRY(open(core_, "stream_pool::acquire"))->acquire(how);
}

Result<stream_lease> stream_pool::try_acquire(std::size_t peer) const {
  return VERBENA_TRY(open(core_, "stream_pool::try_acquire"))->try_acquire(peer);
}

void stream_pool::trim() const {
  if (core_ != nullptr) core_->trim();
}

void stream_pool::close() const {
  if (core_ != nullptr) core_->close();
}

stream_pool_counters stream_pool::counters() const {
  return core_ == nullptr ? stream_pool_counters() : core_->counters();
}

std::vector<stream_path_state> stream_pool::paths(std::size_t peer) const {
  return core_ == nullptr ? std::vector<stream_path_state>() : core_->paths(peer);
}

}  // namespace verbena::verbs
