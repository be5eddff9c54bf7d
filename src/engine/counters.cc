// SPDX-License-Identifier: Apache-2.0
#include "engine/counters.h"

namespace verbena::engine {

CounterValues values_of(const Counters& counters) {
  CounterValues values{};
  for (std::size_t i = 0; i < kCounters; ++i) values[i] = counters.*kCounterTable[i].counter;
  return values;
}

void add(Counters& sum, const Counters& more) {
  for (const CounterEntry& entry : kCounterTable) {
    (sum.*entry.counter).add(more.*entry.counter);
  }
}

Counters since(const Counters& before, const Counters& now) {
  Counters difference;
  for (const CounterEntry& entry : kCounterTable) {
    const std::uint64_t from = before.*entry.counter;
    const std::uint64_t to = now.*entry.counter;
    if (to > from) (difference.*entry.counter).add(to - from);
  }
  return difference;
}

std::uint64_t naks_sent(const Counters& counters) {
  return counters.sequence_naks_sent + counters.request_naks_sent + counters.access_naks_sent +
         counters.operation_naks_sent;
}

std::uint64_t naks_received(const Counters& counters) {
  return counters.sequence_naks_received + counters.request_naks_received +
         counters.access_naks_received + counters.operation_naks_received;
}

Counter Counters::* sent_nak_counter(wire::NakCode code) {
  switch (code) {
    case wire::NakCode::kSequenceError: return &Counters::sequence_naks_sent;
    case wire::NakCode::kInvalidRequest: return &Counters::request_naks_sent;
    case wire::NakCode::kRemoteAccessError: return &Counters::access_naks_sent;
    default: return &Counters::operation_naks_sent;
  }
}

Counter Counters::* received_nak_counter(wire::NakCode code) {
  switch (code) {
    case wire::NakCode::kSequenceError: return &Counters::sequence_naks_received;
    case wire::NakCode::kInvalidRequest: return &Counters::request_naks_received;
    case wire::NakCode::kRemoteAccessError: return &Counters::access_naks_received;
    default: return &Counters::operation_naks_received;
  }
}

Counter Counters::* failure_counter(Status status) {
  switch (status) {
    case Status::kFlushError: return &Counters::flushed;
    case Status::kRetryExceeded: return &Counters::retry_exceeded;
    case Status::kRnrRetryExceeded: return &Counters::rnr_retry_exceeded;
    case Status::kRemoteAccessError: return &Counters::remote_access_errors;
    case Status::kRemoteInvalidRequest: return &Counters::remote_invalid_requests;
    case Status::kRemoteOperationError: return &Counters::remote_operation_errors;
    case Status::kLocalProtectionError: return &Counters::local_protection_errors;
    case Status::kLocalLengthError: return &Counters::local_length_errors;
    case Status::kBadResponseError: return &Counters::bad_responses;
    default: return &Counters::other_failures;
  }
}

}  // namespace verbena::engine
