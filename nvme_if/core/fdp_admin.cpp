#include "nvme_if/core/fdp_admin.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "nvme_if/core/wire.h"

namespace csdsim::nvme {
namespace {

AdminResult take(std::size_t bytes) {
  return {.action = AdminResult::Action::take_data, .data = std::vector<std::byte>(bytes)};
}

std::uint8_t select_of(const SubmissionEntry& sqe) { return static_cast<std::uint8_t>(sqe.cdw10 & 0xF); }
constexpr std::uint8_t kCreate = 0, kDelete = 1, kAttach = 0;

// Bits of the entries of log pages that say what is supported.
constexpr std::uint32_t kSupported = 1u << 0;
constexpr std::uint32_t kChangesBlocks = 1u << 1;     // Logical Block Content Change
constexpr std::uint32_t kChangesInventory = 1u << 3;  // Namespace Inventory Change
constexpr std::uint32_t kOfNamespace = 1u << 20, kOfController = 1u << 21, kOfGroup = 1u << 23;

constexpr std::array kLogPages{
    log_page::supported_log_pages, log_page::error_information,  log_page::smart,
    log_page::firmware_slots,      log_page::commands_supported, log_page::endurance_group,
    log_page::features_supported,  log_page::fdp_configurations, log_page::reclaim_unit_handle_usage,
    log_page::fdp_statistics,      log_page::fdp_events};

bool is_of_group(std::uint8_t page) {
  return page == log_page::endurance_group || (page >= log_page::fdp_configurations && page <= log_page::fdp_events);
}

std::array<std::uint32_t, 256> supported_log_pages() {
  std::array<std::uint32_t, 256> pages{};
  for (const std::uint8_t page : kLogPages) pages[page] = kSupported;
  return pages;
}

/// Commands Supported and Effects: 256 admin commands, 256 of I/O.
std::array<std::uint32_t, 1024> commands_supported(const ControllerParams& params) {
  std::array<std::uint32_t, 1024> commands{};
  namespace admin = admin_opcode;
  for (const std::uint8_t opcode :
       {admin::delete_io_sq, admin::create_io_sq, admin::get_log_page, admin::delete_io_cq, admin::create_io_cq,
        admin::identify, admin::abort, admin::set_features, admin::get_features, admin::async_event_request,
        admin::directive_receive, admin::directive_send})
    commands[opcode] = kSupported;
  commands[admin::namespace_management] = kSupported | kChangesBlocks | kChangesInventory;
  commands[admin::namespace_attachment] = kSupported | kChangesInventory;
  std::uint32_t* const io = commands.data() + 256;
  for (const std::uint8_t opcode :
       {nvm_opcode::flush, nvm_opcode::read, nvm_opcode::io_management_receive, nvm_opcode::io_management_send})
    io[opcode] = kSupported;
  io[nvm_opcode::write] = io[nvm_opcode::dataset_management] = kSupported | kChangesBlocks;
  if (params.kv_commands)
    for (const std::uint8_t opcode : {kv_opcode::create, kv_opcode::append, kv_opcode::rewrite, kv_opcode::attend,
                                      kv_opcode::free, kv_opcode::fork, kv_opcode::score, kv_opcode::fetch})
      io[opcode] = kSupported;
  if (params.feed_forward) io[block_opcode::feed_forward] = kSupported;
  return commands;
}

std::array<std::uint32_t, 256> features_supported(const ControllerParams& params) {
  std::array<std::uint32_t, 256> features{};
  for (std::uint8_t fid = feature::arbitration; fid <= feature::async_event_configuration; ++fid)
    features[fid] = kSupported | kOfController;
  features[0x03] = 0;  // LBA Range Type is not there
  if (!params.volatile_cache) features[feature::volatile_write_cache] = 0;
  features[feature::fdp] = kSupported | kOfGroup;
  features[feature::fdp_events] = kSupported | kOfNamespace;
  return features;
}

/// A list of identifiers in 4096 bytes, preceded by their number.
std::array<std::uint16_t, 2048> counted_list(bool any, std::uint16_t identifier) {
  std::array<std::uint16_t, 2048> list{};
  if (any) {
    list[0] = 1;
    list[1] = identifier;
  }
  return list;
}

}  // namespace

FdpAdmin::FdpAdmin(ControllerParams& params)
    : params_(params), capacity_(params.namespace_blocks), group_(*params.fdp) {}

void FdpAdmin::complete(IdentifyController& id) const {
  constexpr std::uint16_t kNamespaceManagement = 1u << 3, kDirectives = 1u << 5;
  constexpr std::uint8_t kCommandsSupported = 1u << 1, kExtendedData = 1u << 2, kSupportedPages = 1u << 5;
  id.ver = kVersion_2_0;
  id.ctratt = controller_attribute::endurance_groups | controller_attribute::fdp;
  id.oacs = kNamespaceManagement | kDirectives;
  id.lpa = kCommandsSupported | kExtendedData | kSupportedPages;
  id.tnvmcap[0] = capacity_ * params_.block_size.value;
  id.unvmcap[0] = (capacity_ - (exists_ ? params_.namespace_blocks : 0)) * params_.block_size.value;
  id.endgidmax = EnduranceGroup::kId;
}

void FdpAdmin::complete(IdentifyNamespace& id) const { id.endgid = EnduranceGroup::kId; }

std::optional<AdminResult> FdpAdmin::execute(const SubmissionEntry& sqe) {
  switch (sqe.opcode) {
    case admin_opcode::identify:
      return identify(sqe);
    case admin_opcode::get_log_page:
      return check_log_page(sqe);
    case admin_opcode::get_features:
      return get_features(sqe);
    case admin_opcode::set_features:
      return set_features(sqe);
    case admin_opcode::namespace_management:
      return manage_namespace(sqe);
    case admin_opcode::namespace_attachment:
      if (sqe.nsid != 1) return refuse(status::invalid_namespace);
      return select_of(sqe) > 1 ? refuse(status::invalid_field) : take(4096);
    case admin_opcode::directive_receive:
      return receive_directive(sqe);
    case admin_opcode::directive_send:
      // Data Placement follows from the feature; there is no other directive to enable.
      return refuse(status::invalid_field);
    default:
      return std::nullopt;
  }
}

AdminResult FdpAdmin::execute_with_data(const SubmissionEntry& sqe, std::span<const std::byte> data) {
  switch (sqe.opcode) {
    case admin_opcode::set_features: {
      std::vector<FdpEventType> types;
      for (const std::byte type : data) types.push_back(static_cast<FdpEventType>(type));
      return refuse(group_.keep_events(low(sqe.cdw11), types, (sqe.cdw12 & 1) != 0));
    }
    case admin_opcode::namespace_management: {
      const Status created = create_namespace(data);
      return {.status = created, .dw0 = created.ok() ? 1u : 0u};
    }
    default:
      return refuse(attach(select_of(sqe) == kAttach, data));
  }
}

std::optional<AdminResult> FdpAdmin::identify(const SubmissionEntry& sqe) const {
  const auto cns = static_cast<std::uint8_t>(sqe.cdw10);
  const bool one = sqe.nsid == 1, of_nvm = sqe.cdw11 >> 24 == 0;
  switch (cns) {
    case cns::identify_namespace:
      if (one && !attached()) return send(IdentifyNamespace{});
      return std::nullopt;
    case cns::active_namespaces:
      if (sqe.nsid < 1 && !attached()) return send(std::array<std::uint32_t, 1024>{});
      return std::nullopt;
    case cns::namespace_descriptors:
      if (one && !attached()) return refuse(status::invalid_field);
      return std::nullopt;
    case cns::nvm_namespace:
      if (!of_nvm) return refuse(status::invalid_field);
      if (!one && sqe.nsid != kAllNamespaces) return refuse(status::invalid_namespace);
      return send(std::array<std::byte, 4096>{});
    case cns::nvm_controller:
      if (!of_nvm) return refuse(status::invalid_field);
      return send(std::array<std::byte, 4096>{});
    case cns::independent_namespace:
      if (!one) return refuse(status::invalid_namespace);
      return send(attached() ? IndependentNamespace{.endgid = EnduranceGroup::kId, .nstat = 1}
                             : IndependentNamespace{});
    case cns::allocated_namespaces: {
      if (sqe.nsid >= kNoNamespace) return refuse(status::invalid_namespace);
      std::array<std::uint32_t, 1024> list{};
      if (sqe.nsid < 1 && exists_) list[0] = 1;
      return send(list);
    }
    case cns::allocated_namespace: {
      if (!one) return refuse(status::invalid_namespace);
      IdentifyNamespace ns;
      if (!exists_) return send(ns);
      ns.nsze = ns.ncap = ns.nuse = params_.namespace_blocks;
      ns.lbaf[0].lbads = static_cast<std::uint8_t>(std::bit_width(params_.block_size.value) - 1);
      complete(ns);
      return send(ns);
    }
    case cns::attached_controllers:
      if (!one) return refuse(status::invalid_namespace);
      return send(counted_list(attached() && high(sqe.cdw10) == 0, 0));
    case cns::controllers:
      return send(counted_list(high(sqe.cdw10) == 0, 0));
    case cns::endurance_groups:
      return send(counted_list(low(sqe.cdw11) <= EnduranceGroup::kId, EnduranceGroup::kId));
    default:
      return std::nullopt;
  }
}

std::optional<AdminResult> FdpAdmin::check_log_page(const SubmissionEntry& sqe) const {
  const auto page = static_cast<std::uint8_t>(sqe.cdw10);
  if (!is_of_group(page)) return std::nullopt;
  if (high(sqe.cdw11) != EnduranceGroup::kId) return refuse(status::invalid_field);
  const bool of_placement = page > log_page::fdp_configurations;
  if (of_placement && !group_.enabled()) return refuse(status::fdp_disabled);
  return std::nullopt;
}

std::optional<std::vector<std::byte>> FdpAdmin::log(const SubmissionEntry& sqe) const {
  const auto page = static_cast<std::uint8_t>(sqe.cdw10);
  switch (page) {
    case log_page::supported_log_pages:
      return bytes_of(supported_log_pages());
    case log_page::commands_supported:
      return bytes_of(commands_supported(params_));
    case log_page::features_supported:
      return bytes_of(features_supported(params_));
    default:
      return group_.log(page, (sqe.cdw10 >> 8 & 1) != 0, params_.volatile_cache);
  }
}

std::vector<std::byte> FdpAdmin::endurance_log(const SmartLog& smart) const {
  constexpr std::uint64_t kUnit = 1'000'000'000, kSmartUnit = 512'000;
  const auto units = [](WideCount smart_units) {
    return WideCount{(smart_units.value * kSmartUnit + kUnit - 1) / kUnit};
  };
  EnduranceGroupLog log;
  log.critical_warning = smart.critical_warning;
  log.available_spare = smart.available_spare;
  log.spare_threshold = smart.spare_threshold;
  log.percentage_used = smart.percentage_used;
  log.data_units_read = units(smart.data_units_read);
  log.data_units_written = units(smart.data_units_written);
  log.media_units_written = {(group_.counts().media_written + kUnit - 1) / kUnit};
  log.host_reads = smart.host_reads;
  log.host_writes = smart.host_writes;
  log.media_errors = smart.media_errors;
  log.error_entries = smart.error_entries;
  log.capacity = {capacity_ * params_.block_size.value};
  log.unallocated_capacity = {exists_ ? (capacity_ - params_.namespace_blocks) * params_.block_size.value
                                      : log.capacity.value};
  return bytes_of(log);
}

std::optional<AdminResult> FdpAdmin::get_features(const SubmissionEntry& sqe) const {
  const auto fid = static_cast<std::uint8_t>(sqe.cdw10);
  const std::uint32_t select = sqe.cdw10 >> 8 & 7;
  if (fid != feature::fdp && fid != feature::fdp_events) return std::nullopt;
  if (select > 1) return refuse(status::invalid_field);
  if (fid == feature::fdp) {
    if (low(sqe.cdw11) != EnduranceGroup::kId) return refuse(status::invalid_field);
    return AdminResult{.dw0 = select == 1 ? fdp_config(params_.fdp->enabled, 0) : group_.config()};
  }
  if (const Status s = check_events(sqe); !s.ok()) return refuse(s);
  std::vector<FdpEventDescriptor> events = group_.events_of(low(sqe.cdw11));
  events.resize(std::min<std::size_t>(events.size(), sqe.cdw11 >> 16 & 0xFF));
  if (events.empty()) return AdminResult{};
  AdminResult r{.action = AdminResult::Action::send_data, .dw0 = static_cast<std::uint32_t>(events.size())};
  r.data.resize(events.size() * sizeof events[0]);
  std::memcpy(r.data.data(), events.data(), r.data.size());
  return r;
}

/// Checks the namespace and the placement handle whose events are asked for or set.
Status FdpAdmin::check_events(const SubmissionEntry& sqe) const {
  if (sqe.nsid != 1) return status::invalid_namespace;
  if (!group_.enabled()) return status::fdp_disabled;
  return low(sqe.cdw11) < group_.placement_handles().size() ? status::success : status::invalid_field;
}

std::optional<AdminResult> FdpAdmin::set_features(const SubmissionEntry& sqe) {
  const auto fid = static_cast<std::uint8_t>(sqe.cdw10);
  if (fid != feature::fdp && fid != feature::fdp_events) return std::nullopt;
  if (sqe.cdw10 >> 31 != 0) return refuse(status::feature_not_saveable);
  if (fid == feature::fdp) {
    if (low(sqe.cdw11) != EnduranceGroup::kId) return refuse(status::invalid_field);
    if (exists_) return refuse(status::command_sequence_error);
    return refuse(group_.configure(sqe.cdw12));
  }
  if (const Status s = check_events(sqe); !s.ok()) return refuse(s);
  const std::uint32_t types = sqe.cdw11 >> 16 & 0xFF;
  return types == 0 ? AdminResult{} : take(types);
}

AdminResult FdpAdmin::manage_namespace(const SubmissionEntry& sqe) {
  if (select_of(sqe) == kCreate) {
    // No list of namespaces is taken, and only the NVM command set is there.
    return sqe.nsid != 0 || sqe.cdw11 >> 24 != 0 ? refuse(status::invalid_field) : take(sizeof(NamespaceToCreate));
  }
  if (select_of(sqe) != kDelete) return refuse(status::invalid_field);
  if (sqe.nsid != 1 && sqe.nsid != kAllNamespaces) return refuse(status::invalid_namespace);
  if (!exists_) return refuse(sqe.nsid == 1 ? status::invalid_field : status::success);
  exists_ = false;
  params_.nsid = kNoNamespace;
  params_.namespace_blocks = capacity_;
  group_.delete_namespace();
  return {.action = AdminResult::Action::erase_namespace};
}

Status FdpAdmin::create_namespace(std::span<const std::byte> data) {
  const auto wanted = from_bytes<NamespaceToCreate>(data);
  if (exists_) return status::no_namespace_identifier;
  if (wanted.nsze == 0 || wanted.ncap != wanted.nsze || wanted.flbas != 0 || wanted.endgid > EnduranceGroup::kId)
    return status::invalid_field;
  if (wanted.nsze > capacity_) return status::namespace_too_large;
  if (wanted.placement_handles > kMostPlacementHandles) return status::invalid_field;
  if (group_.enabled()) {
    const std::span<const std::uint16_t> handles(wanted.handles.data(), wanted.placement_handles);
    if (const Status s = group_.create_namespace(handles); !s.ok()) return s;
  }
  exists_ = true;
  params_.namespace_blocks = wanted.nsze;
  return status::success;
}

/// `data` is a list of controllers: their number, then their identifiers.
Status FdpAdmin::attach(bool attach, std::span<const std::byte> data) {
  const auto list = from_bytes<std::array<std::uint16_t, 2048>>(data);
  if (!exists_) return status::invalid_field;
  if (list[0] != 1 || list[1] != 0) return status::controller_list_invalid;
  if (attach == attached()) return attach ? status::namespace_attached : status::namespace_not_attached;
  params_.nsid = attach ? 1 : kNoNamespace;
  return status::success;
}

/// Identify, Return Parameters: which directives are supported, enabled, and kept by a reset.
AdminResult FdpAdmin::receive_directive(const SubmissionEntry& sqe) const {
  constexpr std::uint32_t kReturnParameters = 1, kIdentify = 0;
  if (sqe.nsid != 1) return refuse(status::invalid_namespace);
  if (!attached() || (sqe.cdw11 & 0xFF) != kReturnParameters || (sqe.cdw11 >> 8 & 0xFF) != kIdentify)
    return refuse(status::invalid_field);
  const std::uint64_t wanted = (std::uint64_t{sqe.cdw10} + 1) * 4;
  if (wanted > params_.mdts.value) return refuse(status::invalid_field);
  AdminResult r{.action = AdminResult::Action::send_data};
  r.data.resize(4096);
  constexpr auto kBoth = std::byte{1u << directive::data_placement | 1}, kOnlyIdentify = std::byte{1};
  r.data[0] = kBoth;
  r.data[32] = group_.enabled() ? kBoth : kOnlyIdentify;
  r.data[64] = kBoth;
  r.data.resize(wanted);
  return r;
}

}  // namespace csdsim::nvme
