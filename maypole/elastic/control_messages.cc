// SPDX-License-Identifier: Apache-2.0
#include "maypole/elastic/control_messages.h"

#include "maypole/base/status.h"
#include "maypole/net/message.h"

namespace maypole::elastic {

std::vector<std::byte> encode(const WorkerReport& report) {
  net::MessageWriter writer;
  writer.put_u8(static_cast<std::uint8_t>(report.kind));
  writer.put_u32(report.epoch);
  writer.put_u64(report.step);
  writer.put_f64(report.seconds);
  writer.put_string(report.text);
  return writer.bytes();
}

std::vector<std::byte> encode(const Order& order) {
  net::MessageWriter writer;
  writer.put_u8(static_cast<std::uint8_t>(order.kind));
  writer.put_u32(order.membership.epoch);
  writer.put_u32(static_cast<std::uint32_t>(order.membership.members.size()));
  for (const Member& member : order.membership.members) {
    writer.put_u32(static_cast<std::uint32_t>(member.worker.value()));
    writer.put_string(member.host);
    writer.put_string(member.rendezvous);
    writer.put_f64(member.edge.bytes_per_second);
  }
  writer.put_string(order.text);
  return writer.bytes();
}

absl::StatusOr<WorkerReport> decode_report(std::span<const std::byte> bytes) {
  net::MessageReader reader(bytes);
  const std::uint8_t kind = reader.u8();
  WorkerReport report;
  report.epoch = reader.u32();
  report.step = reader.u64();
  report.seconds = reader.f64();
  report.text = reader.string();
  MAYPOLE_RETURN_IF_ERROR(reader.finish("a worker's report"));
  if (kind < static_cast<std::uint8_t>(WorkerReport::Kind::kReady) || kind > static_cast<std::uint8_t>(WorkerReport::Kind::kAlive)) {
    return base::error(absl::StatusCode::kInvalidArgument, "a worker's report is of unknown kind {}", kind);
  }
  report.kind = static_cast<WorkerReport::Kind>(kind);
  return report;
}

absl::StatusOr<Order> decode_order(std::span<const std::byte> bytes) {
  net::MessageReader reader(bytes);
  const std::uint8_t kind = reader.u8();
  Order order;
  order.membership.epoch = reader.u32();
  const std::uint32_t num_members = reader.u32();
  for (std::uint32_t i = 0; i < num_members && reader.ok(); ++i) {
    Member& member = order.membership.members.emplace_back();
    member.worker = WorkerId(static_cast<std::int32_t>(reader.u32()));
    member.host = reader.string();
    member.rendezvous = reader.string();
    member.edge.bytes_per_second = reader.f64();
  }
  order.text = reader.string();
  MAYPOLE_RETURN_IF_ERROR(reader.finish("the coordinator's order"));
  if (kind < static_cast<std::uint8_t>(Order::Kind::kAnnounce) || kind > static_cast<std::uint8_t>(Order::Kind::kRefuse)) {
    return base::error(absl::StatusCode::kInvalidArgument, "the coordinator's order is of unknown kind {}", kind);
  }
  order.kind = static_cast<Order::Kind>(kind);
  return order;
}

}  // namespace maypole::elastic
