// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

#include "base/result.h"
#include "compat/abi.h"
#include "compat/command_file.h"
#include "compat/mapping.h"
#include "compat/process.h"
#include "compat/program_memory.h"
#include "nic/device_memory.h"
#include "nic/nic.h"
#include "nic/xrc_domain.h"

/// The C objects that programs hold, each the head of ours: a program's `ibv_pd*` is a `Pd*`.
///
/// Threads: the lists of a context are under its `objects_lock`; what a verb does with the NIC is
/// the NIC's business. Order: `objects_lock` is taken and left again, never held while the NIC is
/// called.
namespace verbena::compat {

struct Cq;
struct Qp;

/// A device as programs see it. Providers (mlx5dv, efadv) look at what follows an ibv_device to
/// find out whether the device is theirs: zeros say no.
struct Device : ibv_device {
  Device(nic::Host& the_host, nic::NicConfig the_config, int the_index);

  std::array<std::byte, 128> provider_tail{};
  nic::Host* host;
  nic::NicConfig config;
  int index;  ///< what ibv_get_device_index tells
};

/// A thread domain. Threads are kept apart by locks here, whether a program does so itself or not.
struct Td : ibv_td {
  std::atomic<std::uint32_t> uses{0};  ///< parent domains with it

  [[nodiscard]] static Td& of(ibv_td* td) { return static_cast<Td&>(*td); }
};

struct Pd : ibv_pd {
  nic::ProtectionDomain* domain = nullptr;
  Td* td = nullptr;                         ///< of a parent domain, if it has one
  std::unique_ptr<ProgramMemory> memory{};  ///< likewise
  std::list<Pd*>::iterator place{};

  [[nodiscard]] static Pd& of(ibv_pd* pd) { return static_cast<Pd&>(*pd); }
};

/// What lies behind a region.
enum class Backing : std::uint8_t { kProgram, kAllOfIt, kDevice, kNothing, kDmaBuf };

struct Mr : ibv_mr {
  nic::MemoryRegion* region = nullptr;
  Backing backing = Backing::kProgram;
  std::byte* first = nullptr;  ///< of the program's memory; `addr` of an imported region is null
  Mapping mapping{};           ///< of a dma-buf
  unsigned int access = 0;
  std::list<Mr*>::iterator place{};

  [[nodiscard]] static Mr& of(ibv_mr* mr) { return static_cast<Mr&>(*mr); }
};

struct Mw : ibv_mw {
  nic::MemoryWindow* window = nullptr;
  std::list<Mw*>::iterator place{};

  [[nodiscard]] static Mw& of(ibv_mw* mw) { return static_cast<Mw&>(*mw); }
};

struct Dm : ibv_dm {
  std::shared_ptr<nic::DeviceMemory> memory{};
  std::uint32_t generation = 0;  ///< of the process that allocated it
  std::list<Dm*>::iterator place{};

  [[nodiscard]] static Dm& of(ibv_dm* dm) { return static_cast<Dm&>(*dm); }
};

struct Ah : ibv_ah {
  nic::AddressHandle* address = nullptr;
  std::list<Ah*>::iterator place{};

  [[nodiscard]] static Ah& of(ibv_ah* ah) { return static_cast<Ah&>(*ah); }
};

/// `refcnt` of the C struct counts the completion queues on it, under the context's lock.
struct Channel : ibv_comp_channel {
  nic::CompletionChannel* channel = nullptr;
  std::list<Channel*>::iterator place{};

  [[nodiscard]] static Channel& of(ibv_comp_channel* channel) {
    return static_cast<Channel&>(*channel);
  }
};

/// A completion queue begins like an ibv_cq in both of its forms, the plain and the extended one.
struct Cq : ibv_cq_ex {
  nic::Nic* nic = nullptr;
  nic::CompletionQueue* queue = nullptr;
  std::uint32_t generation = 0;
  std::atomic<std::uint32_t> unacknowledged{0};  ///< events taken by the program
  std::atomic<std::uint32_t> empty_polls{0};     ///< in a row
  std::list<Cq*>::iterator place{};
  std::mutex reading;            ///< held between start_poll and end_poll
  bool one_reader = false;       ///< the program needs no lock for it
  engine::Completion current{};  ///< between start_poll and end_poll
  Time current_made{};           ///< when, if the queue keeps that

  [[nodiscard]] ibv_cq* plain() { return ibv_cq_ex_to_cq(this); }
  [[nodiscard]] static Cq& of(ibv_cq* cq) {
    return static_cast<Cq&>(*reinterpret_cast<ibv_cq_ex*>(cq));
  }
  [[nodiscard]] static Cq& of(ibv_cq_ex* cq) { return static_cast<Cq&>(*cq); }
};
static_assert(offsetof(ibv_cq_ex, async_events_completed) ==
              offsetof(ibv_cq, async_events_completed));

/// An XRC domain, as it was opened once.
struct Xrcd : ibv_xrcd {
  nic::XrcDomain* domain = nullptr;
  std::list<Xrcd*>::iterator place{};

  [[nodiscard]] static Xrcd& of(ibv_xrcd* domain) { return static_cast<Xrcd&>(*domain); }
};

/// A shared receive queue.
struct Srq : ibv_srq {
  nic::Nic* nic = nullptr;
  nic::SharedReceiveQueue* queue = nullptr;
  std::uint32_t generation = 0;
  std::uint32_t max_sge = 0;
  std::atomic<std::uint32_t> unacknowledged{0};
  std::list<Srq*>::iterator place{};

  [[nodiscard]] bool is_xrc() const { return nic->number(queue) != 0; }
  [[nodiscard]] static Srq& of(ibv_srq* srq) { return static_cast<Srq&>(*srq); }
};

struct WorkBuilder;

/// A queue pair begins like an ibv_qp, and always has room for the extended interface. An XRC_RECV
/// queue pair may have several, each of which is a cookie of its own to the NIC.
struct Qp : ibv_qp_ex {
  ~Qp();

  nic::Nic* nic = nullptr;
  nic::QueuePair* pair = nullptr;
  std::uint32_t generation = 0;
  std::uint32_t max_send_sge = 0;
  std::uint32_t max_receive_sge = 0;
  std::atomic<std::uint32_t> unacknowledged{0};
  ibv_qp_init_attr init{};                 ///< as granted
  std::unique_ptr<WorkBuilder> builder{};  ///< of ibv_wr_*, for queue pairs that were made for it
  std::list<Qp*>::iterator place{};

  [[nodiscard]] ibv_qp* plain() { return &qp_base; }
  [[nodiscard]] static Qp& of(ibv_qp* qp) {
    return static_cast<Qp&>(*reinterpret_cast<ibv_qp_ex*>(qp));
  }
  [[nodiscard]] static Qp& of(ibv_qp_ex* qp) { return static_cast<Qp&>(*qp); }
};
static_assert(offsetof(ibv_qp_ex, qp_base) == 0);

/// A steering rule.
struct Flow : ibv_flow {
  nic::Flow* flow = nullptr;
  std::list<Flow*>::iterator place{};

  [[nodiscard]] static Flow& of(ibv_flow* flow) { return static_cast<Flow&>(*flow); }
};

/// A receive work queue. Its lock, condition and cookie are the standard header's to set.
struct Wq : ibv_wq {
  nic::Nic* nic = nullptr;
  nic::WorkQueue* queue = nullptr;
  std::uint32_t generation = 0;
  std::uint32_t max_sge = 0;
  std::list<Wq*>::iterator place{};

  [[nodiscard]] static Wq& of(ibv_wq* wq) { return static_cast<Wq&>(*wq); }
};

/// A table of work queues that frames are spread over.
struct IndTable : ibv_rwq_ind_table {
  nic::IndirectionTable* table = nullptr;
  std::list<IndTable*>::iterator place{};

  [[nodiscard]] static IndTable& of(ibv_rwq_ind_table* table) {
    return static_cast<IndTable&>(*table);
  }
};

/// An open device: one NIC, which contexts share that are imported from each other.
struct Context : verbs_context {
  Context(Device& the_device, std::shared_ptr<nic::Nic> the_nic, sys::OwnedFd command_fd);
  ~Context();

  Device* device;
  std::shared_ptr<nic::Nic> nic;  ///< shared with those that were imported from this one
  FileIdentity identity;          ///< of cmd_fd, the same in all of them
  std::uint32_t generation;

  std::mutex objects_lock{};
  std::list<Pd*> pds{};
  std::list<Mr*> mrs{};
  std::list<Mw*> mws{};
  std::list<Dm*> dms{};
  std::list<Ah*> ahs{};
  std::list<Channel*> channels{};
  std::list<Cq*> cqs{};
  std::list<Xrcd*> xrcds{};
  std::list<Srq*> srqs{};
  std::list<Qp*> qps{};
  std::list<Flow*> flows{};
  std::list<Wq*> wqs{};
  std::list<IndTable*> tables{};

  [[nodiscard]] ibv_context* plain() { return &context; }
  /// Also when it is dead.
  [[nodiscard]] static Context& of(ibv_context* context) {
    return static_cast<Context&>(*verbs_get_ctx(context));
  }
};

/// Marks our contexts: what verbs_context.priv points at.
[[nodiscard]] verbs_ex_private* context_mark();

/// False for a context of a real device, which the system's libibverbs made.
[[nodiscard]] inline bool is_ours(ibv_context* context) {
  return context->abi_compat == __VERBS_ABI_IS_EXTENDED &&
         verbs_get_ctx(context)->priv == context_mark();
}

[[nodiscard]] inline bool is_dead(std::uint32_t generation) {
  return generation != process_generation();
}

/// io_error when the context was opened before a fork.
[[nodiscard]] inline Result<Context*> alive(ibv_context* context) {
  Context& ours = Context::of(context);
  if (is_dead(ours.generation))
    return fail(std::errc::io_error, "the device was opened by the parent process");
  return &ours;
}

/// invalid_argument when it was deallocated through another one of its handles (ibv_import_pd(3)).
[[nodiscard]] inline Result<nic::ProtectionDomain*> domain_of(ibv_pd* pd) {
  nic::ProtectionDomain* const domain = Pd::of(pd).domain;
  if (domain == nullptr) return fail(std::errc::invalid_argument, "the protection domain is gone");
  return domain;
}

/// Enters a new object in its context's list.
template <typename Object>
void enter(Context& context, std::list<Object*> Context::* list, Object& object) {
  const std::scoped_lock lock(context.objects_lock);
  object.place = (context.*list).insert((context.*list).end(), &object);
}

template <typename Object>
void leave(Context& context, std::list<Object*> Context::* list, Object& object) {
  const std::scoped_lock lock(context.objects_lock);
  (context.*list).erase(object.place);
}

// The data path and the inline verbs: what a context's table of operations points at.

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) noexcept;
int post_receive(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) noexcept;
int post_srq_receive(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) noexcept;
int post_srq_ops(ibv_srq* srq, ibv_ops_wr* wr, ibv_ops_wr** bad_wr) noexcept;
int post_wq_receive(ibv_wq* wq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) noexcept;
int poll_cq(ibv_cq* cq, int num_entries, ibv_wc* wc) noexcept;
int req_notify_cq(ibv_cq* cq, int solicited_only) noexcept;
int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr) noexcept;
ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) noexcept;
int dealloc_mw(ibv_mw* mw) noexcept;
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) noexcept;
ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr) noexcept;
int free_dm(ibv_dm* dm) noexcept;
ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, std::uint64_t offset, std::size_t length,
                  unsigned int access) noexcept;
ibv_mr* alloc_null_mr(ibv_pd* pd) noexcept;
ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr) noexcept;
int dealloc_td(ibv_td* td) noexcept;
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) noexcept;
int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* sg_list,
              std::uint32_t num_sge) noexcept;
int query_port(ibv_context* context, std::uint8_t port_num, ibv_port_attr* attr,
               std::size_t size) noexcept;
int query_device(ibv_context* context, ibv_device_attr* attr) noexcept;
int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attr, std::size_t size) noexcept;
int query_rt_values(ibv_context* context, ibv_values_ex* values) noexcept;
int modify_qp_rate_limit(ibv_qp* qp, ibv_qp_rate_limit_attr* attr) noexcept;
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) noexcept;
ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr) noexcept;
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attr) noexcept;
ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attr) noexcept;
ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr) noexcept;
int close_xrcd(ibv_xrcd* domain) noexcept;
int get_srq_num(ibv_srq* srq, std::uint32_t* number) noexcept;
ibv_flow* create_flow(ibv_qp* qp, ibv_flow_attr* attr) noexcept;
int destroy_flow(ibv_flow* flow) noexcept;
ibv_wq* create_wq(ibv_context* context, ibv_wq_init_attr* attr) noexcept;
int modify_wq(ibv_wq* wq, ibv_wq_attr* attr) noexcept;
int destroy_wq(ibv_wq* wq) noexcept;
ibv_rwq_ind_table* create_rwq_ind_table(ibv_context* context,
                                        ibv_rwq_ind_table_init_attr* attr) noexcept;
int destroy_rwq_ind_table(ibv_rwq_ind_table* table) noexcept;

/// Destroys what a program left behind in a context, users before what they use. The C objects
/// stay, since the program may still hold them.
void destroy_leftovers(Context& context);

}  // namespace verbena::compat
