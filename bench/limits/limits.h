// SPDX-License-Identifier: Apache-2.0
//
// What this machine can do at most: bare loops beside which the NIC is measured. Each function runs
// one of them and prints its figure (support/figure.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace verbena::bench {

struct Loop {
  double seconds = 1;
  std::size_t bytes = 64;  ///< of a message
};

/// Two sides of a loop over UDP, either of which may be on another host.
struct UdpLoop {
  double seconds = 1;
  std::size_t bytes = 64;   ///< of a datagram
  unsigned segments = 1;    ///< datagrams in a send; above 1 with UDP_SEGMENT and UDP_GRO
  bool blocking = false;    ///< receivers sleep; else they spin
  std::size_t payload = 0;  ///< bytes of a datagram that both sides copy with their CRC; 0: none
  unsigned depth = 0;      ///< datagrams that wait for an acknowledgement at most; 0: any, and none
  bool roce = false;       ///< a message has RoCE's headers, an acknowledgement behind it, and CRCs
  bool serve = false;      ///< be the server
  std::string address{};   ///< of the server
  std::uint16_t port = 0;  ///< of the server, UDP and TCP
};

// On one processor.
void copy_memory(const Loop& loop);  ///< memcpy of `bytes`, GB/s

// Between two threads or processes, on the first two processors. They need no server.
void bounce_cache_line(const Loop& loop);    ///< half a round trip of one, us
void bounce_through_ring(const Loop& loop);  ///< one way of a message of 64 bytes, us
void stream_through_ring(const Loop& loop);  ///< messages of 64 bytes, M/s
void bounce_writes(const Loop& loop);        ///< one way of a WRITE of 64 bytes by verbs, us
void bounce_sends(const Loop& loop);         ///< one way of a SEND of 64 bytes by verbs, us
void copy_once(const Loop& loop);            ///< memcpy into memory that another process maps, GB/s
void copy_twice(const Loop& loop);           ///< in by one process, out by another, pipelined, GB/s
void write_process(const Loop& loop);        ///< process_vm_writev, GB/s
void read_process(const Loop& loop);         ///< process_vm_readv, GB/s

void serve_stream(const UdpLoop& loop);
void stream(const UdpLoop& loop);       ///< what arrived, GB/s
void stream_rate(const UdpLoop& loop);  ///< the same, M datagrams/s
void serve_pingpong(const UdpLoop& loop);
void pingpong(const UdpLoop& loop);  ///< half a round trip, us

}  // namespace verbena::bench
