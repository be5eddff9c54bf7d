// SPDX-License-Identifier: Apache-2.0
#include <random>
#include <vector>

#include "bench/scale/device.h"
#include "bench/scale/scale.h"
#include "bench/support/figure.h"

namespace verbena::bench {

void scale_regions(const Scale& scale) {
  const Device device(16);
  std::vector<const ibv_mr*> regions;
  regions.reserve(scale.count);
  const auto begin = Clock::now();
  for (std::uint32_t i = 0; i < scale.count; ++i) regions.push_back(device.register_page());
  if (scale.figure == "setup") return print_figure(seconds_since(begin) * 1e6 / scale.count, "us");

  ibv_qp* const from = device.create_pair();
  ibv_qp* const to = device.create_pair();
  device.connect(from, to->qp_num, device.gid());
  device.connect(to, from->qp_num, device.gid());
  // Chosen before: what the choice costs is not the NIC's.
  constexpr std::size_t kChoices = 1 << 16;
  std::minstd_rand random(1);
  std::vector<std::uint32_t> keys;  // lkey and rkey are one number here, as nearly everywhere
  for (std::size_t i = 0; i < kChoices; ++i) {
    const ibv_mr& region = *regions[random() % regions.size()];
    need(region.lkey == region.rkey, "a region with one key");
    keys.push_back(region.lkey);
  }
  WriteList list;
  std::size_t next = 0;
  const double lists = calls_per_second(scale.seconds, 16, [&] {
    for (std::uint32_t i = 0; i < Device::kList; ++i) {
      const std::uint32_t lkey = keys[next++ % kChoices];
      list.set(i, device, lkey, device.page(), keys[next++ % kChoices]);
    }
    list.post(from);
    while (device.poll() == 0) {}
  });
  print_figure(lists * Device::kList / 1e6, "M/s");
}

}  // namespace verbena::bench
