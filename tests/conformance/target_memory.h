// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "conformance/capture.h"
#include "conformance/test_memory.h"

namespace verbena::conformance {

/// The memory that an exchange's WRITEs, READs and atomics are about, as it was before the capture
/// and as it must be after it. Regions are as tight as the requests allow, unless the capture is
/// about a region's edge or key.
class TargetMemory {
 public:
  /// Adds the regions to `memory`, with their first contents. Both outlive this.
  TargetMemory(const std::string& capture, const Exchange& exchange, TestMemory& memory);

  /// To be called before the engine gets a request. In rxe-cm-rping the region's owner puts new
  /// data in place between the peer's READs: so does this.
  void before(const CapturedPacket& request);

  /// Compares what is there with what the requests that rxe did not refuse must have made of it.
  void expect_final() const;

 private:
  struct Image {
    std::uint64_t address = 0;
    std::vector<std::byte> initial{};
    std::vector<std::byte> current{};
    std::vector<bool> known{};
    void extend(std::uint64_t from, std::uint64_t to);
    void know(std::uint64_t at, ConstBytes before, ConstBytes after);
  };

  void add_ranges(const std::string& capture, const Exchange& exchange);
  void follow(const Exchange& exchange);
  void follow_read(const Message& message);
  /// Calls visit(packet, address of its first byte) for the responses to a READ.
  template <typename Visit>
  void for_each_response(const wire::Packet& read, Visit visit) const;
  void follow_atomic(const Message& message, const Exchange& exchange);

  const Exchange& exchange_;
  TestMemory& memory_;
  std::map<std::uint32_t, Image> images_;
  bool window_ = false;        ///< the requests' key is a memory window's
  bool owner_writes_ = false;  ///< the region's owner changes it as well
};

}  // namespace verbena::conformance
