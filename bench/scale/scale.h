// SPDX-License-Identifier: Apache-2.0
//
// Many objects in one process: what each costs, and what all of them cost the data path. Ordinary
// verbs programs; each function prints its figure (support/figure.h).
#pragma once

#include <cstdint>
#include <string>

namespace verbena::bench {

struct Scale {
  std::uint32_t count = 100;   ///< queue pairs on either side, or memory regions
  std::string figure{"rate"};  ///< what is asked for
  double seconds = 1;          ///< of a rate
  bool serve = false;          ///< be the server
  std::string address{};       ///< of the server's control connection, IPv4
  std::uint16_t port = 0;      ///< and its TCP port
};

/// RC queue pairs between two processes. `figure`: "setup", microseconds from ibv_create_qp to RTS
/// for each; "memory", KiB that the process grows by for each; "rate", WRITEs of 64 bytes in lists
/// of 32, to one queue pair after the other, M/s; "idle", what part of a processor the busier of
/// the two processes takes while nothing is sent, percent.
void scale_queue_pairs(const Scale& scale);

/// Regions of 4 KiB, all of the same memory, so that nothing but their keys can miss a cache.
/// `figure`: "setup", microseconds for each ibv_reg_mr; "rate", WRITEs of 64 bytes in lists of 32
/// from a region by chance to a region by chance, within the process, M/s.
void scale_regions(const Scale& scale);

}  // namespace verbena::bench
