#include "ftl/kv/kv_ftl.h"

#include <utility>

#include "base/error.h"
#include "ftl/kv/fault_injection.h"
#include "ftl/kv/kv_parts.h"

namespace csdsim::ftl {

KvFtl::KvFtl(const KvFtlConfig& config, BlockManager& blocks, BackingStore& store, DramBudget& dram,
             std::unique_ptr<KvMappingPolicy> policy, MediaFaults* faults)
    : stats_(std::make_unique<KvFtlStats>()),
      blocks_(blocks),
      parts_(std::make_unique<KvParts>(config, blocks, store, dram, std::move(policy), faults, *stats_)) {
  if (store.geometry().pages() >= std::uint64_t{1} << 62) throw UserError("the flash has more than 2^62 pages");
}

KvFtl::~KvFtl() = default;

KvStatus KvFtl::create_sequence(SequenceId id, const KvShape& shape) { return parts_->sequences.create(id, shape); }
KvStatus KvFtl::fork_sequence(SequenceId parent, SequenceId child) { return parts_->sequences.fork(parent, child); }
FreeResult KvFtl::free_sequence(SequenceId id) { return parts_->sequences.free(id); }
KvStatus KvFtl::pin(SequenceId id) { return parts_->sequences.pin(id); }
std::vector<PageOp> KvFtl::unpin(SequenceId id) { return parts_->sequences.unpin(id); }
void KvFtl::pass(SimTime now) { parts_->reclaim.pass(now); }

AppendResult KvFtl::append(SequenceId id, LayerId layer, TokenIndex first, std::uint32_t count, HeadRange heads,
                           std::span<const Half> keys, std::span<const Half> values) {
  KvSequence* const s = parts_->table.find(id);
  if (s == nullptr) return {KvStatus::bad_sequence, {}, {}};
  return parts_->appender.append({*s, layer, first.value, count, heads, keys, values});
}

AppendResult KvFtl::rewrite(SequenceId id, LayerId layer, TokenIndex first, std::uint32_t count, HeadRange heads,
                            std::span<const Half> keys, std::span<const Half> values) {
  KvSequence* const s = parts_->table.find(id);
  if (s == nullptr) return {KvStatus::bad_sequence, {}, {}};
  return parts_->rewriter.rewrite({*s, layer, first.value, count, heads, keys, values});
}

std::vector<PageOp> KvFtl::flush_done(FlushJobId id) { return parts_->jobs.done(id); }
void KvFtl::erase_done(PhysicalPageAddress ppa) { parts_->eraser.done(ppa); }

KvStatus KvFtl::check(const HeadKey& key) const { return parts_->table.check(key); }
const KvShape& KvFtl::shape(SequenceId id) const { return std::as_const(parts_->table).at(id).shape; }
const KvLayout& KvFtl::layout(SequenceId id) const { return parts_->table.layout(id); }
TailPolicy KvFtl::tail_policy() const { return parts_->flash.config.tail; }
const KvMappingPolicy& KvFtl::policy() const { return *parts_->policy; }

std::uint32_t KvFtl::tokens(const HeadKey& key) const { return parts_->table.tokens(key); }
std::uint32_t KvFtl::flushed_tokens(const HeadKey& key) const { return parts_->table.flushed_tokens(key); }
std::uint32_t KvFtl::transposed_tokens(const HeadKey& key) const { return parts_->table.transposed_tokens(key); }
std::uint32_t KvFtl::transposed_windows(const HeadKey& key) const { return parts_->table.transposed_windows(key); }

void KvFtl::plan_token_groups(const HeadKey& key, KvRows which, std::span<const std::uint32_t> groups,
                              std::span<const std::uint32_t> rows, ReadPlan& out) {
  parts_->reader.plan_token_groups(key, which, groups, rows, out);
}

void KvFtl::plan_embedding_groups(const HeadKey& key, std::span<const std::uint32_t> groups,
                                  std::span<const std::uint32_t> rows, ReadPlan& out) {
  parts_->reader.plan_embedding_groups(key, groups, rows, out);
}

bool KvFtl::may_lose() const { return parts_->flash.faults != nullptr; }
std::vector<KvLoss> KvFtl::take_losses() { return parts_->losses.take(); }
bool KvFtl::has_losses() const { return parts_->losses.any_reported(); }
void KvFtl::drop(const KvLoss& loss) { parts_->losses.drop(loss); }
std::span<const TokenSpan> KvFtl::dropped(const HeadKey& key) const { return parts_->losses.dropped(key); }

const Half* KvFtl::token_rows(const HeadKey& key, KvKind kind, std::uint32_t group) const {
  return parts_->reader.token_rows(key, kind, group);
}
const Half* KvFtl::token_row(const HeadKey& key, KvKind kind, TokenIndex token) const {
  return parts_->reader.token_row(key, kind, token);
}
const Half* KvFtl::embedding_page(const HeadKey& key, std::uint32_t ge, std::uint32_t window) const {
  return parts_->reader.embedding_page(key, ge, window);
}
std::span<const float> KvFtl::value_mean(const HeadKey& key) const { return parts_->reader.value_mean(key); }

void KvFtl::visit_pages(const std::function<void(const KvPageId&, PhysicalPageAddress)>& visit) const {
  parts_->owners.visit_pages(visit);
}

std::uint64_t KvFtl::verify() const {
  BackingStore& store = parts_->flash.store;
  const std::uint64_t before = store.integrity_errors();
  visit_pages([&](const KvPageId& page, PhysicalPageAddress ppa) {
    const PageOwner owner = parts_->owners.of(ppa);
    const MapSegment& segment = parts_->owners.segment(owner);
    const std::uint32_t partial_tokens = parts_->owners.find(owner, ppa).partial_tokens;
    store.read_verified(ppa, oob_tag(page, segment.layout, segment.number, partial_tokens), PageCheck::key_and_crc);
  });
  return store.integrity_errors() - before;
}

const KvFtlStats& KvFtl::stats() const { return *stats_; }
const DramBudget& KvFtl::dram() const { return parts_->flash.dram; }
std::size_t KvFtl::superseded_pages() const { return parts_->table.superseded_pages(); }
std::size_t KvFtl::pending_flushes() const { return parts_->jobs.pending_flushes(); }
std::size_t KvFtl::draining_blocks() const { return parts_->eraser.draining(); }
std::size_t KvFtl::parked_pages() const { return parts_->parked.size(); }

KvDump KvFtl::power_loss() const { return save_kv(*parts_); }
RecoveryResult KvFtl::recover(const KvDump& dump, const std::function<void()>& restore_others) {
  return recover_kv(*parts_, dump, restore_others);
}

void KvFtl::forget(std::unique_ptr<KvMappingPolicy> policy) {
  const KvFlash& flash = parts_->flash;
  for (const DramUse use :
       {DramUse::group_buffer, DramUse::component_tail, DramUse::value_mean, DramUse::flush_pending})
    flash.dram.release(use, flash.dram.used(use));
  flash.dram.release(DramUse::map, parts_->owners.table_bytes());
  parts_ = std::make_unique<KvParts>(flash.config, blocks_, flash.store, flash.dram, std::move(policy), flash.faults,
                                     *stats_);
}

void KvFtl::swap_mapping(const KvPageId& a, const KvPageId& b) { ftl::swap_mapping(parts_->table, a, b); }
void KvFtl::forget_tail(const HeadKey& key) { ftl::forget_tail(parts_->table, key); }

}  // namespace csdsim::ftl
