// SPDX-License-Identifier: Apache-2.0
#include "sim/network.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "wire/icrc.h"
#include "wire/packet.h"

namespace verbena::sim {
namespace {

/// What a datagram costs in a receiver's socket buffer besides its bytes, about as Linux counts.
constexpr std::uint32_t kBufferOverhead = 768;
/// Ethernet, IP and UDP headers and a frame's check, on a line.
constexpr std::size_t kLineOverhead = 46;

std::uint32_t cost(const Datagram& datagram) {
  return static_cast<std::uint32_t>(datagram.bytes.size()) + kBufferOverhead;
}

}  // namespace

class Network::Port final : public link::Link {
 public:
  Port(Network& network, const wire::Address& address, std::function<void()> arrived)
      : network_(network), address_(address), arrived_(std::move(arrived)) {}
  ~Port() override {
    if (!silent_) network_.forget(address_);
  }

  std::size_t send(std::span<const wire::Train> trains, Time) override {
    std::size_t taken = trains.size();
    if (network_.random_.chance_ppm(network_.plan_.refuse_ppm)) {
      taken = network_.random_.below(trains.size() + 1);
      network_.counters_.refused += trains.size() - taken;
    }
    batch_.begin();
    for (const wire::Train& train : trains.first(taken)) {
      for (std::uint32_t i = 0; i < train.count; ++i) send_packet(train, i);
    }
    return taken;
  }

  [[nodiscard]] bool segments(const wire::Path& /*path*/) override {
    return network_.plan_.segments;
  }

  std::size_t receive(std::span<wire::Segment> segments, Time) override {
    for (auto& datagram : held_) network_.give_back(std::move(datagram));
    held_.clear();
    while (held_.size() < segments.size() && !queue_.empty()) {
      Datagram& datagram = *queue_.front();
      used_ -= cost(datagram);
      segments[held_.size()] = {.datagram = datagram.bytes,
                                .path = datagram.path,
                                .position = 0,
                                .identification = datagram.identification};
      held_.push_back(std::move(queue_.front()));
      queue_.pop_front();
    }
    return held_.size();
  }

  void deliver(std::unique_ptr<Datagram> datagram) {
    if (used_ + cost(*datagram) > network_.plan_.queue_bytes) {
      ++network_.counters_.overflows;
      network_.print(*datagram, "overflow");
      network_.give_back(std::move(datagram));
      return;
    }
    used_ += cost(*datagram);
    queue_.push_back(std::move(datagram));
    arrived_();
  }

  void silence() {
    silent_ = true;
    queue_.clear();
    used_ = 0;
  }
  [[nodiscard]] bool empty() const { return queue_.empty(); }
  [[nodiscard]] bool waiting_from(const wire::Address& source) const {
    return std::ranges::any_of(
        queue_, [&](const auto& datagram) { return datagram->path.source == source; });
  }

 private:
  void send_packet(const wire::Train& train, std::uint32_t index) {
    const wire::TrainPacket packet = wire::packet_at(train, index);
    auto datagram = network_.make();
    datagram->path = *train.path;
    datagram->identification = batch_.place(train, packet.wire_size(), false);
    datagram->bytes.resize(packet.wire_size());
    const std::size_t written =
        wire::write_packet(train, packet, datagram->identification, datagram->bytes);
    if (silent_ || written == 0) {
      network_.give_back(std::move(datagram));
    } else {
      network_.launch(std::move(datagram));
    }
  }

  Network& network_;
  wire::Address address_;
  std::function<void()> arrived_;
  link::SendBatch batch_{};
  std::deque<std::unique_ptr<Datagram>> queue_;
  std::uint32_t used_ = 0;
  std::vector<std::unique_ptr<Datagram>> held_;  ///< may still be looked at
  bool silent_ = false;
};

std::unique_ptr<link::Link> Network::attach(const wire::Address& address,
                                            std::function<void()> arrived) {
  VERBENA_CHECK(!taken(address));
  auto port = std::make_unique<Port>(*this, address, std::move(arrived));
  ports_.emplace(address, port.get());
  return port;
}

bool Network::waiting(const wire::Address& address) const {
  const auto found = ports_.find(address);
  return found != ports_.end() && !found->second->empty();
}

bool Network::is_cut(const wire::Path& path, Time now) const {
  const auto cut = cuts_.find({path.source, path.destination});
  return cut != cuts_.end() && now < cut->second;
}

void Network::silence(const wire::Address& address) {
  const auto found = ports_.find(address);
  if (found == ports_.end()) return;
  found->second->silence();
  forget(address);
}

void Network::forget(const wire::Address& address) {
  ports_.erase(address);
  groups_.erase(address);
}

bool Network::quiet(const wire::Address& a, const wire::Address& b) const {
  const auto between = [&](const Flight& flight) {
    const wire::Address& from = flight.datagram->path.source;
    return (from == a && flight.to == b) || (from == b && flight.to == a);
  };
  if (std::ranges::any_of(flights_, between)) return false;
  const auto waits = [&](const wire::Address& at, const wire::Address& from) {
    const auto found = ports_.find(at);
    return found != ports_.end() && found->second->waiting_from(from);
  };
  return !waits(a, b) && !waits(b, a);
}

void Network::inject(const wire::Path& path, std::uint16_t identification, ConstBytes bytes) {
  auto datagram = make();
  datagram->path = path;
  datagram->identification = identification;
  datagram->bytes.assign(bytes.begin(), bytes.end());
  ++counters_.injected;
  print(*datagram, "forged");
  launch(std::move(datagram));
}

std::unique_ptr<Datagram> Network::make() {
  if (pool_.empty()) return std::make_unique<Datagram>();
  auto datagram = std::move(pool_.back());
  pool_.pop_back();
  return datagram;
}

void Network::launch(std::unique_ptr<Datagram> datagram) {
  const Time now = scheduler_.now();
  const wire::Address destination = datagram->path.destination;
  ++counters_.packets;
  counters_.bytes += datagram->bytes.size();
  // The ICRC at its end covers all of the datagram.
  const std::size_t size = datagram->bytes.size();
  trace_.mix_all(now.time_since_epoch().count(), size,
                 size < 4 ? 0 : wire::load_icrc(datagram->bytes.data() + size - 4));
  print(*datagram, "->");
  if (!destination.is_multicast()) return fly(std::move(datagram), destination);
  for (const auto& [address, port] : ports_) {
    auto copy = make();
    *copy = *datagram;
    fly(std::move(copy), address);
  }
  give_back(std::move(datagram));
}

void Network::fly(std::unique_ptr<Datagram> datagram, const wire::Address& to) {
  const Time now = scheduler_.now();
  const Pair pair{datagram->path.source, to};
  if (is_cut({.source = datagram->path.source, .destination = to}, now)) {
    ++counters_.cut;
    return give_back(std::move(datagram));
  }
  Time leaves = now;
  if (const auto line = bottlenecks_.find(to); line != bottlenecks_.end()) {
    const auto left = line->second.pass(datagram->bytes.size() + kLineOverhead,
                                        datagram->path.traffic_class, now, random_);
    if (!left) return give_back(std::move(datagram));
    leaves = *left;
  }
  Time& last = last_arrival_[pair];
  const auto jitter = static_cast<std::uint64_t>(plan_.jitter.count());
  const Duration extra{static_cast<Duration::rep>(random_.below(jitter + 1))};
  last = std::max(last, leaves + plan_.latency + extra);
  flights_.push_back({to, last, next_number_++, std::move(datagram)});
  std::push_heap(flights_.begin(), flights_.end());
}

std::optional<Time> Network::next() {
  if (flights_.empty()) return std::nullopt;
  return flights_.front().arrives;
}

void Network::act(Time now) {
  while (!flights_.empty() && flights_.front().arrives <= now) {
    std::pop_heap(flights_.begin(), flights_.end());
    Flight flight = std::move(flights_.back());
    flights_.pop_back();
    if (Port* const port = receiver(flight); port != nullptr) {
      port->deliver(std::move(flight.datagram));
    } else {
      ++counters_.nowhere;
      give_back(std::move(flight.datagram));
    }
  }
}

/// Null when nobody is there, or nobody who is in the group.
Network::Port* Network::receiver(const Flight& flight) const {
  const auto found = ports_.find(flight.to);
  if (found == ports_.end()) return nullptr;
  const wire::Address& destination = flight.datagram->path.destination;
  if (!destination.is_multicast()) return found->second;
  const auto groups = groups_.find(flight.to);
  const bool joined = groups != groups_.end() && groups->second.contains(destination);
  return joined ? found->second : nullptr;
}

void Network::print(const Datagram& datagram, const char* what) {
  if (!trace_.prints()) return;
  const auto packet = wire::parse(datagram.bytes);
  trace_.line(scheduler_.now(), wire::to_string(datagram.path.source), "{} {} {}", what,
              wire::to_string(datagram.path.destination),
              packet ? wire::to_string(*packet) : std::string(wire::to_string(packet.error())));
}

}  // namespace verbena::sim
