// SPDX-License-Identifier: Apache-2.0
// Regions on buffers of other devices: ibv_reg_dmabuf_mr(3). The processor copies here, so it must
// be able to map the buffer.
#include "compat/dmabuf.h"

#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>

#include "compat/errno.h"
#include "compat/fault_signals.h"
#include "compat/mr.h"
#include "compat/objects.h"
#include "compat/real.h"

namespace verbena::compat {
namespace {

Result<void> check_dmabuf(int fd) {
  struct statfs about{};
  if (::fstatfs(fd, &about) != 0) return fail(static_cast<std::errc>(errno), "no such descriptor");
  if (about.f_type == DMA_BUF_MAGIC) return {};
  return fail(std::errc::invalid_argument, "the descriptor is not a dma-buf's");
}

Result<ibv_mr*> reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length,
                              std::uint64_t iova, int fd, unsigned int access) {
  constexpr unsigned kKnown = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                              IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                              IBV_ACCESS_RELAXED_ORDERING;
  Context& ours = *VERBENA_TRY(alive(pd->context));
  if ((access & ~kKnown) != 0)
    return fail(std::errc::invalid_argument, "an access flag that dma-bufs do not have");
  const std::uint32_t rights = VERBENA_TRY(check_access(access));
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  if (offset % page != iova % page)
    return fail(std::errc::invalid_argument, "iova and offset differ in their place in a page");
  VERBENA_TRY(check_dmabuf(fd));
  nic::ProtectionDomain* const domain = VERBENA_TRY(domain_of(pd));
  MappedBuffer buffer =
      VERBENA_TRY(map_buffer(fd, offset, length, (rights & engine::kLocalWrite) != 0));
  watch_faults();
  auto mr = std::make_unique<Mr>();
  mr->region = VERBENA_TRY(ours.nic->register_memory(domain, buffer.first, length, iova, rights));
  mr->backing = Backing::kDmaBuf;
  mr->mapping = std::move(buffer.mapping);
  mr->length = length;
  mr->access = access;
  return give_out(std::move(mr), pd);
}

}  // namespace

Result<MappedBuffer> map_buffer(int fd, std::uint64_t offset, std::size_t length, bool writable) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const off_t size = ::lseek(fd, 0, SEEK_END);
  if (size < 0) return fail(std::errc::operation_not_supported, "a buffer without a size");
  const auto end = static_cast<std::uint64_t>(size);
  if (length == 0 || offset > end || length > end - offset)
    return fail(std::errc::invalid_argument, "the buffer does not have these bytes");
  const std::uint64_t before = offset % page;
  void* const mapped = ::mmap(nullptr, length + before, PROT_READ | (writable ? PROT_WRITE : 0),
                              MAP_SHARED, fd, static_cast<off_t>(offset - before));
  if (mapped == MAP_FAILED) {
    const bool never = errno == ENODEV || errno == ENOTTY || errno == EINVAL;
    return fail(never ? std::errc::operation_not_supported : static_cast<std::errc>(errno),
                "the buffer cannot be mapped");
  }
  auto* const first = static_cast<std::byte*>(mapped);
  return MappedBuffer{Mapping(Bytes(first, length + before)), first + before};
}

VERBENA_EXPORT ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova,
                                         int fd, int access) {
  if (!is_ours(pd->context)) {
    return real::call<"ibv_reg_dmabuf_mr">(&ibv_reg_dmabuf_mr, pd, offset, length, iova, fd,
                                           access);
  }
  return pointer_of("ibv_reg_dmabuf_mr", [&] {
    return reg_dmabuf_mr(pd, offset, length, iova, fd, static_cast<unsigned>(access));
  });
}

}  // namespace verbena::compat
