// Stripes the pages of a head over channels, dies and planes; several policies place pages alike.
#pragma once

#include <cstdint>

#include "base/address.h"
#include "ftl/kv/kv_policy.h"

namespace csdsim::ftl {

/// A channel and the row of a page on it: rows count the dies of a channel first, then their planes, without end.
struct StripeSlot {
  std::uint32_t channel = 0;  ///< below FlashGeometry::channels
  std::uint64_t row = 0;
};

PlaneId plane_of(const FlashGeometry& geometry, const StripeSlot& slot);

/// Position of a page among those of its head and kind, in the order in which they are written.
std::uint64_t position_of(const KvPageId& page, const KvLayout& layout);

/// Token group gt of head h stands on channel (base + gt) mod channels, with base counting heads over sequences, so
/// that heads start at different channels and one flush of many heads covers all of them. Neighbouring heads also start
/// on different planes of a channel, because the engine works on them at the same time. Each further round over the
/// channels moves on to the next row. V stands half the channels, and half the planes, away from K. Embedding pages are
/// striped over ge and over w alike.
///
/// Over any prefix of a head's pages of one kind the loads of two channels differ by at most one page; by two where
/// embedding windows get longer (KvLayout::doublings).
StripeSlot head_stripe(const FlashGeometry& geometry, const KvPageId& page, const KvSequenceInfo& sequence);

}  // namespace csdsim::ftl
