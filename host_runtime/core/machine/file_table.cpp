#include "host_runtime/core/machine/file_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace csdsim::host {

void FileTable::add(const std::string& name, std::vector<Extent> extents) {
  if (files_.count(name) > 0) throw UserError(fmt::format("file {}: there is one of this name", name));
  File made;
  for (const Extent& extent : extents) {
    if (extent.blocks == 0) throw UserError(fmt::format("file {}: an extent without blocks", name));
    const auto check = [&](const Extent& other, const std::string& owner) {
      if (extent.first < other.first + other.blocks && other.first < extent.first + extent.blocks)
        throw UserError(fmt::format("file {}: blocks {}..{} overlap those of {}", name, extent.first,
                                    extent.first + extent.blocks - 1, owner));
    };
    for (const auto& [owner, file] : files_)
      for (const Extent& other : file.extents) check(other, owner);
    for (const Extent& other : made.extents) check(other, "itself");
    made.extents.push_back(extent);
    made.size += block_ * extent.blocks;
  }
  files_.emplace(name, std::move(made));
}

const FileTable::File& FileTable::file(const std::string& name) const {
  const auto found = files_.find(name);
  if (found != files_.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, file] : files_) names.push_back(known);
  throw UserError(
      fmt::format("no file {}; there is {}", name, names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
}

Bytes FileTable::size(const std::string& name) const { return file(name).size; }

FileTable::Run FileTable::run_of(const File& file, std::uint64_t at, std::uint64_t first, std::uint64_t end) {
  std::uint64_t begin = 0;  // first block of the extent in the file
  for (const Extent& extent : file.extents) {
    if (at < begin + extent.blocks) {
      const std::uint64_t from = std::max(first, begin);
      return {{extent.first + from - begin, std::min(end, begin + extent.blocks) - from}, from};
    }
    begin += extent.blocks;
  }
  throw InternalError("a block beyond its file");
}

void FileTable::cut_range(const File& file, std::size_t index, FileRange range, Bytes io_size, FileCut how,
                          std::vector<FileIo>& ios) const {
  const std::uint64_t block = block_.value, most = io_size.value / block;
  const std::uint64_t end = range.offset.value + range.size.value;
  for (std::uint64_t at = range.offset.value; at < end;) {
    const std::uint64_t wanted = at / block, first = wanted / most * most;
    const Run run = how == FileCut::chunks
                        ? run_of(file, wanted, first, first + most)
                        : run_of(file, wanted, wanted, std::min(wanted + most, (end + block - 1) / block));
    const std::uint64_t stop = std::min(end, (run.first + run.extent.blocks) * block);
    ios.push_back({index, Bytes{at - range.offset.value}, Bytes{stop - at}, run.extent, Bytes{at - run.first * block}});
    at = stop;
  }
}

std::vector<FileIo> FileTable::cut(const std::string& name, FileRange range, Bytes io_size, FileCut how) const {
  std::vector<FileIo> ios;
  cut_range(file(name), 0, range, io_size, how, ios);
  return ios;
}

std::vector<FileIo> FileTable::cut(const Operation& op, Bytes io_size, FileCut how) const {
  const auto& work = std::get<FileWork>(op.work);
  const std::uint64_t block = block_.value;
  if (io_size.value == 0 || io_size.value % block != 0)
    throw UserError(
        fmt::format("file: io_size of {} B is not a multiple of the logical block of {} B", io_size.value, block));
  const File& of = file(work.file);
  std::vector<FileIo> ios;
  for (std::size_t index = 0; index < work.ranges.size(); ++index) {
    const FileRange& range = work.ranges[index];
    const auto refuse = [&](std::string_view what) {
      throw InternalError(fmt::format("{}: {} B from byte {} of {}, which has {} B: {}",
                                      operation_name(op.kind, op.tag), range.size.value, range.offset.value, work.file,
                                      of.size.value, what));
    };
    if (range.size.value == 0) refuse("an empty range");
    if (range.offset > of.size || range.size > of.size - range.offset) refuse("beyond the file");
    const bool whole_blocks = range.offset.value % block == 0 && range.size.value % block == 0;
    if (op.kind == OpKind::write_file && how == FileCut::blocks && !whole_blocks) refuse("writes are whole blocks");
    cut_range(of, index, range, io_size, how, ios);
  }
  return ios;
}

}  // namespace csdsim::host
