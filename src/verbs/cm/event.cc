// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>

#include "verbena/cm_event.h"

namespace verbena::verbs::cm {
namespace {

struct About {
  std::string_view name;
  const char* native;  ///< as the C header has it
  int otherwise = 0;   ///< the errno where the status is none; 0: it is no failure
  std::string_view why{};
};

/// By the number of the type. rdma_get_cm_event(3).
constexpr std::array kTypes{
    About{"address resolved", "RDMA_CM_EVENT_ADDR_RESOLVED"},
    About{"address error", "RDMA_CM_EVENT_ADDR_ERROR", EHOSTUNREACH,
          "no device of this machine reaches the address"},
    About{"route resolved", "RDMA_CM_EVENT_ROUTE_RESOLVED"},
    About{"route error", "RDMA_CM_EVENT_ROUTE_ERROR", EHOSTUNREACH,
          "no route to the address was found"},
    About{"connect request", "RDMA_CM_EVENT_CONNECT_REQUEST"},
    About{"connect response", "RDMA_CM_EVENT_CONNECT_RESPONSE"},
    About{"connect error", "RDMA_CM_EVENT_CONNECT_ERROR", ECONNABORTED,
          "the connection could not be set up"},
    About{"unreachable", "RDMA_CM_EVENT_UNREACHABLE", EHOSTUNREACH, "the peer does not answer"},
    About{"rejected", "RDMA_CM_EVENT_REJECTED", ECONNREFUSED, "the peer refuses"},
    About{"established", "RDMA_CM_EVENT_ESTABLISHED"},
    About{"disconnected", "RDMA_CM_EVENT_DISCONNECTED", ECONNRESET, "the peer has disconnected"},
    About{"device removal", "RDMA_CM_EVENT_DEVICE_REMOVAL", ENODEV, "the device is gone"},
    About{"multicast join", "RDMA_CM_EVENT_MULTICAST_JOIN"},
    About{"multicast error", "RDMA_CM_EVENT_MULTICAST_ERROR", EADDRNOTAVAIL,
          "the group cannot be joined, or was left"},
    About{"address change", "RDMA_CM_EVENT_ADDR_CHANGE"},
    About{"timewait exit", "RDMA_CM_EVENT_TIMEWAIT_EXIT"},
};
static_assert(kTypes.size() == RDMA_CM_EVENT_TIMEWAIT_EXIT + 1);

const About& description_of(event_type type) {
  static constexpr About kUnknown{"unknown", "rdma_get_cm_event"};
  const auto index = static_cast<std::size_t>(type);
  return index < kTypes.size() ? kTypes.at(index) : kUnknown;
}

/// The reasons of a rejected connection. IBA 12.6.7.2.
std::string_view reason_of(int status) {
  switch (status) {
    case 1: return "it has no queue pair left";
    case 3: return "it lacks resources";
    case 4: return "it did not get our answer in time";
    case 5: return "it does not support the request";
    case 6:
    case 7: return "it does not know the connection";
    case 8: return "nothing listens there";
    case 9: return "it does not have the service (RC, UC or XRC)";
    case 10: return "a connection of this queue pair is known there, and is stale";
    case 12:
    case 18: return "the GID is not its own";
    case 24:
    case 25: return "the service is at another port";
    case 26: return "it does not accept the path's MTU";
    case 27: return "it lacks resources for so many READs and atomics";
    case 28: return "its program said no";
    case 29: return "it does not accept the RNR retry count";
    default: return "for a reason of its own";
  }
}

/// Of datagrams. IBA 12.11.2 (SIDR REP).
std::string_view datagram_reason_of(int status) {
  switch (status) {
    case 1: return "nothing has the service there";
    case 2: return "its program said no";
    case 3: return "it has no queue pair for it";
    case 4: return "the service is at another port";
    case 5: return "it does not support the version";
    default: return "for a reason of its own";
  }
}

}  // namespace

std::string_view name_of(event_type type) noexcept { return description_of(type).name; }

bool event::is_failure() const noexcept { return description_of(type_).otherwise != 0; }

Error event::failure() const {
  const About& kind = description_of(type_);
  if (!is_failure())
    return {std::errc::protocol_error, kind.native, "this event was not to come here"};
  // An answer that says no, in words of the wire's: a positive number, or on iWARP ECONNREFUSED.
  const bool rejected = type_ == event_type::rejected;
  const bool unresolved = type_ == event_type::unreachable && status_ > 0;
  if (rejected || unresolved) {
    return {{ECONNREFUSED, verbs_category()},
            kind.native,
            fmt::format("the peer refuses: {} (status {})",
                        rejected ? reason_of(status_) : datagram_reason_of(status_), status_),
            verbs::refusal{.status = status_, .private_data = private_data_}};
  }
  const int error = status_ < 0 ? -status_ : kind.otherwise;
  return {{error, verbs_category()}, kind.native, fmt::format("{} (status {})", kind.why, status_)};
}

}  // namespace verbena::verbs::cm
