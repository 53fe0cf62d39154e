#include "host_runtime/core/serving/engine/kv_files_config.h"

namespace csdsim::host {

void describe(ParamVisitor& v, KvFilesConfig& c) {
  constexpr SimTime kSecond = SimTime::milliseconds(1000), kDay = SimTime::milliseconds(86'400'000);
  v.param(
      "directories", c.directories, {1, 16'777'216},
      "Directories of each drive among which the hash of a block's name spreads its file; 1: all files stand in one.",
      datasheet("vLLM, files of a tier: 3 and 2 hexadecimal digits of the hash, so 4,096 x 256; SGLang: one"));
  v.param("open_time", c.open_time, {SimTime{}, kSecond}, "Time of a thread to open and close a file that is there.",
          assumed("a path of three names in the cache of the kernel"));
  v.param("create_time", c.create_time, {SimTime{}, kSecond},
          "Time of a thread to create a file under a temporary name, and likewise a directory.",
          assumed("ext4 creates 50,000 to 100,000 empty files per second and core"));
  v.param("rename_time", c.rename_time, {SimTime{}, kSecond}, "Time of a thread to give a file its final name.",
          assumed("two thirds of a create"));
  v.param("unlink_time", c.unlink_time, {SimTime{}, kSecond},
          "Time of a thread to delete the file of a block that has left the tier.", assumed("that of a create"));
  v.param(
      "metadata_cache", c.metadata_cache, {Bytes{}, Bytes::gib(65'536)},
      "Host memory for inodes, directories and bitmaps of each drive; what is not there is read in blocks of 4 KiB.",
      assumed("a million files of vLLM take 8 GiB, those of one directory 400 MiB"));
  v.param("journal", c.journal, {Bytes::kib(64), Bytes::gib(40)}, "Size of the journal of each drive.",
          datasheet("mke2fs: 262,144 blocks of 4 KiB on 1 TB"));
  v.param("commit_interval", c.commit_interval, {SimTime::nanoseconds(1), kDay},
          "Changed metadata goes to the journal at the latest this time after the change.",
          datasheet("ext4, mount option commit: 5 seconds"));
  v.param("write_back_interval", c.write_back_interval, {SimTime::nanoseconds(1), kDay},
          "Metadata that is in the journal goes to its place this time later.",
          datasheet("Linux, vm.dirty_expire_centisecs: 3000"));
  v.param("reserved", c.reserved, {Ratio{0, 1}, Ratio::of(9, 10)},
          "Share of the file system that the tier does not fill.", datasheet("mke2fs, reserved blocks: 5 %"));
  v.param("discard", c.discard, "The drive is told which blocks of deleted files it can forget (TRIM).",
          datasheet("ext4, mount option nodiscard: the default"));
}

}  // namespace csdsim::host
