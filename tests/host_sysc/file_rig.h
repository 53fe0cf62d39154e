// A drive with one file, and operations on it.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "host_runtime/sysc/file_backend.h"
#include "tests/host_sysc/drive_rig.h"

namespace csdsim::test {

inline constexpr host::Resource kFiles = host::Resource::file(host::DriveIndex{0});
inline const std::string kName = "weights.bin";
inline constexpr std::uint64_t kFirstBlock = 64, kBlocks64 = 64;  // the file's first extent

/// The data of file operations: one array per range.
class FileData final : public host::OperationData {
 public:
  std::vector<std::vector<std::byte>> ranges;

  void perform(const host::Operation&) override {}
  void load_file(const host::Operation&, std::size_t index, Bytes at, std::span<std::byte> bytes) override {
    std::copy_n(ranges.at(index).begin() + static_cast<std::ptrdiff_t>(at.value), bytes.size(), bytes.begin());
  }
  void store_file(const host::Operation& op, std::size_t index, Bytes at, std::span<const std::byte> bytes) override {
    const auto& work = std::get<host::FileWork>(op.work);
    ranges.resize(work.ranges.size());
    ranges[index].resize(work.ranges[index].size.value);
    std::ranges::copy(bytes, ranges[index].begin() + static_cast<std::ptrdiff_t>(at.value));
  }
};

/// A drive with a file of two extents, 80 blocks in all.
struct FileRig {
  DriveRig rig;
  FileData data;
  std::vector<host::FileTable> tables;
  host::FileBackend files;

  explicit FileRig(const host::FileIoParams& config = {}, bool carried = true)
      : rig(carried),
        tables(1, host::FileTable(block())),
        files(rig.commands, tables, config, carried ? &data : nullptr) {
    tables[0].add(kName, {{kFirstBlock, kBlocks64}, {8, 16}});
    rig.router.add(host::ResourceKind::file, files);
  }
  Bytes block() { return rig.platform.driver(0).block_size(); }
  Step operation(host::OpKind kind, std::vector<host::FileRange> ranges, host::Place memory = host::Place::host(),
                 host::LinkPayload payload = host::LinkPayload::weights) {
    return {kind, kFiles,
            host::FileWork{.file = kName, .ranges = std::move(ranges), .payload = payload, .memory = memory}};
  }
  std::vector<std::byte> fill(std::uint64_t seed) {
    std::vector<std::byte> bytes(tables[0].size(kName).value);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(counter_random(seed, i) & 0xFF);
    data.ranges = {bytes};
    rig.run({operation(host::OpKind::write_file, {{Bytes{}, tables[0].size(kName)}})});
    return bytes;
  }
  static SimTime time(const host::ExecutionReport& r, host::OpKind kind) {
    return r.kind_time[static_cast<std::size_t>(kind)];
  }
  /// Lets time pass until nothing waits to be written back.
  void settle() {
    bool written = false;
    files.when_written_back([&] { written = true; });
    while (!written && sc_core::sc_pending_activity()) sc_core::sc_start();
    if (!written) throw std::logic_error("chunks are never written back");
  }
  /// Time of the drive for one I/O without others.
  SimTime drive_time(host::Extent extent, host::OpKind kind = host::OpKind::read_blocks) {
    rig.data.blocks = {std::vector<std::byte>((block() * extent.blocks).value)};
    return time(rig.run({{kind, kBlocks, host::BlockWork{.extents = {extent}}}}), kind);
  }
};

}  // namespace csdsim::test
