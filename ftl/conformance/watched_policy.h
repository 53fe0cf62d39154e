// A policy whose use of append points is counted; not a public header.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "ftl/conformance/journal.h"
#include "ftl/kv/kv_policy.h"

namespace csdsim::ftl::conformance {

/// Pages taken for append points of the policy's own.
struct AppendUse {
  std::uint64_t pages = 0;
  std::uint64_t together = 0;  ///< pages of these in a block that has another page of their point
  std::map<AppendPoint, std::set<std::uint64_t>> blocks;

  void take(AppendPoint point, PhysicalPageAddress ppa, std::uint32_t pages_per_block) {
    if (point < kFirstOwnPoint || !ppa.valid()) return;
    ++pages;
    if (!blocks[point].insert(ppa.value / pages_per_block).second) ++together;
  }
};

/// Passes all calls on. `use` and `journal`, if there is one, outlive the policy.
class WatchedPolicy final : public KvMappingPolicy {
 public:
  WatchedPolicy(std::unique_ptr<KvMappingPolicy> inner, AppendUse& use, Journal* journal)
      : inner_(std::move(inner)), use_(use), journal_(journal) {}

  std::string_view name() const override { return inner_->name(); }
  KvLayout layout(const KvShape& shape, Bytes page_size, const KvLayoutOptions& options) const override {
    const Call call(journal_, "layout");
    return inner_->layout(shape, page_size, options);
  }
  PhysicalPageAddress place(const KvPageId& page, const KvSequenceInfo& sequence, PageAllocator& pages) override {
    const Call call(journal_, "place");
    Watched watched(pages, use_);
    return inner_->place(page, sequence, watched);
  }
  PhysicalPageAddress move(const KvPageId& page, const KvSequenceInfo& sequence, PhysicalPageAddress from,
                           PageAllocator& pages) override {
    const Call call(journal_, "move");
    Watched watched(pages, use_);
    return inner_->move(page, sequence, from, watched);
  }
  std::uint32_t groups_to_write(const KvSequenceInfo& sequence, std::uint32_t tokens,
                                std::uint32_t written) const override {
    const Call call(journal_, "groups_to_write");
    return inner_->groups_to_write(sequence, tokens, written);
  }
  std::uint64_t lookups(const KvSequenceInfo& sequence, std::uint64_t pages) const override {
    const Call call(journal_, "lookups");
    return inner_->lookups(sequence, pages);
  }
  Bytes table_bytes(const KvSequenceInfo& sequence, std::uint64_t pages) const override {
    const Call call(journal_, "table_bytes");
    return inner_->table_bytes(sequence, pages);
  }
  void sequence_freed(const KvSequenceInfo& sequence, PageAllocator& pages) override {
    const Call call(journal_, "sequence_freed");
    inner_->sequence_freed(sequence, pages);
  }
  void page_restored(const KvPageId& page, const KvSequenceInfo& sequence, PhysicalPageAddress ppa) override {
    const Call call(journal_, "page_restored");
    inner_->page_restored(page, sequence, ppa);
  }

 private:
  /// Tells the journal that the policy is called, until it has returned.
  class Call {
   public:
    Call(Journal* journal, const char* function) : journal_(journal) {
      if (journal_ != nullptr) journal_->call(function);
    }
    ~Call() {
      if (journal_ != nullptr) journal_->call(nullptr);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    Journal* journal_;
  };

  class Watched final : public PageAllocator {
   public:
    Watched(PageAllocator& pages, AppendUse& use) : pages_(pages), use_(use) {}
    const FlashGeometry& geometry() const override { return pages_.geometry(); }
    PhysicalPageAddress take(PlaneId wanted, AppendPoint point) override {
      const PhysicalPageAddress ppa = pages_.take(wanted, point);
      use_.take(point, ppa, geometry().pages_per_block);
      return ppa;
    }
    void close(AppendPoint point) override { pages_.close(point); }
    std::uint64_t free_pages(PlaneId plane) const override { return pages_.free_pages(plane); }
    double read_load(ChannelId channel) const override { return pages_.read_load(channel); }
    std::uint64_t valid_pages(ChannelId channel) const override { return pages_.valid_pages(channel); }

   private:
    PageAllocator& pages_;
    AppendUse& use_;
  };

  std::unique_ptr<KvMappingPolicy> inner_;
  AppendUse& use_;
  Journal* journal_;
};

}  // namespace csdsim::ftl::conformance
