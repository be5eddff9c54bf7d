// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace verbena::bench {

/// Where the two sides of a benchmark meet: a TCP connection, over which they tell each other where
/// to send, when to begin, and what was measured. The runner takes a server for ready when its port
/// listens. Whatever fails ends the process (give_up).
class Control {
 public:
  /// Waits for one client at the IPv4 address.
  [[nodiscard]] static Control serve(const std::string& address, std::uint16_t port);
  /// Connects to the server, which listens already.
  [[nodiscard]] static Control join(const std::string& address, std::uint16_t port);
  Control(Control&& other) noexcept;
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;
  Control& operator=(Control&&) = delete;
  ~Control();

  /// At most 64 KiB.
  void send(const std::string& message) const;
  [[nodiscard]] std::string receive() const;
  /// Both sides have come here.
  void meet() const;
  /// Something has come, or the other side has gone. Never blocks.
  [[nodiscard]] bool readable() const;
  /// Ends the process where the other side has gone and left nothing to receive. Never blocks.
  void expect_peer() const;

 private:
  explicit Control(int socket) : socket_(socket) {}
  void read_all(char* to, std::size_t size) const;
  int socket_;
};

}  // namespace verbena::bench
