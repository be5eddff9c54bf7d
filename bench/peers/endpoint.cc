// SPDX-License-Identifier: Apache-2.0
#include "bench/peers/endpoint.h"

#include <fmt/format.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <utility>

namespace verbena::bench {

namespace {

void check(ssize_t status, const char* what) {
  if (status >= 0) return;
  fmt::print(stderr, "{}: {}\n", what, fi_strerror(static_cast<int>(-status)));
  std::exit(1);
}

std::string as_hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

std::string from_hex(const std::string& text) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    bytes += static_cast<char>(std::strtoul(text.substr(i, 2).c_str(), nullptr, 16));
  return bytes;
}

/// Completions that are there.
std::size_t completions_of(fid_cq* queue) {
  std::array<fi_cq_entry, 64> entries;
  const ssize_t count = fi_cq_read(queue, entries.data(), entries.size());
  if (count == -FI_EAGAIN) return 0;
  if (count == -FI_EAVAIL) {
    fi_cq_err_entry error{};
    (void)fi_cq_readerr(queue, &error, 0);
    check(-error.err, "a completion");
  }
  check(count, "fi_cq_read");
  return static_cast<std::size_t>(count);
}

}  // namespace

Endpoint::Endpoint(const EndpointConfig& config, const Control& control)
    : outgoing_(config.bytes, std::byte{1}), incoming_(config.bytes) {
  open(config);
  open_queues();
  register_buffers();
  meet(control);
}

void Endpoint::open(const EndpointConfig& config) {
  const std::unique_ptr<fi_info, FreeInfo> hints(fi_allocinfo());
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps = FI_MSG | FI_RMA;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->fabric_attr->prov_name = strdup(config.provider.c_str());  // freed with the hints
  const bool by_address = config.provider != "shm";
  fi_info* found = nullptr;
  check(fi_getinfo(FI_VERSION(1, 17), by_address ? config.address.c_str() : nullptr, nullptr,
                   by_address ? FI_SOURCE : 0, hints.get(), &found),
        "fi_getinfo");
  info_.reset(found);
  fid_fabric* fabric = nullptr;
  check(fi_fabric(found->fabric_attr, &fabric, nullptr), "fi_fabric");
  fabric_.reset(fabric);
  fid_domain* domain = nullptr;
  check(fi_domain(fabric, found, &domain, nullptr), "fi_domain");
  domain_.reset(domain);
}

void Endpoint::open_queues() {
  fi_av_attr table{};
  table.type = FI_AV_TABLE;
  fid_av* peers = nullptr;
  check(fi_av_open(domain_.get(), &table, &peers, nullptr), "fi_av_open");
  peers_.reset(peers);
  for (auto* queue : {&send_queue_, &receive_queue_}) {
    fi_cq_attr attributes{};
    attributes.format = FI_CQ_FORMAT_CONTEXT;
    attributes.size = 2 * kDepth;
    fid_cq* made = nullptr;
    check(fi_cq_open(domain_.get(), &attributes, &made, nullptr), "fi_cq_open");
    queue->reset(made);
  }
  fid_ep* endpoint = nullptr;
  check(fi_endpoint(domain_.get(), info_.get(), &endpoint, nullptr), "fi_endpoint");
  endpoint_.reset(endpoint);
  check(fi_ep_bind(endpoint, &peers_->fid, 0), "fi_ep_bind");
  check(fi_ep_bind(endpoint, &send_queue_->fid, FI_TRANSMIT), "fi_ep_bind");
  check(fi_ep_bind(endpoint, &receive_queue_->fid, FI_RECV), "fi_ep_bind");
  check(fi_enable(endpoint), "fi_enable");
}

void Endpoint::register_buffers() {
  constexpr std::uint64_t kRights =
      FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
  std::uint64_t key = 1;  // for providers that leave keys to the program
  for (auto [buffer, region] :
       {std::pair{&outgoing_, &outgoing_region_}, std::pair{&incoming_, &incoming_region_}}) {
    fid_mr* made = nullptr;
    check(fi_mr_reg(domain_.get(), buffer->data(), buffer->size(), kRights, 0, key++, 0, &made,
                    nullptr),
          "fi_mr_reg");
    region->reset(made);
  }
}

void Endpoint::meet(const Control& control) {
  std::string name(512, '\0');
  std::size_t size = name.size();
  check(fi_getname(&endpoint_->fid, name.data(), &size), "fi_getname");
  name.resize(size);
  const bool by_address = (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
  const auto place = [&](const std::vector<std::byte>& buffer) {
    return by_address ? reinterpret_cast<std::uintptr_t>(buffer.data()) : 0;
  };
  control.send(fmt::format("{} {} {} {} {}", as_hex(name), place(outgoing_),
                           fi_mr_key(outgoing_region_.get()), place(incoming_),
                           fi_mr_key(incoming_region_.get())));
  std::istringstream said(control.receive());
  std::string peer;
  said >> peer >> peer_outgoing_.address >> peer_outgoing_.key >> peer_incoming_.address >>
      peer_incoming_.key;
  peer = from_hex(peer);
  if (!said || peer.empty() || fi_av_insert(peers_.get(), peer.data(), 1, &peer_, 0, nullptr) != 1)
    check(-FI_EINVAL, "the peer's address");
}

bool Endpoint::taken(ssize_t status, const char* what) {
  if (status == -FI_EAGAIN) return false;
  check(status, what);
  return true;
}

fi_context* Endpoint::next_context() {
  return reinterpret_cast<fi_context*>(&contexts_[context_++ % contexts_.size()]);
}

bool Endpoint::send() {
  return taken(fi_send(endpoint_.get(), outgoing_.data(), outgoing_.size(),
                       fi_mr_desc(outgoing_region_.get()), peer_, next_context()),
               "fi_send");
}

bool Endpoint::receive() {
  return taken(fi_recv(endpoint_.get(), incoming_.data(), incoming_.size(),
                       fi_mr_desc(incoming_region_.get()), FI_ADDR_UNSPEC, next_context()),
               "fi_recv");
}

bool Endpoint::write() {
  return taken(fi_write(endpoint_.get(), outgoing_.data(), outgoing_.size(),
                        fi_mr_desc(outgoing_region_.get()), peer_, peer_incoming_.address,
                        peer_incoming_.key, next_context()),
               "fi_write");
}

bool Endpoint::read() {
  return taken(fi_read(endpoint_.get(), incoming_.data(), incoming_.size(),
                       fi_mr_desc(incoming_region_.get()), peer_, peer_outgoing_.address,
                       peer_outgoing_.key, next_context()),
               "fi_read");
}

bool Endpoint::send_small() {
  if (outgoing_.size() > info_->tx_attr->inject_size) return send();
  if (!taken(fi_inject(endpoint_.get(), outgoing_.data(), outgoing_.size(), peer_), "fi_inject"))
    return false;
  ++small_sent_;
  return true;
}

std::size_t Endpoint::sent() {
  return std::exchange(small_sent_, 0) + completions_of(send_queue_.get());
}

std::size_t Endpoint::received() { return completions_of(receive_queue_.get()); }

}  // namespace verbena::bench
