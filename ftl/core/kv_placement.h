// Where the pages of a head would best go.
#pragma once

#include <cstdint>

#include "base/address.h"
#include "ftl/core/kv_layout.h"
#include "ftl/core/kv_types.h"

namespace csdsim::ftl {

/// A placement names the plane that a new page should go to. It is asked once a page, in the order of allocation. The
/// FTL goes to another plane (same channel first) only where that one is out of pages.
class KvPlacement {
 public:
  virtual ~KvPlacement() = default;
  virtual PlaneId place(const KvPageId& page, const KvShape& shape, const KvLayout& layout) = 0;
};

/// InstInfer's two aims together (reference/algorithms.md 3.2): the groups of a head are striped over the channels, and
/// a block collects pages of many heads.
///
/// Token group gt of head h goes to channel (base + gt) mod channels, with base counting heads over sequences, so that
/// heads start at different channels and one flush of many heads covers all of them. Neighbouring heads also start on
/// different planes of a channel, because the engine works on them at the same time. Each further round over the
/// channels moves on to the next die, after the dies to the next plane. V stands half the channels (and half the
/// planes) away from K. Embedding pages are striped over ge and over w alike. Over any prefix of a head's pages of one
/// kind the load of two channels differs by at most one page.
class StripedPlacement final : public KvPlacement {
 public:
  explicit StripedPlacement(const FlashGeometry& geometry) : geometry_(geometry) {}
  PlaneId place(const KvPageId& page, const KvShape& shape, const KvLayout& layout) override;

 private:
  FlashGeometry geometry_;
};

}  // namespace csdsim::ftl
