// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a management datagram: what is taken encodes to bytes that are taken for the same
// message. So with the address header before a program's private data.
#include <array>
#include <cstdint>
#include <string>
#include <variant>

#include "base/check.h"
#include "wire/cm_message.h"
#include "wire/cm_service.h"

using namespace verbena;
using namespace verbena::wire;

namespace {

void check_address_header(const std::byte* from) {
  const auto header = CmAddressHeader::parse(from);
  if (!header) return;
  std::array<std::byte, CmAddressHeader::kSize> encoded;
  header->encode(encoded.data());
  VERBENA_CHECK(CmAddressHeader::parse(encoded.data()) == header);
}

void check_service(std::uint64_t service) {
  const auto port = service_port(service);
  if (port) VERBENA_CHECK(service_id(port->space, port->port) == service);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ConstBytes bytes = std::as_bytes(std::span(data, size));
  if (size >= CmAddressHeader::kSize) check_address_header(bytes.data());
  const auto mad = parse_cm(bytes);
  if (!mad) {
    VERBENA_CHECK(to_string(mad.error()) != "unknown error");
    return 0;
  }
  VERBENA_CHECK(size == kMadSize);
  std::array<std::byte, kMadSize> encoded;
  encode_cm(*mad, encoded);
  VERBENA_CHECK(parse_cm(encoded) == mad);
  if (const auto* req = std::get_if<CmReq>(&mad->message)) {
    check_address_header(req->private_data.data());
    check_service(req->service_id);
  }
  if (const auto* request = std::get_if<CmSidrReq>(&mad->message)) {
    check_address_header(request->private_data.data());
    check_service(request->service_id);
  }
  const std::string line = to_string(*mad);
  VERBENA_CHECK(!line.empty() && !line.contains('\n'));
  return 0;
}
