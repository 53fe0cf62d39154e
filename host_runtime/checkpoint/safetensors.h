// The safetensors format: 8 bytes of little-endian header length, a JSON header, then the tensors' bytes without gaps.
// https://huggingface.co/docs/safetensors
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "host_runtime/checkpoint/mapped_file.h"
#include "host_runtime/core/model/weight_source.h"

namespace csdsim::host {

/// One file, mapped. Everything in the header is checked against the file's size before it is used: lengths, types,
/// shape times element size against the byte range, and whether the ranges cover the data without gap or overlap.
class SafetensorsFile final : public WeightSource {
 public:
  /// UserError naming the file, the tensor and what is wrong.
  explicit SafetensorsFile(const std::filesystem::path& path);

  bool contains(std::string_view name) const override { return entries_.find(name) != entries_.end(); }
  StoredTensor tensor(std::string_view name) const override;
  std::vector<std::string> names() const override;
  void release(std::string_view name) const override;
  std::string description() const override { return path_; }
  /// What the file says about itself (`__metadata__`), by key.
  const std::map<std::string, std::string, std::less<>>& metadata() const { return metadata_; }

 private:
  struct Entry {
    std::string type;
    std::vector<std::uint64_t> shape;
    std::uint64_t begin = 0;  // within the data
    std::uint64_t end = 0;
  };

  std::string path_;
  MappedFile file_;
  std::span<const std::byte> data_;
  std::map<std::string, Entry, std::less<>> entries_;
  std::map<std::string, std::string, std::less<>> metadata_;
};

/// Tensors spread over several files by `model.safetensors.index.json` ("weight_map": tensor name -> file name).
class ShardedSafetensors final : public WeightSource {
 public:
  /// Opens every shard. UserError if a shard is missing, lies outside the index's folder, or lacks a tensor.
  explicit ShardedSafetensors(const std::filesystem::path& index);

  /// The shards, in the order of their names.
  std::vector<std::filesystem::path> files() const;

  bool contains(std::string_view name) const override { return shard_of_.find(name) != shard_of_.end(); }
  StoredTensor tensor(std::string_view name) const override;
  /// The names in the index; a shard may hold more.
  std::vector<std::string> names() const override;
  void release(std::string_view name) const override;
  std::string description() const override { return path_; }

 private:
  std::string path_;
  std::map<std::string, SafetensorsFile> shards_;
  std::map<std::string, const SafetensorsFile*, std::less<>> shard_of_;
};

}  // namespace csdsim::host
