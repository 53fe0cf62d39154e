// Status codes of a completion (NVMe Base Specification 1.4, section 4.6.1) and the vendor specific ones.
#pragma once

#include <cstdint>
#include <string_view>

namespace csdsim::nvme {

enum class StatusType : std::uint8_t { generic = 0, command_specific = 1, media = 2, vendor = 7 };

/// Status type and code. `value()` is the 11 bits SCT.SC; a completion carries them above the phase bit.
struct Status {
  StatusType type = StatusType::generic;
  std::uint8_t code = 0;
  constexpr bool ok() const { return type == StatusType::generic && code == 0; }
  constexpr std::uint16_t value() const {
    return static_cast<std::uint16_t>((static_cast<unsigned>(type) << 8) | code);
  }
  static constexpr Status from_value(std::uint16_t v) {
    return {static_cast<StatusType>((v >> 8) & 7), static_cast<std::uint8_t>(v)};
  }
  constexpr auto operator<=>(const Status&) const = default;
};

namespace status {
// Generic (SCT 0h).
inline constexpr Status success{StatusType::generic, 0x00};
inline constexpr Status invalid_opcode{StatusType::generic, 0x01};
inline constexpr Status invalid_field{StatusType::generic, 0x02};
inline constexpr Status command_id_conflict{StatusType::generic, 0x03};
inline constexpr Status data_transfer_error{StatusType::generic, 0x04};
inline constexpr Status internal_error{StatusType::generic, 0x06};
inline constexpr Status abort_requested{StatusType::generic, 0x07};
inline constexpr Status abort_sq_deletion{StatusType::generic, 0x08};
inline constexpr Status invalid_namespace{StatusType::generic, 0x0B};
inline constexpr Status command_sequence_error{StatusType::generic, 0x0C};
inline constexpr Status sgl_segment_invalid{StatusType::generic, 0x0D};  ///< Invalid SGL Segment Descriptor
inline constexpr Status sgl_number_invalid{StatusType::generic, 0x0E};   ///< Invalid Number of SGL Descriptors
inline constexpr Status sgl_length_invalid{StatusType::generic, 0x0F};   ///< Data SGL Length Invalid
inline constexpr Status sgl_type_invalid{StatusType::generic, 0x11};     ///< SGL Descriptor Type Invalid
inline constexpr Status prp_offset_invalid{StatusType::generic, 0x13};
inline constexpr Status sgl_subtype_invalid{StatusType::generic, 0x17};
inline constexpr Status sgl_granularity_invalid{StatusType::generic, 0x1E};  ///< SGL Data Block Granularity Invalid
inline constexpr Status namespace_write_protected{StatusType::generic, 0x20};
inline constexpr Status fdp_disabled{StatusType::generic, 0x29};            ///< Flexible Data Placement Disabled
inline constexpr Status invalid_placement_list{StatusType::generic, 0x2A};  ///< Invalid Placement Handle List
inline constexpr Status lba_out_of_range{StatusType::generic, 0x80};
inline constexpr Status capacity_exceeded{StatusType::generic, 0x81};
// Command specific (SCT 1h).
inline constexpr Status completion_queue_invalid{StatusType::command_specific, 0x00};
inline constexpr Status invalid_queue_id{StatusType::command_specific, 0x01};
inline constexpr Status invalid_queue_size{StatusType::command_specific, 0x02};
inline constexpr Status async_event_limit{StatusType::command_specific, 0x05};
inline constexpr Status invalid_interrupt_vector{StatusType::command_specific, 0x08};
inline constexpr Status invalid_log_page{StatusType::command_specific, 0x09};
inline constexpr Status invalid_queue_deletion{StatusType::command_specific, 0x0C};
inline constexpr Status feature_not_saveable{StatusType::command_specific, 0x0D};
inline constexpr Status feature_not_changeable{StatusType::command_specific, 0x0E};
inline constexpr Status namespace_too_large{StatusType::command_specific, 0x15};  ///< Namespace Insufficient Capacity
inline constexpr Status no_namespace_identifier{StatusType::command_specific, 0x16};
inline constexpr Status namespace_attached{StatusType::command_specific, 0x18};  ///< Namespace Already Attached
inline constexpr Status namespace_not_attached{StatusType::command_specific, 0x1A};
inline constexpr Status controller_list_invalid{StatusType::command_specific, 0x1C};
// Media and data integrity (SCT 2h).
inline constexpr Status unrecovered_read_error{StatusType::media, 0x81};
// Vendor specific (SCT 7h): the commands of nvme_if/spec/kv_command.h and feed_forward_command.h.
inline constexpr Status kv_unknown_sequence{StatusType::vendor, 0xC0};  ///< never created, or freed
inline constexpr Status kv_sequence_exists{StatusType::vendor, 0xC1};   ///< kv_create of a live sequence
inline constexpr Status kv_out_of_dram{StatusType::vendor, 0xC2};       ///< controller DRAM cannot hold it
inline constexpr Status kv_out_of_flash{StatusType::vendor, 0xC3};      ///< no free flash page for it
inline constexpr Status kv_bad_layer{StatusType::vendor, 0xC4};         ///< layer not below the sequence's layers
inline constexpr Status kv_bad_head{StatusType::vendor, 0xC5};          ///< heads not within the sequence's KV heads
inline constexpr Status kv_bad_token{StatusType::vendor, 0xC6};         ///< gap, overlap, or not appended yet
inline constexpr Status kv_bad_parameters{StatusType::vendor, 0xC7};    ///< unknown method, r, k or l out of range
inline constexpr Status kv_shape_mismatch{StatusType::vendor, 0xC8};    ///< NDT or descriptors do not fit the shape
inline constexpr Status kv_integrity_error{StatusType::vendor,
                                           0xC9};  ///< the page that was read is not the page that was mapped
inline constexpr Status engine_buffer_exceeded{StatusType::vendor, 0xCA};  ///< feed_forward: too many tokens or columns
}  // namespace status

/// Short text for messages, e.g. "invalid_field"; "unknown" for codes outside the table.
constexpr std::string_view status_name(Status s) {
  struct Row {
    Status code;
    std::string_view name;
  };
  constexpr Row rows[] = {
      {status::success, "success"},
      {status::invalid_opcode, "invalid_opcode"},
      {status::invalid_field, "invalid_field"},
      {status::command_id_conflict, "command_id_conflict"},
      {status::data_transfer_error, "data_transfer_error"},
      {status::internal_error, "internal_error"},
      {status::abort_requested, "abort_requested"},
      {status::abort_sq_deletion, "abort_sq_deletion"},
      {status::invalid_namespace, "invalid_namespace"},
      {status::command_sequence_error, "command_sequence_error"},
      {status::sgl_segment_invalid, "sgl_segment_invalid"},
      {status::sgl_number_invalid, "sgl_number_invalid"},
      {status::sgl_length_invalid, "sgl_length_invalid"},
      {status::sgl_type_invalid, "sgl_type_invalid"},
      {status::prp_offset_invalid, "prp_offset_invalid"},
      {status::sgl_subtype_invalid, "sgl_subtype_invalid"},
      {status::sgl_granularity_invalid, "sgl_granularity_invalid"},
      {status::namespace_write_protected, "namespace_write_protected"},
      {status::fdp_disabled, "fdp_disabled"},
      {status::invalid_placement_list, "invalid_placement_list"},
      {status::lba_out_of_range, "lba_out_of_range"},
      {status::capacity_exceeded, "capacity_exceeded"},
      {status::completion_queue_invalid, "completion_queue_invalid"},
      {status::invalid_queue_id, "invalid_queue_id"},
      {status::invalid_queue_size, "invalid_queue_size"},
      {status::async_event_limit, "async_event_limit"},
      {status::invalid_log_page, "invalid_log_page"},
      {status::invalid_interrupt_vector, "invalid_interrupt_vector"},
      {status::invalid_queue_deletion, "invalid_queue_deletion"},
      {status::feature_not_saveable, "feature_not_saveable"},
      {status::feature_not_changeable, "feature_not_changeable"},
      {status::namespace_too_large, "namespace_too_large"},
      {status::no_namespace_identifier, "no_namespace_identifier"},
      {status::namespace_attached, "namespace_attached"},
      {status::namespace_not_attached, "namespace_not_attached"},
      {status::controller_list_invalid, "controller_list_invalid"},
      {status::unrecovered_read_error, "unrecovered_read_error"},
      {status::kv_unknown_sequence, "kv_unknown_sequence"},
      {status::kv_sequence_exists, "kv_sequence_exists"},
      {status::kv_out_of_dram, "kv_out_of_dram"},
      {status::kv_out_of_flash, "kv_out_of_flash"},
      {status::kv_bad_layer, "kv_bad_layer"},
      {status::kv_bad_head, "kv_bad_head"},
      {status::kv_bad_token, "kv_bad_token"},
      {status::kv_bad_parameters, "kv_bad_parameters"},
      {status::kv_shape_mismatch, "kv_shape_mismatch"},
      {status::kv_integrity_error, "kv_integrity_error"},
      {status::engine_buffer_exceeded, "engine_buffer_exceeded"},
  };
  for (const Row& row : rows)
    if (row.code == s) return row.name;
  return "unknown";
}

}  // namespace csdsim::nvme
