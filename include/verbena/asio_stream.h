// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/compose.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/system/system_error.hpp>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "verbena/asio_error.h"
#include "verbena/stream.h"

/// For programs that have Boost.Asio: nothing of this library is compiled with it.
namespace verbena::verbs {

/// A stream as Asio's SyncReadStream, SyncWriteStream, AsyncReadStream and AsyncWriteStream, so
/// that what is written for those (`boost::asio::ssl::stream`, Boost.Beast) runs over RDMA.
///
/// One read and one write may be under way at once; it outlives both, and is not moved meanwhile.
/// The end is `boost::asio::error::eof`. The stream's time-outs are of the calls that block; its
/// keep-alive goes on while a read or a write is under way.
///
/// Threads: as those of Asio's own streams; blocking calls in one thread for each direction.
class asio_stream {
 public:
  using executor_type = boost::asio::any_io_executor;  ///< any
  using lowest_layer_type = asio_stream;               ///< there is none below
  using error_code = boost::system::error_code;        ///< Asio's

  /// Throws boost::system::system_error where no descriptor is to be had.
  asio_stream(const executor_type& executor, stream over)
      : stream_(std::move(over)),
        readable_(executor, own(stream_.read_fd())),
        writable_(executor, own(stream_.write_fd())) {}

  /// That it was made with.
  [[nodiscard]] executor_type get_executor() { return readable_.get_executor(); }
  /// Itself.
  [[nodiscard]] lowest_layer_type& lowest_layer() { return *this; }
  /// Itself.
  [[nodiscard]] const lowest_layer_type& lowest_layer() const { return *this; }
  /// For what Asio's form does not have.
  [[nodiscard]] verbs::stream& next_layer() { return stream_; }

  /// What is under way completes with `operation_aborted`; nothing of the stream is lost.
  void cancel() {
    ++cancels_;
    readable_.cancel();
    writable_.cancel();
  }

  /// @name Asio's stream concepts
  /// Of several buffers the first that is not empty is used.
  /// @{
  /// Waits for bytes; 0 only with an error, or for no room.
  template <typename Buffers>
  std::size_t read_some(const Buffers& into, error_code& error) {
    const auto piece = first_of<boost::asio::mutable_buffer>(into);
    return end_of(stream_.read_some(bytes_of<std::byte>(piece)), piece.size(), error);
  }
  /// The same; throws boost::system::system_error.
  template <typename Buffers>
  std::size_t read_some(const Buffers& into) {
    return thrown([&](error_code& error) { return read_some(into, error); });
  }
  /// Waits for room, and takes what there is room for.
  template <typename Buffers>
  std::size_t write_some(const Buffers& from, error_code& error) {
    const auto piece = first_of<boost::asio::const_buffer>(from);
    return end_of(stream_.write_some(bytes_of<const std::byte>(piece)), 0, error);
  }
  /// The same; throws boost::system::system_error.
  template <typename Buffers>
  std::size_t write_some(const Buffers& from) {
    return thrown([&](error_code& error) { return write_some(from, error); });
  }

  /// `read_some` without waiting in the call: the handler gets error and bytes.
  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& into, Token&& token) {
    const auto piece = first_of<boost::asio::mutable_buffer>(into);
    return start(
        readable_, [this, piece] { return stream_.try_read_some(bytes_of<std::byte>(piece)); },
        piece.size(), std::forward<Token>(token));
  }
  /// `write_some` likewise.
  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& from, Token&& token) {
    const auto piece = first_of<boost::asio::const_buffer>(from);
    return start(
        writable_,
        [this, piece] { return stream_.try_write_some(bytes_of<const std::byte>(piece)); }, 0,
        std::forward<Token>(token));
  }
  /// @}
 private:
  using descriptor = boost::asio::posix::stream_descriptor;

  /// A descriptor of our own, which Asio closes.
  [[nodiscard]] static int own(int fd) {
    const int copy = ::dup(fd);
    if (copy < 0) throw boost::system::system_error(errno, boost::system::system_category());
    return copy;
  }
  template <typename Buffer, typename Buffers>
  [[nodiscard]] static Buffer first_of(const Buffers& all) {
    for (auto at = boost::asio::buffer_sequence_begin(all);
         at != boost::asio::buffer_sequence_end(all); ++at)
      if (const Buffer one(*at); one.size() != 0) return one;
    return Buffer();
  }
  template <typename Byte, typename Buffer>
  [[nodiscard]] static std::span<Byte> bytes_of(const Buffer& buffer) {
    return {static_cast<Byte*>(buffer.data()), buffer.size()};
  }
  /// Asio's form of a result. No byte is the end where some were asked for.
  static std::size_t end_of(const Result<std::size_t>& result, std::size_t asked,
                            error_code& error) {
    error = {};
    if (!result)
      error = to_asio(result.error());
    else if (*result == 0 && asked != 0)
      error = boost::asio::error::eof;
    return result.value_or(0);
  }
  template <typename Call>
  static std::size_t thrown(const Call& call) {
    error_code error;
    const std::size_t n = call(error);
    if (error) throw boost::system::system_error(error);
    return n;
  }

  /// Tries, and waits for the descriptor until trying brings something.
  template <typename Try>
  class operation {
   public:
    operation(const asio_stream& of, descriptor& fd, Try attempt, std::size_t asked)
        : of_(of), fd_(fd), try_(std::move(attempt)), asked_(asked) {}

    template <typename Self>
    void operator()(Self& self, error_code error = {}, std::size_t /*bytes*/ = 0) {
      if (!cancels_) cancels_ = of_.cancels_;
      // The descriptor may have been found readable, for nothing, before it was cancelled. Behind
      // an error the stream may be gone.
      if (!done_ && !error &&
          (cancels_ != of_.cancels_ || self.cancelled() != boost::asio::cancellation_type::none))
        error = boost::asio::error::operation_aborted;
      if (!done_ && !error) {
        const Result<std::size_t> result = try_();
        descriptor& fd = fd_;
        if (!result && result.error().would_block()) {
          started_ = true;
          fd.async_wait(descriptor::wait_read, std::move(self));
          return;
        }
        done_ = true;
        bytes_ = end_of(result, asked_, error_);
        // Not from within the call that starts it.
        if (!std::exchange(started_, true)) {
          boost::asio::post(fd.get_executor(), std::move(self));
          return;
        }
      }
      self.complete(done_ ? error_ : error, bytes_);
    }

   private:
    const asio_stream& of_;
    descriptor& fd_;
    Try try_;
    std::size_t asked_;
    std::optional<std::size_t> cancels_;  // of the stream when this began
    std::size_t bytes_ = 0;
    error_code error_;
    bool started_ = false;
    bool done_ = false;
  };
  template <typename Try, typename Token>
  auto start(descriptor& fd, Try attempt, std::size_t asked, Token&& token) {
    return boost::asio::async_compose<Token, void(error_code, std::size_t)>(
        operation<Try>(*this, fd, std::move(attempt), asked), token, fd);
  }

  verbs::stream stream_;
  descriptor readable_;
  descriptor writable_;
  std::size_t cancels_ = 0;
};

}  // namespace verbena::verbs
