// A policy that behaves like another one, except for what a derived class overrides.
#pragma once

#include <memory>
#include <utility>

#include "ftl/kv/kv_policy.h"

namespace csdsim::ftl {

class PolicyDecorator : public KvMappingPolicy {
 public:
  explicit PolicyDecorator(std::unique_ptr<KvMappingPolicy> inner) : inner_(std::move(inner)) {}

  std::string_view name() const override { return inner_->name(); }
  KvLayout layout(const KvShape& shape, Bytes page_size, const KvLayoutOptions& options) const override {
    return inner_->layout(shape, page_size, options);
  }
  PhysicalPageAddress place(const KvPageId& page, const KvSequenceInfo& sequence, PageAllocator& pages) override {
    return inner_->place(page, sequence, pages);
  }
  PhysicalPageAddress move(const KvPageId& page, const KvSequenceInfo& sequence, PhysicalPageAddress from,
                           PageAllocator& pages) override {
    return inner_->move(page, sequence, from, pages);
  }
  std::uint32_t groups_to_write(const KvSequenceInfo& sequence, std::uint32_t tokens,
                                std::uint32_t written) const override {
    return inner_->groups_to_write(sequence, tokens, written);
  }
  std::uint64_t lookups(const KvSequenceInfo& sequence, std::uint64_t pages) const override {
    return inner_->lookups(sequence, pages);
  }
  Bytes table_bytes(const KvSequenceInfo& sequence, std::uint64_t pages) const override {
    return inner_->table_bytes(sequence, pages);
  }
  void sequence_freed(const KvSequenceInfo& sequence, PageAllocator& pages) override {
    inner_->sequence_freed(sequence, pages);
  }
  void page_restored(const KvPageId& page, const KvSequenceInfo& sequence, PhysicalPageAddress ppa) override {
    inner_->page_restored(page, sequence, ppa);
  }

 protected:
  std::unique_ptr<KvMappingPolicy> inner_;
};

}  // namespace csdsim::ftl
