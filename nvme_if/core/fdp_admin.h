// Admin commands that only a controller with Flexible Data Placement has, and what it says in Identify.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "nvme_if/core/admin_result.h"
#include "nvme_if/core/endurance_group.h"
#include "nvme_if/spec/identify.h"

namespace csdsim::nvme {

/// Such a controller complies with NVMe 2.0: it has the log pages and the Identify data that are mandatory there. The
/// placement of an endurance group can only be changed while it has no namespace, so that namespaces can be deleted,
/// created with a list of placement handles, and attached. There is one, namespace 1, and one controller, 0.
class FdpAdmin {
 public:
  /// `params`, whose fdp is set, must outlive it; `nsid` and `namespace_blocks` of it change with the namespace.
  explicit FdpAdmin(ControllerParams& params);

  EnduranceGroup& group() { return group_; }
  const EnduranceGroup& group() const { return group_; }

  /// Nothing if the controller has to execute the command itself.
  std::optional<AdminResult> execute(const SubmissionEntry& sqe);
  /// The rest of a command whose result was take_data, with the bytes that it has asked for.
  AdminResult execute_with_data(const SubmissionEntry& sqe, std::span<const std::byte> data);
  /// All bytes of a log page that only controllers with Flexible Data Placement have; nothing for other log pages.
  std::optional<std::vector<std::byte>> log(const SubmissionEntry& sqe) const;
  /// Endurance Group Information of a drive whose SMART page is this.
  std::vector<std::byte> endurance_log(const SmartLog& smart) const;

  void complete(IdentifyController& id) const;
  void complete(IdentifyNamespace& id) const;

 private:
  std::optional<AdminResult> identify(const SubmissionEntry& sqe) const;
  std::optional<AdminResult> check_log_page(const SubmissionEntry& sqe) const;
  std::optional<AdminResult> get_features(const SubmissionEntry& sqe) const;
  std::optional<AdminResult> set_features(const SubmissionEntry& sqe);
  Status check_events(const SubmissionEntry& sqe) const;
  AdminResult manage_namespace(const SubmissionEntry& sqe);
  Status create_namespace(std::span<const std::byte> data);
  Status attach(bool attach, std::span<const std::byte> data);
  AdminResult receive_directive(const SubmissionEntry& sqe) const;
  bool attached() const { return params_.nsid != kNoNamespace; }

  ControllerParams& params_;
  std::uint64_t capacity_;  ///< logical blocks
  bool exists_ = true;      ///< the namespace
  EnduranceGroup group_;
};

}  // namespace csdsim::nvme
