#include "ftl/kv/kv_placer.h"

#include <fmt/format.h>

#include "base/error.h"

namespace csdsim::ftl {

PhysicalPageAddress KvPlacer::place(const KvPageId& page, const KvSequence& s, PageOwner owner, FlushJob& job) {
  const PhysicalPageAddress ppa = ask(page, s, owner, job);
  if (!ppa.valid()) throw InternalError("a flash page was booked but is not there");
  return ppa;
}

std::optional<PhysicalPageAddress> KvPlacer::place_if_room(const KvPageId& page, const KvSequence& s, PageOwner owner,
                                                           FlushJob& job) {
  return if_any(ask(page, s, owner, job));
}

PhysicalPageAddress KvPlacer::ask(const KvPageId& page, const KvSequence& s, PageOwner owner, FlushJob& job) {
  pages_.begin(job.programs, OpClass::flush);
  const PhysicalPageAddress ppa = policy_.place(page, s.info(), pages_);
  pages_.end();
  return accept("place", page, ppa, owner);
}

std::optional<PhysicalPageAddress> KvPlacer::place_moved(const KvPageId& page, const KvSequence& s, PageOwner owner,
                                                         PhysicalPageAddress from, FlushJob& job) {
  pages_.begin(job.programs, OpClass::gc);
  const PhysicalPageAddress ppa = policy_.move(page, s.info(), from, pages_);
  pages_.end();
  return if_any(accept("move", page, ppa, owner));
}

PhysicalPageAddress KvPlacer::accept(std::string_view call, const KvPageId& page, PhysicalPageAddress ppa,
                                     PageOwner owner) {
  if (pages_.exhausted()) return PhysicalPageAddress::invalid();
  check_answer(call, page, ppa);
  take(ppa, owner);
  return ppa;
}

/// Throws unless the policy took one page and returned it.
void KvPlacer::check_answer(std::string_view call, const KvPageId& page, PhysicalPageAddress ppa) const {
  const auto wrong = [&](const std::string& what) {
    throw PolicyError(fmt::format("mapping policy \"{}\": {}({}) {}", policy_.name(), call, to_string(page), what));
  };
  if (!ppa.valid()) wrong("returned no page");
  if (!flash_.geometry.contains(ppa)) {
    wrong(fmt::format("returned page {}, which does not exist: the flash has {}", ppa.value, flash_.geometry.pages()));
  }
  if (ppa != pages_.last()) {
    if (flash_.blocks.valid(ppa)) {
      const auto holder = owners_.holder_of(ppa);
      wrong(fmt::format("returned page {}, which holds {} already", ppa.value,
                        holder ? to_string(*holder) : "something else"));
    }
    wrong(fmt::format("returned page {}, which it did not take", ppa.value));
  }
  if (pages_.taken() != 1) {
    wrong(fmt::format("took {} pages for one, the last of them page {}", pages_.taken(), ppa.value));
  }
}

void KvPlacer::take(PhysicalPageAddress ppa, PageOwner owner) {
  owners_.set(ppa, owner);
  reclaim_.note_taken(ppa);
  pages_.count_valid(ppa);
}

bool KvPlacer::drop(PhysicalPageAddress ppa) {
  losses_.forget(ppa);
  if (parked_.holds(ppa)) {
    parked_.drop(ppa);
    return false;
  }
  pages_.count_invalid(ppa);
  return flash_.blocks.invalidate(ppa);
}

}  // namespace csdsim::ftl
