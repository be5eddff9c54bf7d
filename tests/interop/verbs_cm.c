// SPDX-License-Identifier: Apache-2.0
//
// What the programs of rdmacm-utils do not do with connections:
//
//   verbs_cm listen ADDRESS PORT COUNT [reject]
//     accepts (or refuses) so many, and says of each event what it is; "listening" first
//   verbs_cm connect ADDRESS PORT [die | leave]
//     one connection, and the event that answers it; with `die` it is killed between the answer and
//     its RTU, with `leave` it exits while it is connected
//   verbs_cm loop ADDRESS COUNT
//     connects and disconnects in one process, and prints what is left and how fast it was, beside
//     TCP
//   verbs_cm ece ADDRESS
//     an enhanced connection in one process, and one that is refused: each side prints what the
//     other one says of it

#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "interop/in_use.h"
#include "interop/verbs_loop.h"

#define PATIENCE_MS 2000
static const char kReason[] = "not today";

static struct sockaddr_storage address_of(const char* text, const char* port) {
  struct sockaddr_storage address = {0};
  struct sockaddr_in* const four = (struct sockaddr_in*)&address;
  struct sockaddr_in6* const six = (struct sockaddr_in6*)&address;
  const in_port_t number = htons((in_port_t)strtoul(port, NULL, 10));
  if (inet_pton(AF_INET, text, &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = number;
  } else {
    need(inet_pton(AF_INET6, text, &six->sin6_addr) == 1, "an address");
    six->sin6_family = AF_INET6;
    six->sin6_port = number;
  }
  return address;
}

static struct rdma_cm_event* next_event(struct rdma_event_channel* channel) {
  struct rdma_cm_event* event = NULL;
  need(rdma_get_cm_event(channel, &event) == 0, "rdma_get_cm_event");
  return event;
}

static void say(const struct rdma_cm_event* event) {
  printf("%s, status %d", rdma_event_str(event->event), event->status);
  const struct rdma_conn_param* const parameters = &event->param.conn;
  // Without words of the peer's there are zeros.
  if (event->event == RDMA_CM_EVENT_REJECTED && parameters->private_data_len >= sizeof kReason &&
      *(const char*)parameters->private_data != '\0')
    printf(", \"%.*s\"", (int)sizeof kReason, (const char*)parameters->private_data);
  printf("\n");
  fflush(stdout);
}

/// Waits for that event; the id that it brought.
static struct rdma_cm_id* expect(struct rdma_event_channel* channel,
                                 enum rdma_cm_event_type wanted) {
  struct rdma_cm_event* const event = next_event(channel);
  if (event->event != wanted)
    die("%s (status %d) in place of %s", rdma_event_str(event->event), event->status,
        rdma_event_str(wanted));
  struct rdma_cm_id* const id = event->id;
  rdma_ack_cm_event(event);
  return id;
}

static void make_queue_pair(struct rdma_cm_id* id) {
  struct ibv_qp_init_attr attr = {
      .qp_type = IBV_QPT_RC,
      .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
  need(rdma_create_qp(id, NULL, &attr) == 0, "rdma_create_qp");
}

static struct rdma_cm_id* listener_at(struct rdma_event_channel* channel,
                                      struct sockaddr_storage address) {
  struct rdma_cm_id* id = NULL;
  need(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
  need(rdma_bind_addr(id, (struct sockaddr*)&address) == 0, "rdma_bind_addr");
  need(rdma_listen(id, 16) == 0, "rdma_listen");
  return id;
}

static struct rdma_cm_id* route_to(struct rdma_event_channel* channel,
                                   struct sockaddr_storage address) {
  struct rdma_cm_id* id = NULL;
  need(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
  need(rdma_resolve_addr(id, NULL, (struct sockaddr*)&address, PATIENCE_MS) == 0,
       "rdma_resolve_addr");
  expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  need(rdma_resolve_route(id, PATIENCE_MS) == 0, "rdma_resolve_route");
  expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
  return id;
}

static void destroy(struct rdma_cm_id* id) {
  if (id->qp != NULL) rdma_destroy_qp(id);
  need(rdma_destroy_id(id) == 0, "rdma_destroy_id");
}

static int run_listener(struct sockaddr_storage address, unsigned count, bool reject) {
  struct rdma_event_channel* const channel = rdma_create_event_channel();
  need(channel != NULL, "rdma_create_event_channel");
  struct rdma_cm_id* const listener = listener_at(channel, address);
  printf("listening\n");
  fflush(stdout);
  for (unsigned ended = 0; ended < count;) {
    struct rdma_cm_event* const event = next_event(channel);
    struct rdma_cm_id* const id = event->id;
    const enum rdma_cm_event_type type = event->event;
    say(event);
    rdma_ack_cm_event(event);
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST && reject) {
      need(rdma_reject(id, kReason, sizeof kReason) == 0, "rdma_reject");
    } else if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      make_queue_pair(id);
      struct rdma_conn_param parameters = {0};
      need(rdma_accept(id, &parameters) == 0, "rdma_accept");
      continue;
    } else if (type == RDMA_CM_EVENT_ESTABLISHED || type == RDMA_CM_EVENT_TIMEWAIT_EXIT) {
      continue;
    } else if (type == RDMA_CM_EVENT_DISCONNECTED) {
      rdma_disconnect(id);
    }
    destroy(id);
    ++ended;
  }
  destroy(listener);
  rdma_destroy_event_channel(channel);
  printf("passed: %u ended\n", count);
  return 0;
}

// Without a queue pair in librdmacm's hands, the peer's answer is ours to confirm: there we die.
static int run_connecter(struct sockaddr_storage address, const char* how) {
  const bool dies = strcmp(how, "die") == 0;
  struct rdma_event_channel* const channel = rdma_create_event_channel();
  need(channel != NULL, "rdma_create_event_channel");
  struct rdma_cm_id* const id = route_to(channel, address);
  struct rdma_conn_param parameters = {.retry_count = 7, .rnr_retry_count = 7};
  if (dies) {
    parameters.qp_num = 1000;
  } else {
    make_queue_pair(id);
  }
  need(rdma_connect(id, &parameters) == 0, "rdma_connect");
  struct rdma_cm_event* const event = next_event(channel);
  const enum rdma_cm_event_type type = event->event;
  say(event);
  if (dies) {
    need(type == RDMA_CM_EVENT_CONNECT_RESPONSE, "a response to be confirmed");
    raise(SIGKILL);
  }
  rdma_ack_cm_event(event);
  if (strcmp(how, "leave") == 0) exit(type == RDMA_CM_EVENT_ESTABLISHED ? 0 : 1);
  if (type == RDMA_CM_EVENT_ESTABLISHED) {
    need(rdma_disconnect(id) == 0, "rdma_disconnect");
    expect(channel, RDMA_CM_EVENT_DISCONNECTED);
  }
  destroy(id);
  rdma_destroy_event_channel(channel);
  return 0;
}

// Connecting and disconnecting for long, both sides in one process.

static double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

struct ends {
  struct rdma_event_channel* server_channel;
  struct rdma_event_channel* client_channel;
  struct sockaddr_storage address;
};

static void connect_once(const struct ends* ends) {
  struct rdma_cm_id* const client = route_to(ends->client_channel, ends->address);
  struct rdma_conn_param parameters = {.retry_count = 7, .rnr_retry_count = 7};
  make_queue_pair(client);
  need(rdma_connect(client, &parameters) == 0, "rdma_connect");
  struct rdma_cm_id* const server = expect(ends->server_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  make_queue_pair(server);
  need(rdma_accept(server, &parameters) == 0, "rdma_accept");
  expect(ends->client_channel, RDMA_CM_EVENT_ESTABLISHED);
  expect(ends->server_channel, RDMA_CM_EVENT_ESTABLISHED);
  need(rdma_disconnect(client) == 0, "rdma_disconnect");
  expect(ends->server_channel, RDMA_CM_EVENT_DISCONNECTED);
  rdma_disconnect(server);  // may be over already
  expect(ends->client_channel, RDMA_CM_EVENT_DISCONNECTED);
  destroy(client);
  destroy(server);
}

static void tcp_once(int listener, const struct sockaddr_storage* address, socklen_t size) {
  const int client = socket(address->ss_family, SOCK_STREAM, 0);
  need(client >= 0 && connect(client, (const struct sockaddr*)address, size) == 0, "connect");
  const int server = accept(listener, NULL, NULL);
  need(server >= 0, "accept");
  close(client);
  close(server);
}

static double tcp_rate(struct sockaddr_storage address, unsigned count) {
  socklen_t size = sizeof address;
  const int listener = socket(address.ss_family, SOCK_STREAM, 0);
  const socklen_t given =
      address.ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
  need(listener >= 0 && bind(listener, (struct sockaddr*)&address, given) == 0 &&
           listen(listener, 16) == 0,
       "a TCP listener");
  need(getsockname(listener, (struct sockaddr*)&address, &size) == 0, "getsockname");
  const double start = seconds_now();
  for (unsigned i = 0; i < count; ++i) tcp_once(listener, &address, size);
  const double took = seconds_now() - start;
  close(listener);
  return count / took;
}

static int run_loop(struct sockaddr_storage address, unsigned count) {
  struct ends ends = {rdma_create_event_channel(), rdma_create_event_channel(), address};
  need(ends.server_channel != NULL && ends.client_channel != NULL, "rdma_create_event_channel");
  struct rdma_cm_id* const listener = listener_at(ends.server_channel, address);
  memcpy(&ends.address, rdma_get_local_addr(listener), sizeof(struct sockaddr_in6));

  const unsigned warm = count / 10 + 1;
  for (unsigned i = 0; i < warm; ++i) connect_once(&ends);
  const struct in_use before = count_in_use(listener->verbs);
  const double start = seconds_now();
  for (unsigned i = 0; i < count; ++i) connect_once(&ends);
  const double took = seconds_now() - start;
  const struct in_use after = count_in_use(listener->verbs);
  printf(
      "%u connections: ids %u, then %u; queue pairs %u, then %u; descriptors %u, then %u; memory "
      "%ld "
      "KiB, then %ld KiB\n",
      count, before.ids, after.ids, before.queue_pairs, after.queue_pairs, before.descriptors,
      after.descriptors, before.resident_kib, after.resident_kib);
  printf("rdma_cm: %.0f connections a second; TCP: %.0f\n", count / took, tcp_rate(address, count));
  destroy(listener);
  rdma_destroy_event_channel(ends.server_channel);
  rdma_destroy_event_channel(ends.client_channel);
  if (after.ids != before.ids) die("ids are left");
  if (after.queue_pairs != before.queue_pairs) die("queue pairs are left");
  if (after.descriptors != before.descriptors) die("descriptors are left");
  const long grown = after.resident_kib - before.resident_kib;
  if (grown > 4096) die("memory has grown by %ld KiB", grown);
  printf("passed: loop\n");
  return 0;
}

// Enhanced connections are for programs with queue pairs of their own; these name some that are
// nobody's, as nothing is sent on them.

enum { kVendor = 0x0A0B0C, kAsked = 0x11, kAnswered = 0x22, kVendorOptionNotSupported = 35 };

static struct rdma_conn_param own_queue_pair(uint32_t number) {
  return (struct rdma_conn_param){.qp_num = number, .retry_count = 7, .rnr_retry_count = 7};
}

static void offer(struct rdma_cm_id* id, uint32_t options) {
  struct ibv_ece ece = {.vendor_id = kVendor, .options = options};
  need(rdma_set_local_ece(id, &ece) == 0, "rdma_set_local_ece");
}

static void see_offer(struct rdma_cm_id* id, uint32_t options, const char* who) {
  struct ibv_ece ece = {0};
  need(rdma_get_remote_ece(id, &ece) == 0, "rdma_get_remote_ece");
  printf("%s: vendor 0x%06x, options 0x%x\n", who, ece.vendor_id, ece.options);
  if (ece.vendor_id != kVendor || ece.options != options) die("%s is told something else", who);
}

// The client's id; the server's is put where `server` points.
static struct rdma_cm_id* ask_enhanced(const struct ends* ends, struct rdma_cm_id** server) {
  struct rdma_cm_id* const client = route_to(ends->client_channel, ends->address);
  struct rdma_conn_param parameters = own_queue_pair(1000);
  offer(client, kAsked);
  need(rdma_connect(client, &parameters) == 0, "rdma_connect");
  *server = expect(ends->server_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  see_offer(*server, kAsked, "the server");
  return client;
}

static int run_enhanced(struct sockaddr_storage address) {
  struct ends ends = {rdma_create_event_channel(), rdma_create_event_channel(), address};
  need(ends.server_channel != NULL && ends.client_channel != NULL, "rdma_create_event_channel");
  struct rdma_cm_id* const listener = listener_at(ends.server_channel, address);
  memcpy(&ends.address, rdma_get_local_addr(listener), sizeof(struct sockaddr_in6));

  struct rdma_cm_id* server = NULL;
  struct rdma_cm_id* client = ask_enhanced(&ends, &server);
  struct rdma_conn_param parameters = own_queue_pair(1001);
  offer(server, kAnswered);
  need(rdma_accept(server, &parameters) == 0, "rdma_accept");
  expect(ends.client_channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
  see_offer(client, kAnswered, "the client");
  need(rdma_establish(client) == 0, "rdma_establish");
  expect(ends.server_channel, RDMA_CM_EVENT_ESTABLISHED);
  destroy(client);
  destroy(server);

  client = ask_enhanced(&ends, &server);
  need(rdma_reject_ece(server, NULL, 0) == 0, "rdma_reject_ece");
  struct rdma_cm_event* const event = next_event(ends.client_channel);
  if (event->event != RDMA_CM_EVENT_REJECTED || event->status != kVendorOptionNotSupported)
    die("%s, status %d, in place of a refusal", rdma_event_str(event->event), event->status);
  rdma_ack_cm_event(event);
  destroy(client);
  destroy(server);
  destroy(listener);
  rdma_destroy_event_channel(ends.server_channel);
  rdma_destroy_event_channel(ends.client_channel);
  printf("passed: ece\n");
  return 0;
}

int main(int argc, char** argv) {
  const char* const what = argc > 1 ? argv[1] : "";
  if (strcmp(what, "listen") == 0 && argc >= 5)
    return run_listener(address_of(argv[2], argv[3]), (unsigned)strtoul(argv[4], NULL, 10),
                        argc > 5);
  if (strcmp(what, "connect") == 0 && argc >= 4)
    return run_connecter(address_of(argv[2], argv[3]), argc > 4 ? argv[4] : "");
  if (strcmp(what, "loop") == 0 && argc == 4)
    return run_loop(address_of(argv[2], "0"), (unsigned)strtoul(argv[3], NULL, 10));
  if (strcmp(what, "ece") == 0 && argc == 3) return run_enhanced(address_of(argv[2], "0"));
  fprintf(
      stderr,
      "usage: verbs_cm listen ADDRESS PORT COUNT [reject] | connect ADDRESS PORT [die | leave] | "
      "loop ADDRESS COUNT | ece ADDRESS\n");
  return 2;
}
