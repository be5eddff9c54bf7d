// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests of this room only: two streams on two devices of this process.

#include <gtest/gtest.h>

#include <string_view>
#include <utility>

#include "verbena/stream.h"
#include "verbs/test_pair.h"

namespace verbena::verbs::testing {

/// A device for a stream, and a queue pair that knows its peer.
struct StreamEnd {
  StreamEnd(std::string_view device, const stream_builder& builder)
      : ctx(must(context::open(device))),
        pd(must(ctx.alloc_pd())),
        parts(must(builder.make_parts(ctx, pd))) {}

  context ctx;
  protection_domain pd;
  stream_parts parts;
};

/// A peer that is gone is found out within some tenths of a second.
inline const connect_options kImpatient{.timeout = ack_timeout::from(std::chrono::milliseconds(16)),
                                        .retry_count = 3};

inline void connect(StreamEnd& left, StreamEnd& right) {
  const auto row = must(left.ctx.routable_gid());
  const qp_endpoint here = must(left.parts.qp.endpoint(row.of, row.index));
  const qp_endpoint there = must(right.parts.qp.endpoint(row.of, row.index));
  must(left.parts.qp.connect(here, there, kImpatient));
  must(right.parts.qp.connect(there, here, kImpatient));
}

/// Both ends of one stream. What fails in a test fails within the time-out.
struct Streams {
  explicit Streams(const stream_builder& builder = {}) : Streams(builder, builder) {}
  Streams(const stream_builder& for_left, const stream_builder& for_right)
      : Streams(StreamEnd("vrb0", for_left), StreamEnd("vrb1", for_right), for_left, for_right) {}

  stream left;
  stream right;

 private:
  Streams(StreamEnd one, StreamEnd other, const stream_builder& for_left,
          const stream_builder& for_right)
      : left((connect(one, other), must(for_left.start(std::move(one.parts), one.pd)))),
        right(must(for_right.start(std::move(other.parts), other.pd))) {
    for (stream* end : {&left, &right}) {
      end->set_read_timeout(std::chrono::seconds(60));
      end->set_write_timeout(std::chrono::seconds(60));
    }
  }
};

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace verbena::verbs::testing
