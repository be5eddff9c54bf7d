// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests of this room only: two connected queue pairs whose requests are awaited.

#include "verbena/async/queue_pair.h"
#include "verbs/test_pair.h"

namespace verbena::verbs::testing {

/// A device with a dispatcher and memory.
struct AsyncEnd {
  explicit AsyncEnd(std::string_view device, const dispatcher_attributes& attributes = {})
      : ctx(must(context::open(device))),
        pd(must(ctx.alloc_pd())),
        in(must(dispatcher::create(ctx, attributes))),
        memory(must(pd.alloc_mr(4096, kEverything))) {}

  [[nodiscard]] leased_slice slice(std::size_t offset, std::size_t length) const {
    return must(leased_slice::of(memory, offset, length));
  }
  template <service S>
  [[nodiscard]] queue_pair<S> create_qp(const qp_caps& caps = {}) const {
    return must(pd.create_qp<S>({.send_cq = in.cq(), .recv_cq = in.cq(), .caps = caps}));
  }

  context ctx;
  protection_domain pd;
  dispatcher in;
  memory_region memory;
};

template <service S>
void join(const context& on, queue_pair<S>& one, queue_pair<S>& other,
          const connect_options& options = {}) {
  const auto row = must(on.routable_gid());
  const qp_endpoint here = must(one.endpoint(row.of, row.index));
  const qp_endpoint there = must(other.endpoint(row.of, row.index));
  must(one.connect(here, there, options));
  must(other.connect(there, here, options));
}

template <service S>
struct AsyncPair {
  explicit AsyncPair(const qp_caps& caps = {}, const connect_options& options = {},
                     const dispatcher_attributes& attributes = {})
      : left("vrb0", attributes), right("vrb1", attributes) {
    auto one = left.create_qp<S>(caps);
    auto other = right.create_qp<S>(caps);
    join(left.ctx, one, other, options);
    left_qp = must(async_queue_pair<S>::attach(left.in, std::move(one)));
    right_qp = must(async_queue_pair<S>::attach(right.in, std::move(other)));
  }
  [[nodiscard]] async_queue_pair<S>& left_end() { return *left_qp; }
  [[nodiscard]] async_queue_pair<S>& right_end() { return *right_qp; }

  AsyncEnd left;
  AsyncEnd right;
  std::optional<async_queue_pair<S>> left_qp;
  std::optional<async_queue_pair<S>> right_qp;
};

}  // namespace verbena::verbs::testing
