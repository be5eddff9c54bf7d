// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Where instructions are counted, by this name.
extern "C" void verbena_measured(void (*step)(void*), void* context);

namespace verbena::bench {

/// Does `step` so often, measured behind the warm-up; `before` and `after` lead to it and away.
template <typename Before, typename Step, typename After>
void run_script(unsigned warm_up, unsigned times, Before before, Step step, After after) {
  for (unsigned i = 0; i < warm_up + times; ++i) {
    before();
    if (i < warm_up) {
      step();
    } else {
      verbena_measured([](void* context) { (*static_cast<Step*>(context))(); }, &step);
    }
    after();
  }
}

// Each does one step `warm_up` times and then measures it so often. What it takes to come to the
// step is not measured. A step that goes wrong ends the process.

// The verbs, between two NICs on a network in memory, 64 bytes at a time.
void post_send(unsigned warm_up, unsigned times);  ///< ibv_post_send, the packet's sending with it
void post_receive(unsigned warm_up, unsigned times);  ///< ibv_post_recv
void poll_empty(unsigned warm_up, unsigned times);    ///< ibv_poll_cq that finds nothing
void poll_receive(unsigned warm_up, unsigned times);  ///< ibv_poll_cq that takes a packet in
void poll_send(unsigned warm_up, unsigned times);  ///< ibv_poll_cq that takes its acknowledgement
// The same for 32 requests that are posted as one list.
void send_list(unsigned warm_up, unsigned times);   ///< ibv_post_send of SENDs
void build_list(unsigned warm_up, unsigned times);  ///< the same by ibv_wr_send
void poll_list(unsigned warm_up, unsigned times);   ///< ibv_poll_cq that takes them in
void write_list(unsigned warm_up, unsigned times);  ///< ibv_post_send of WRITEs
void place_list(unsigned warm_up, unsigned times);  ///< ibv_poll_cq that takes those in
void train_place(unsigned warm_up,
                 unsigned times);  ///< ibv_poll_cq that takes in a WRITE of 32 KiB
// The same where packets of one length share sends: each is a WRITE of its own.
void spread_post(unsigned warm_up, unsigned times);   ///< ibv_post_send of it
void spread_place(unsigned warm_up, unsigned times);  ///< ibv_poll_cq that takes it in
// By rings.
void post_near(unsigned warm_up, unsigned times);       ///< ibv_post_send of a SEND
void poll_near(unsigned warm_up, unsigned times);       ///< ibv_poll_cq that takes it in
void post_near_list(unsigned warm_up, unsigned times);  ///< ibv_post_send of 32 SENDs
void poll_near_list(unsigned warm_up, unsigned times);  ///< ibv_poll_cq that takes them in
void acked_near(unsigned warm_up, unsigned times);  ///< ibv_poll_cq that takes its acknowledgement
// Where the memory is shared.
void write_direct(unsigned warm_up, unsigned times);  ///< ibv_post_send of a WRITE
void poll_direct(unsigned warm_up, unsigned times);   ///< ibv_poll_cq that takes its completion

// The UDP link on loopback, 62 packets of 1 KiB at once; the kernel's part is not counted.
void train_send(unsigned warm_up, unsigned times);
void train_receive(unsigned warm_up, unsigned times);  ///< and the check of each ICRC

// The ICRC of one packet.
void icrc_64(unsigned warm_up, unsigned times);
void icrc_1024(unsigned warm_up, unsigned times);

}  // namespace verbena::bench
