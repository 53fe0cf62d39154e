// A plugin that is as it should be, unless a setting asks for a fault; its name and what its constructor does come from
// the build.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "ftl/plugin/mapping_plugin.h"

namespace {

using namespace csdsim;

class TestPolicy final : public ftl::KvPlanePolicy {
 public:
  explicit TestPolicy(const ftl::PolicyContext& context) {
    ftl::SettingsReader settings(PLUGIN_NAME, context);
    plane_ = settings.value("plane", std::uint32_t{3}, {0, 100});
    settings.finish();
    if (plane_ == 13) throw std::runtime_error("plane 13 is unlucky");
  }
  std::string_view name() const override { return PLUGIN_CALLS_ITSELF; }
  PlaneId plane(const ftl::KvPageId& page, const ftl::KvSequenceInfo&) override {
    if (plane_ == 94) std::this_thread::sleep_for(std::chrono::hours(24));
    if (plane_ == 96) std::exit(0);
    if (plane_ == 97) throw 42;  // NOLINT: a policy may throw anything
    if (plane_ == 98) std::raise(SIGSEGV);
    for (volatile bool forever = plane_ == 99; forever;) {
    }
    if (plane_ == 93) return PlaneId{0};
    if (page.group == 99) throw ftl::PolicyError("no place for " + to_string(page));
    return PlaneId{plane_};
  }
  /// With plane 93, no group is ever written.
  std::uint32_t groups_to_write(const ftl::KvSequenceInfo& sequence, std::uint32_t tokens,
                                std::uint32_t written_groups) const override {
    return plane_ == 93 ? 0 : KvPlanePolicy::groups_to_write(sequence, tokens, written_groups);
  }
  /// With plane 95, an append point for every page.
  PhysicalPageAddress place(const ftl::KvPageId& page, const ftl::KvSequenceInfo& sequence,
                            ftl::PageAllocator& pages) override {
    if (plane_ != 95) return KvPlanePolicy::place(page, sequence, pages);
    next_point_ = ftl::AppendPoint{next_point_.value + 1};
    return pages.take(PlaneId{next_point_.value % pages.geometry().planes()}, next_point_);
  }

 private:
  ftl::AppendPoint next_point_ = ftl::kFirstOwnPoint;
  std::uint32_t plane_ = 0;
};

}  // namespace

CSDSIM_MAPPING_POLICY(TestPolicy, PLUGIN_NAME, "All pages in one plane.")
