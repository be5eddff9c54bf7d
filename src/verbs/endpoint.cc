// SPDX-License-Identifier: Apache-2.0
#include "verbena/endpoint.h"

#include <fmt/format.h>

#include "verbs/bytes.h"

namespace verbena::verbs {

qp_endpoint::wire_form qp_endpoint::to_bytes() const noexcept {
  wire_form to{};
  Writer writer(to);
  for (const std::uint8_t byte : id.raw()) writer.u8(byte);
  writer.u32(number.value()).u32(first.value()).u16(lid.value());
  writer.u8(static_cast<std::uint8_t>(path_mtu)).u8(of.value()).u8(index.value());
  return to;
}

Result<qp_endpoint> qp_endpoint::from_bytes(std::span<const std::byte> from) {
  constexpr const char* kOperation = "qp_endpoint::from_bytes";
  constexpr std::uint32_t kMost = 0xffffff;
  if (from.size() != wire_size)
    return fail(std::errc::invalid_argument, kOperation,
                fmt::format("{} bytes, where {} are an endpoint", from.size(), wire_size));
  Reader reader(from);
  std::array<std::uint8_t, 16> raw{};
  for (std::uint8_t& byte : raw) byte = reader.u8();
  qp_endpoint to;
  to.id = verbs::gid(raw);
  to.number = qp_number(reader.u32());
  to.first = psn(reader.u32());
  to.lid = verbs::lid(reader.u16());
  to.path_mtu = static_cast<mtu>(reader.u8());
  to.of = port(reader.u8());
  to.index = gid_index(reader.u8());
  if (to.number.value() > kMost || to.first.value() > kMost)
    return fail(std::errc::invalid_argument, kOperation, "QPN and PSN have 24 bits");
  if (to.path_mtu < mtu::bytes_256 || to.path_mtu > mtu::bytes_4096)
    return fail(std::errc::invalid_argument, kOperation,
                fmt::format("there is no MTU of code {}", static_cast<unsigned>(to.path_mtu)));
  return to;
}

}  // namespace verbena::verbs
