// SPDX-License-Identifier: Apache-2.0
//
// Copies between the private memories of two processes, by the kernel.
#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "bench/limits/limits.h"
#include "bench/limits/other_process.h"
#include "bench/support/figure.h"

namespace verbena::bench {

namespace {

void copy_by_kernel(const Loop& loop, decltype(&process_vm_readv) copy) {
  std::vector<std::byte> memory(loop.bytes);
  // The other one tells that its own pages are there, so that none is still shared after the fork.
  const SharedMemory shared(sizeof(bool));
  auto& ready = shared.as<volatile bool>();
  const OtherProcess other([&] {
    std::memset(memory.data(), 1, memory.size());
    ready = true;
    OtherProcess::sleep();
  });
  pin_to_processor(0);
  std::memset(memory.data(), 2, memory.size());
  while (!ready) {}
  const iovec whole{.iov_base = memory.data(), .iov_len = memory.size()};
  const auto batch = static_cast<unsigned>(1 + (std::size_t{1} << 20) / loop.bytes / 16);
  const double calls = calls_per_second(loop.seconds, batch, [&] {
    const ssize_t copied = copy(other.id(), &whole, 1, &whole, 1, 0);
    if (copied >= 0 && static_cast<std::size_t>(copied) < memory.size()) errno = EIO;
    if (copied < 0 || static_cast<std::size_t>(copied) < memory.size()) give_up("process_vm");
  });
  print_figure(calls * static_cast<double>(loop.bytes) / 1e9, "GB/s");
}

}  // namespace

void write_process(const Loop& loop) { copy_by_kernel(loop, process_vm_writev); }
void read_process(const Loop& loop) { copy_by_kernel(loop, process_vm_readv); }

}  // namespace verbena::bench
