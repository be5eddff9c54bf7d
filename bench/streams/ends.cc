// SPDX-License-Identifier: Apache-2.0
#include "bench/streams/ends.h"

#include <fmt/format.h>

#include <chrono>

#include "verbena/json.h"
#include "verbena/stream_listener.h"

namespace verbena::bench {

verbs::stream connect_ends(const Streams& wanted) {
  using verbs::stream_transport;
  auto sizes = verbs::stream_builder(wanted.sizes);
  sizes.transport(wanted.transport == "ring" ? stream_transport::ring : stream_transport::messages);
  if (wanted.serve) {
    const Control control = Control::serve(wanted.address, wanted.port);
    auto listener = must(verbs::listener::bind(fmt::format("{}:0", wanted.address), sizes));
    control.send(std::to_string(listener.local_addr().port()));
    return must(listener.accept());
  }
  const Control control = Control::join(wanted.address, wanted.port);
  return must(sizes.connect(fmt::format("{}:{}", wanted.address, control.receive())));
}

void connect(verbs::queue_pair<verbs::rc>& qp, const verbs::context& of, const Control& control) {
  const auto row = must(of.routable_gid());
  const auto mine = must(qp.endpoint(row.of, row.index));
  control.send(verbs::write_json(mine));
  must(qp.connect(mine, must(verbs::read_json<verbs::qp_endpoint>(control.receive())),
                  {.min_rnr_timer = verbs::rnr_timer::from(std::chrono::microseconds(10))}));
}

}  // namespace verbena::bench
