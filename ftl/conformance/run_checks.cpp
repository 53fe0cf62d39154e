// The properties, checked from outside: the drive against plain arrays.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"
#include "ftl/conformance/run.h"

namespace csdsim::ftl::conformance {

namespace {

std::string name(const KvPageId& page, std::uint64_t ppa) { return fmt::format("{} at page {}", to_string(page), ppa); }

PageKind token_kind(KvKind kind, const KvLayout& l) {
  if (l.paired) return PageKind::token_kv;
  return kind == KvKind::key ? PageKind::token_k : PageKind::token_v;
}

/// The first head of those that share token pages with `key`.
HeadKey tile_key(const HeadKey& key, const KvLayout& l) {
  return {key.sequence, key.layer, KvHead{key.head.value / l.page_heads * l.page_heads}};
}

}  // namespace

void Run::check_layout(const KvShape& shape, const KvLayout& l) {
  const std::uint64_t rows = std::uint64_t{l.group_tokens} * l.page_heads * (l.paired ? 2 : 1);
  require(Property::layout, l.head_dim == shape.head_dim && l.page_size == case_.setup.geometry.page_size, [&] {
    return fmt::format("the layout is one of rows of {} elements on pages of {} bytes, not of {} on {}", l.head_dim,
                       l.page_size.value, shape.head_dim, case_.setup.geometry.page_size.value);
  });
  require(Property::layout, l.page_heads <= std::max(1u, shape.kv_heads),
          [&] { return fmt::format("{} heads share a page of a sequence with {}", l.page_heads, shape.kv_heads); });
  require(Property::layout, rows > 0 && rows * l.row().value <= l.page_size.value,
          [&] { return fmt::format("{} rows of {} bytes on a page of {}", rows, l.row().value, l.page_size.value); });
  require(Property::layout, !l.component_major || shape.component_major,
          [] { return std::string("embedding pages for a sequence that wants none"); });
  if (!l.component_major) return;
  std::uint32_t next = 0;
  for (std::uint32_t w = 0; w < 3 * KvLayout::kWindowsPerStage; ++w) {
    const KvWindow window = l.window(w);
    require(Property::layout,
            window.first == next && window.tokens % l.group_tokens == 0 &&
                (l.format.quantised() ? l.embedding_bytes(window) <= l.page_size
                                      : l.embedding_bytes(window) == l.page_size) &&
                l.head_dim % window.group == 0,
            [&] {
              return fmt::format("window {} of {} components holds tokens [{}, {})", w, window.group, window.first,
                                 window.end());
            });
    next = window.end();
  }
}

/// `settled`: no operation is in progress and no reader holds pages, so that the whole state is known.
void Run::check(bool settled) {
  planned_.clear();
  std::map<std::uint64_t, KvPageId> mapped;
  std::map<std::uint32_t, std::uint32_t> valid;
  ftl_->visit_pages([&](const KvPageId& page, PhysicalPageAddress ppa) {
    require(Property::bijection, case_.setup.geometry.contains(ppa),
            [&] { return name(page, ppa.value) + ", which does not exist"; });
    const auto [at, is_new] = mapped.emplace(ppa.value, page);
    require(Property::bijection, is_new,
            [&] { return fmt::format("{}, where {} is, too", name(page, ppa.value), to_string(at->second)); });
    require(Property::bijection, blocks_->valid(ppa),
            [&] { return name(page, ppa.value) + ", which holds nothing valid"; });
    ++valid[case_.setup.geometry.block_of(ppa).value];
  });
  require(Property::bijection, blocks_->valid_pages(Namespace::kv) == mapped.size() + ftl_->superseded_pages(), [&] {
    return fmt::format("{} pages are valid, {} are mapped and {} wait to be given back",
                       blocks_->valid_pages(Namespace::kv), mapped.size(), ftl_->superseded_pages());
  });
  if (ftl_->superseded_pages() == 0) {
    for (std::uint32_t b = 0; b < case_.setup.geometry.blocks(); ++b) {
      const std::uint32_t here = valid.contains(b) ? valid[b] : 0;
      require(Property::bijection, blocks_->valid_pages(BlockId{b}) == here, [&] {
        return fmt::format("block {} has {} valid pages, of which {} are mapped", b, blocks_->valid_pages(BlockId{b}),
                           here);
      });
    }
  }
  for (const auto& [id, s] : live_) {
    check_tables(id, s);
    for (std::uint32_t layer = 0; layer < s.shape.layers; ++layer) {
      for (std::uint32_t head = 0; head < s.shape.kv_heads; ++head) {
        check_head(s, {id, LayerId{layer}, KvHead{head}}, settled);
      }
    }
  }
  require(Property::dram, dram_->peak() <= dram_->capacity(),
          [&] { return fmt::format("{} bytes of {} were taken", dram_->peak().value, dram_->capacity().value); });
  require(Property::data, store_.integrity_errors() == 0,
          [&] { return "a read met another page: " + to_string(store_.kept_integrity_errors().front()); });
  if (!settled) return;
  for (const auto& [ppa, page] : mapped) {
    require(Property::planning, planned_.contains(ppa),
            [&] { return name(page, ppa) + ": no attend of any sequence reads it"; });
  }
  check_dram();
}

void Run::check_head(const SequenceOracle& s, const HeadKey& key, bool settled) {
  static const HeadOracle none;
  const auto at = s.heads.find({key.layer.value, key.head.value});
  const HeadOracle& h = at == s.heads.end() ? none : at->second;
  const std::uint32_t tokens = s.tokens(key.layer.value, key.head.value);
  const std::string where = to_string(KvPageId{key});
  require(Property::data, ftl_->tokens(key) == tokens,
          [&] { return fmt::format("{} has {} tokens after {} were appended", where, ftl_->tokens(key), tokens); });
  require(Property::layout, ftl_->flushed_tokens(key) % ftl_->layout(key.sequence).group_tokens == 0,
          [&] { return fmt::format("{}: {} tokens in pages", where, ftl_->flushed_tokens(key)); });
  if (tokens == 0) return;
  check_token_pages(s, key, h, settled);
  check_embedding_pages(s, key, h, settled);
  const auto mean = ftl_->value_mean(key);
  require(Property::data,
          mean.size() == h.mean.size() && std::memcmp(mean.data(), h.mean.data(), mean.size_bytes()) == 0,
          [&] { return where + ": the mean of V is another"; });
}

void Run::check_planned(const PageOp& op, std::uint32_t root, const KvPageId& page) {
  const std::uint64_t ppa = op.ppa.value;
  require(Property::planning, op.kind == PageOpKind::read && op.op_class == OpClass::attend,
          [&] { return name(page, ppa) + ": planned as something else than a read for attention"; });
  require(Property::flash, case_.setup.geometry.contains(op.ppa) && programmed_[ppa],
          [&] { return name(page, ppa) + ": planned before it was programmed"; });
  require(Property::bijection, blocks_->valid(op.ppa), [&] { return name(page, ppa) + ": holds nothing valid"; });
  // Sequences that descend from one another share pages, at the same places.
  KvPageId place = page;
  place.key.sequence = {};
  const auto [at, is_new] = planned_.emplace(ppa, std::pair{root, place});
  require(Property::bijection, is_new || at->second == std::pair(root, place),
          [&] { return fmt::format("{}, where {} is, too", name(page, ppa), to_string(at->second.second)); });
}

void Run::check_lookups(SequenceId id, const ReadPlan& plan) {
  require(Property::planning, (plan.lookups > 0) == !plan.empty(), [&] {
    return fmt::format("sequence {}: a plan of {} pages costs {} lookups", id.value, plan.size(), plan.lookups);
  });
}

void Run::check_token_pages(const SequenceOracle& s, const HeadKey& key, const HeadOracle& h, bool settled) {
  const KvLayout& l = ftl_->layout(key.sequence);
  const std::uint32_t d = l.head_dim;
  const auto tokens = static_cast<std::uint32_t>(h.keys.size() / d);
  const std::uint32_t written = ftl_->flushed_tokens(key) / l.group_tokens;
  for (std::uint32_t group = 0; std::uint64_t{group} * l.group_tokens < tokens; ++group) {
    for (const KvKind kind : {KvKind::key, KvKind::value}) {
      const KvPageId page{tile_key(key, l), token_kind(kind, l), group, 0};
      const std::vector<Half>& rows = kind == KvKind::key ? h.keys : h.values;
      const std::size_t from = std::size_t{group} * l.group_tokens * d;
      const std::size_t count = std::min<std::size_t>(std::size_t{l.group_tokens} * d, rows.size() - from);
      const Half* const found = ftl_->token_rows(key, kind, group);
      require(Property::data, std::memcmp(found, &rows[from], count * sizeof(Half)) == 0,
              [&] { return to_string(page) + ": other bytes than were appended"; });
      ReadPlan plan;
      ftl_->plan_token_groups(key, kind == KvKind::key ? KvRows::keys : KvRows::values, std::span(&group, 1), {}, plan);
      check_lookups(key.sequence, plan);
      const std::vector<PageOp>& ops = plan.ops;
      require(Property::planning, ops.size() <= 1 && (!settled || ops.size() == (group < written ? 1 : 0)),
              [&] { return fmt::format("{}: {} page reads", to_string(page), ops.size()); });
      if (ops.empty()) continue;
      check_planned(ops[0], s.root, page);
      const std::size_t of_pair = l.paired && kind == KvKind::value ? l.page_heads : 0;
      const std::size_t row = (of_pair + key.head.value % l.page_heads) * l.group_tokens;
      require(Property::layout,
              reinterpret_cast<const std::byte*>(found) == store_.read(ops[0].ppa).data() + row * d * sizeof(Half),
              [&] { return name(page, ops[0].ppa.value) + ": its rows do not start where the layout says"; });
    }
  }
}

void Run::check_embedding_pages(const SequenceOracle& s, const HeadKey& key, const HeadOracle& h, bool settled) {
  const KvLayout& l = ftl_->layout(key.sequence);
  const std::uint32_t transposed = ftl_->transposed_tokens(key);
  const std::uint32_t windows = ftl_->transposed_windows(key);
  const std::uint32_t there =
      case_.setup.config.tail == TailPolicy::dram ? ftl_->tokens(key) : ftl_->flushed_tokens(key);
  require(Property::layout, transposed <= there && transposed % l.group_tokens == 0,
          [&] { return fmt::format("{}: {} tokens in embedding pages", to_string(KvPageId{key}), transposed); });
  if (settled) {
    require(Property::data, transposed >= l.windowed(there), [&] {
      return fmt::format("{}: {} tokens in embedding pages, full windows hold {}", to_string(KvPageId{key}), transposed,
                         l.windowed(there));
    });
  }
  if (windows == 0) return;
  std::vector<std::uint32_t> all(l.head_dim / l.finest_group());
  for (std::uint32_t i = 0; i < all.size(); ++i) all[i] = i;
  ReadPlan plan;
  ftl_->plan_embedding_groups(key, all, {}, plan);
  check_lookups(key.sequence, plan);
  const std::vector<PageOp>& ops = plan.ops;
  std::size_t next = 0;
  for (std::uint32_t w = 0; w < windows; ++w) {
    const KvWindow window = l.window(w);
    const std::uint32_t end = std::min(window.end(), transposed);
    for (std::uint32_t ge = 0; ge < l.embedding_pages(window); ++ge) {
      const KvPageId page{key, PageKind::embedding, ge, w};
      const Half* const found = ftl_->embedding_page(key, ge, w);
      const auto at = std::find_if(ops.begin() + static_cast<std::ptrdiff_t>(next), ops.end(), [&](const PageOp& op) {
        return reinterpret_cast<const std::byte*>(found) == store_.read(op.ppa).data();
      });
      if (at != ops.end()) {
        check_planned(*at, s.root, page);
        next = static_cast<std::size_t>(at - ops.begin()) + 1;
      }
      require(Property::planning, at != ops.end() || !settled, [&] { return to_string(page) + ": no page read"; });
      std::optional<std::pair<std::uint32_t, std::uint32_t>> wrong;  // component, token
      for (std::uint32_t i = 0; i < window.group && !wrong; ++i) {
        const std::uint32_t component = ge * window.group + i;
        for (std::uint32_t t = window.first; t < end && !wrong; ++t) {
          const Half expected = h.keys[std::size_t{t} * l.head_dim + component];
          if (found[i * window.tokens + (t - window.first)] != expected) wrong = {component, t};
        }
      }
      require(Property::data, !wrong, [&] {
        return fmt::format("{}: component {} of token {} is another", to_string(page), wrong->first, wrong->second);
      });
    }
  }
  require(Property::planning, next == ops.size(), [&] {
    return fmt::format("{}: {} of {} page reads are of no embedding page", to_string(KvPageId{key}), ops.size() - next,
                       ops.size());
  });
}

void Run::check_tables(SequenceId id, const SequenceOracle& s) {
  const KvMappingPolicy& policy = ftl_->policy();
  const KvLayout& l = ftl_->layout(id);
  const KvSequenceInfo info{id, s.shape, l};
  require(Property::planning, policy.lookups(info, 0) == 0, [&] {
    return fmt::format("sequence {}: finding no page costs {} lookups", id.value, policy.lookups(info, 0));
  });
  Bytes before;
  for (std::uint64_t pages = 1; pages <= 4096; pages = pages < 16 ? pages + 1 : pages * 2) {
    const Bytes table = policy.table_bytes(info, pages);
    require(Property::tables, table >= before && table.value <= 16 * pages, [&] {
      return fmt::format("sequence {}: a table of {} pages takes {} bytes, of fewer pages {}", id.value, pages,
                         table.value, before.value);
    });
    before = table;
  }
  for (std::uint32_t tokens = 0; tokens < 3 * l.group_tokens; ++tokens) {
    for (std::uint32_t written = 0; written <= tokens / l.group_tokens; ++written) {
      const std::uint32_t due = policy.groups_to_write(info, tokens, written);
      require(Property::interface, written + due <= tokens / l.group_tokens, [&] {
        return fmt::format("sequence {}: groups_to_write is {} with {} tokens, {} of {} groups written", id.value, due,
                           tokens, written, tokens / l.group_tokens);
      });
    }
  }
}

void Run::check_dram() {
  Bytes group_buffer, component_tail, mean;
  for (const auto& [id, s] : live_) {
    const KvLayout& l = ftl_->layout(id);
    for (std::uint32_t layer = 0; layer < s.shape.layers; ++layer) {
      for (std::uint32_t head = 0; head < s.shape.kv_heads; ++head) {
        const HeadKey key{id, LayerId{layer}, KvHead{head}};
        const std::uint32_t tokens = s.tokens(layer, head);
        group_buffer += l.row() * 2 * (tokens - ftl_->flushed_tokens(key));
        if (case_.setup.config.tail == TailPolicy::dram) component_tail += l.component_tail(tokens);
        if (tokens > 0) mean += Bytes{sizeof(float)} * l.head_dim;
      }
    }
  }
  const auto use = [&](DramUse which, Bytes expected) {
    require(Property::dram, dram_->used(which) == expected, [&] {
      return fmt::format("{} takes {} bytes of DRAM, it holds {}", kDramUseNames[static_cast<std::size_t>(which)],
                         dram_->used(which).value, expected.value);
    });
  };
  use(DramUse::group_buffer, group_buffer);
  use(DramUse::component_tail, component_tail);
  use(DramUse::value_mean, mean);
  use(DramUse::flush_pending, {});  // nothing is parked in a settled drive
  const std::uint64_t pages = blocks_->valid_pages(Namespace::kv);
  require(Property::tables, dram_->used(DramUse::map).value <= 16 * pages,
          [&] { return fmt::format("{} pages have tables of {} bytes", pages, dram_->used(DramUse::map).value); });
}

/// Refuses what a NAND array would: reading erased pages, programming a page twice.
void Run::flash(const PageOp& op) {
  const FlashGeometry& g = case_.setup.geometry;
  const auto bad = [&](bool good, std::string_view what) {
    require(Property::flash, good, [&] { return fmt::format("page {} {}", op.ppa.value, what); });
  };
  bad(g.contains(op.ppa), "does not exist");
  switch (op.kind) {
    case PageOpKind::read:
      bad(programmed_[op.ppa.value], "is read while erased");
      break;
    case PageOpKind::program:
      bad(!programmed_[op.ppa.value], "is programmed twice");
      programmed_[op.ppa.value] = true;
      break;
    case PageOpKind::erase:
      bad(g.page_in_block(op.ppa) == 0, "is not the first page of the block to erase");
      for (std::uint32_t i = 0; i < g.pages_per_block; ++i) programmed_[op.ppa.value + i] = false;
      break;
  }
}

/// Checks that nothing is left after everything was freed.
void Run::check_end() {
  require(Property::dram, dram_->used() == Bytes{},
          [&] { return fmt::format("{} bytes of DRAM are still taken at the end", dram_->used().value); });
  for (std::uint32_t b = 0; b < case_.setup.geometry.blocks(); ++b) {
    const BlockState state = blocks_->state(BlockId{b});
    const bool failed = state == BlockState::bad;
    require(
        Property::space,
        failed || ((state == BlockState::free || state == BlockState::open) && blocks_->valid_pages(BlockId{b}) == 0),
        [&] {
          return fmt::format("block {} (pages {} to {}) has {} valid pages at the end, or was not erased", b,
                             blocks_->first_page(BlockId{b}).value,
                             blocks_->first_page(BlockId{b}).value + case_.setup.geometry.pages_per_block - 1,
                             blocks_->valid_pages(BlockId{b}));
        });
  }
  require(Property::space,
          blocks_->valid_pages(Namespace::kv) == 0 && ftl_->superseded_pages() == 0 && ftl_->draining_blocks() == 0,
          [&] { return fmt::format("{} pages are valid at the end", blocks_->valid_pages(Namespace::kv)); });
  // A few pages may well lie apart; many of them waste a block each.
  constexpr std::uint64_t kFewPages = 32;
  const std::uint64_t few = std::max<std::uint64_t>(kFewPages, 4 * std::uint64_t{case_.setup.geometry.planes()});
  require(Property::space, append_use_.pages < few || append_use_.together > 0, [&] {
    return fmt::format(
        "{} pages went through {} append points, and no block has two pages of a point: each page opens "
        "a block",
        append_use_.pages, append_use_.blocks.size());
  });
  require(Property::progress, ftl_->pending_flushes() == 0,
          [&] { return fmt::format("{} flushes are pending at the end", ftl_->pending_flushes()); });
}

}  // namespace csdsim::ftl::conformance
