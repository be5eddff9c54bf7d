// SPDX-License-Identifier: Apache-2.0
//
// Devices', ports' and GIDs' attributes as bytes.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "verbena/device.h"
#include "verbs/bytes.h"
#include "verbs/fields.h"

namespace verbena::verbs {
namespace {

constexpr std::uint8_t kVersion = 1;

template <typename T>
constexpr std::size_t size_of(const TextField<T>& /*field*/) {
  return TextField<T>::kSize;
}
template <typename T>
constexpr std::size_t size_of(const GuidField<T>& /*field*/) {
  return sizeof(__be64);
}
template <typename T, typename N>
constexpr std::size_t size_of(const NumberField<T, N>& /*field*/) {
  return sizeof(N);
}
template <typename Fields>
constexpr std::size_t size_of_all(const Fields& fields) {
  std::size_t sum = sizeof kVersion;
  for_each_field(fields, [&sum](const auto& field) { sum += size_of(field); });
  return sum;
}
static_assert(size_of_all(kDeviceFields) == device_attributes::wire_size);
static_assert(size_of_all(kPortFields) == port_attributes::wire_size);

void put(Writer& to, std::uint64_t value, std::size_t size) {
  switch (size) {
    case 1: to.u8(static_cast<std::uint8_t>(value)); break;
    case 2: to.u16(static_cast<std::uint16_t>(value)); break;
    case 4: to.u32(static_cast<std::uint32_t>(value)); break;
    default: to.u64(value);
  }
}
std::uint64_t get(Reader& from, std::size_t size) {
  switch (size) {
    case 1: return from.u8();
    case 2: return from.u16();
    case 4: return from.u32();
    default: return from.u64();
  }
}

template <typename T>
void write(Writer& to, const T& value, const TextField<T>& field) {
  // Behind the text's end there is nothing of the device's.
  bool ended = false;
  for (const char one : value.*field.member) {
    ended = ended || one == '\0';
    to.u8(ended ? 0 : static_cast<std::uint8_t>(one));
  }
}
template <typename T>
void write(Writer& to, const T& value, const GuidField<T>& field) {
  to.u64(be64toh(value.*field.member));
}
template <typename T, typename N>
void write(Writer& to, const T& value, const NumberField<T, N>& field) {
  put(to, static_cast<std::uint64_t>(value.*field.member), sizeof(N));
}

// These return what is wrong, or nothing.

template <typename T>
std::string read(Reader& from, T& value, const TextField<T>& field) {
  for (char& one : value.*field.member) one = static_cast<char>(from.u8());
  const auto& text = value.*field.member;
  return std::ranges::find(text, '\0') != std::end(text) ? "" : "a text without an end";
}
template <typename T>
std::string read(Reader& from, T& value, const GuidField<T>& field) {
  value.*field.member = htobe64(from.u64());
  return {};
}
template <typename T, typename N>
std::string read(Reader& from, T& value, const NumberField<T, N>& field) {
  const std::uint64_t number = get(from, sizeof(N));
  if (number < field.least || number > field.greatest)
    return fmt::format("{} is not from {} to {}", number, field.least, field.greatest);
  value.*field.member = static_cast<N>(number);
  return {};
}

/// Size and version, which stands first.
Result<> check_frame(std::span<const std::byte> from, std::size_t size, const char* operation) {
  if (from.size() != size)
    return fail(std::errc::invalid_argument, operation,
                fmt::format("{} bytes, where there must be {}", from.size(), size));
  const auto version = static_cast<unsigned>(from.front());
  if (version == kVersion) return {};
  return fail(std::errc::not_supported, operation,
              fmt::format("it is of version {}, where {} is known", version, kVersion));
}

template <typename Base, typename T, typename Fields>
typename T::wire_form all_to_bytes(const T& value, const Fields& fields) {
  typename T::wire_form to{};
  Writer writer(to);
  writer.u8(kVersion);
  for_each_field(fields,
                 [&](const auto& field) { write(writer, static_cast<const Base&>(value), field); });
  return to;
}

template <typename Base, typename T, typename Fields>
Result<T> all_from_bytes(std::span<const std::byte> from, const Fields& fields,
                         const char* operation) {
  VERBENA_TRY(check_frame(from, T::wire_size, operation));
  Reader reader(from.subspan(sizeof kVersion));
  T to{};
  std::string wrong;
  for_each_field(fields, [&](const auto& field) {
    const std::string about = read(reader, static_cast<Base&>(to), field);
    if (wrong.empty() && !about.empty()) wrong = fmt::format("{}: {}", field.name, about);
  });
  if (!wrong.empty()) return fail(std::errc::invalid_argument, operation, std::move(wrong));
  return to;
}

}  // namespace

device_attributes::wire_form device_attributes::to_bytes() const noexcept {
  return all_to_bytes<ibv_device_attr>(*this, kDeviceFields);
}
Result<device_attributes> device_attributes::from_bytes(std::span<const std::byte> from) {
  return all_from_bytes<ibv_device_attr, device_attributes>(from, kDeviceFields,
                                                            "device_attributes::from_bytes");
}

port_attributes::wire_form port_attributes::to_bytes() const noexcept {
  return all_to_bytes<ibv_port_attr>(*this, kPortFields);
}
Result<port_attributes> port_attributes::from_bytes(std::span<const std::byte> from) {
  return all_from_bytes<ibv_port_attr, port_attributes>(from, kPortFields,
                                                        "port_attributes::from_bytes");
}

gid_entry::wire_form gid_entry::to_bytes() const noexcept {
  wire_form to{};
  Writer writer(to);
  writer.u8(kVersion);
  for (const std::uint8_t byte : id.raw()) writer.u8(byte);
  writer.u8(of.value()).u8(index.value()).u32(static_cast<std::uint32_t>(kind));
  writer.u32(interface_index);
  return to;
}

Result<gid_entry> gid_entry::from_bytes(std::span<const std::byte> from) {
  constexpr const char* kOperation = "gid_entry::from_bytes";
  VERBENA_TRY(check_frame(from, wire_size, kOperation));
  Reader reader(from.subspan(sizeof kVersion));
  std::array<std::uint8_t, 16> raw{};
  for (std::uint8_t& byte : raw) byte = reader.u8();
  gid_entry to;
  to.id = gid(raw);
  to.of = port(reader.u8());
  to.index = gid_index(reader.u8());
  const std::uint32_t kind = reader.u32();
  to.interface_index = reader.u32();
  if (to.of == port{0}) return fail(std::errc::invalid_argument, kOperation, "ports count from 1");
  if (kind > IBV_GID_TYPE_ROCE_V2)
    return fail(std::errc::invalid_argument, kOperation,
                fmt::format("there is no kind of GID with the number {}", kind));
  to.kind = static_cast<gid_kind>(kind);
  return to;
}

}  // namespace verbena::verbs
