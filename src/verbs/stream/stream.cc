// SPDX-License-Identifier: Apache-2.0
#include "verbena/stream.h"

#include <utility>

#include "verbs/stream/connection.h"

namespace verbena::verbs {
namespace {

using Connection = streams::connection;
using Wait = Connection::Wait;

/// A queue pair that its user has connected.
class Connected : public streams::Origin {
 public:
  explicit Connected(queue_pair<rc> qp) : qp_(std::move(qp)) {}
  [[nodiscard]] queue_pair<rc>& qp() override { return qp_; }
  [[nodiscard]] int fd() const override { return -1; }
  [[nodiscard]] Result<> check() override { return {}; }
  void disconnect() override {}

 private:
  queue_pair<rc> qp_;
};

/// What a handle without a stream behind it says.
Result<Connection*> open(const std::shared_ptr<Connection>& connection, const char* operation) {
  if (connection != nullptr) return connection.get();
  return fail(std::errc::bad_file_descriptor, operation,
              "the handle is empty: it was moved from or closed");
}

}  // namespace

read_half::read_half(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}

Result<std::size_t> read_half::read_some(std::span<std::byte> into) {
  return VERBENA_TRY(open(connection_, "stream::read_some"))->read_some(into, Wait::kYes);
}

Result<std::size_t> read_half::read(std::span<std::byte> into) {
  Connection& from = *VERBENA_TRY(open(connection_, "stream::read"));
  std::size_t done = 0;
  while (done < into.size()) {
    const std::size_t n = VERBENA_TRY(from.read_some(into.subspan(done), Wait::kYes));
    if (n == 0) break;
    done += n;
  }
  return done;
}

Result<std::size_t> read_half::try_read_some(std::span<std::byte> into) {
  return VERBENA_TRY(open(connection_, "stream::try_read_some"))->read_some(into, Wait::kNo);
}

Result<std::span<const std::byte>> read_half::peek() {
  return VERBENA_TRY(open(connection_, "stream::peek"))->peek();
}

Result<> read_half::consume(std::size_t bytes) {
  return VERBENA_TRY(open(connection_, "stream::consume"))->consume(bytes);
}

int read_half::read_fd() const { return connection_ == nullptr ? -1 : connection_->read_fd(); }

void read_half::set_read_timeout(stream_timeout timeout) {
  if (connection_ != nullptr) connection_->set_read_timeout(timeout);
}

stream_counters read_half::counters() const {
  return connection_ == nullptr ? stream_counters() : connection_->counters();
}

write_half::write_half(std::shared_ptr<Connection> connection)
    : connection_(std::move(connection)) {}

write_half& write_half::operator=(write_half&& from) noexcept {
  if (this == &from) return *this;
  // By way of one that is destroyed, so what was here shuts down.
  const write_half before(std::move(*this));
  connection_ = std::move(from.connection_);
  return *this;
}

write_half::~write_half() {
  // A failure is the reader's, or nobody's.
  if (connection_ != nullptr) (void)connection_->shutdown();
}

Result<std::size_t> write_half::write_some(std::span<const std::byte> from) {
  return VERBENA_TRY(open(connection_, "stream::write_some"))->write_some(from, Wait::kYes);
}

Result<> write_half::write(std::span<const std::byte> from) {
  return VERBENA_TRY(open(connection_, "stream::write"))->write(from);
}

Result<std::size_t> write_half::try_write_some(std::span<const std::byte> from) {
  return VERBENA_TRY(open(connection_, "stream::try_write_some"))->write_some(from, Wait::kNo);
}

Result<std::span<std::byte>> write_half::prepare() {
  return VERBENA_TRY(open(connection_, "stream::prepare"))->prepare();
}

Result<> write_half::commit(std::size_t bytes) {
  return VERBENA_TRY(open(connection_, "stream::commit"))->commit(bytes);
}

int write_half::write_fd() const { return connection_ == nullptr ? -1 : connection_->write_fd(); }

Result<> write_half::flush() { return VERBENA_TRY(open(connection_, "stream::flush"))->flush(); }

Result<> write_half::shutdown() {
  return VERBENA_TRY(open(connection_, "stream::shutdown"))->shutdown();
}

void write_half::set_write_timeout(stream_timeout timeout) {
  if (connection_ != nullptr) connection_->set_write_timeout(timeout);
}

stream_counters write_half::counters() const {
  return connection_ == nullptr ? stream_counters() : connection_->counters();
}

Result<> stream::check_idle() {
  return VERBENA_TRY(open(reader_.connection_, "stream::check_idle"))->check_idle();
}

Result<> stream::probe(std::chrono::milliseconds at_most) {
  return VERBENA_TRY(open(reader_.connection_, "stream::probe"))->probe(at_most);
}

Result<> stream::close(std::chrono::milliseconds at_most) {
  const auto connection = std::exchange(reader_.connection_, nullptr);
  writer_.connection_.reset();
  return VERBENA_TRY(open(connection, "stream::close"))->close(at_most);
}

std::pair<read_half, write_half> stream::split() && {
  return {std::move(reader_), std::move(writer_)};
}

cm::socket_address stream::local_addr() const {
  return reader_.connection_ == nullptr ? cm::socket_address() : reader_.connection_->local_addr();
}

cm::socket_address stream::peer_addr() const {
  return reader_.connection_ == nullptr ? cm::socket_address() : reader_.connection_->peer_addr();
}

std::string stream::describe() const {
  return reader_.connection_ == nullptr ? "a closed stream" : reader_.connection_->describe();
}

qp_caps stream_builder::caps() const {
  return {.max_send_wr = static_cast<std::uint32_t>(streams::send_depth(options_)),
          .max_recv_wr = static_cast<std::uint32_t>(streams::receive_depth(options_)),
          .max_send_sge = streams::kMaxPieces,
          .max_inline_data = streams::kMaxFrame};
}

std::size_t stream_builder::cq_depth() const {
  return streams::send_depth(options_) + streams::receive_depth(options_);
}

Result<stream_parts> stream_builder::make_parts(const context& ctx,
                                                const protection_domain& pd) const {
  VERBENA_TRY(streams::check_options(options_));
  auto channel = VERBENA_TRY(ctx.create_channel());
  auto cq = VERBENA_TRY(ctx.create_cq({.depth = cq_depth(), .channel = &channel}));
  auto qp = VERBENA_TRY(pd.create_qp<rc>({.send_cq = cq, .recv_cq = cq, .caps = caps()}));
  return stream_parts{std::move(channel), std::move(cq), std::move(qp)};
}

Result<stream> stream_builder::start(stream_parts parts, const protection_domain& pd) const {
  auto resources = VERBENA_TRY(streams::make_resources(options_, std::move(parts.channel),
                                                       std::move(parts.cq), pd, parts.qp));
  return stream(VERBENA_TRY(
      Connection::make(std::move(resources), std::make_unique<Connected>(std::move(parts.qp)))));
}

}  // namespace verbena::verbs
