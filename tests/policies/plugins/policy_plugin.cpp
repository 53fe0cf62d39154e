// A plugin that is as it should be, unless a setting asks for a fault; its name and what its constructor does come from
// the build.
#include <csignal>

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
    if (plane_ == 98) std::raise(SIGSEGV);
    for (volatile bool forever = plane_ == 99; forever;) {
    }
    if (page.group == 99) throw ftl::PolicyError("no place for " + to_string(page));
    return PlaneId{plane_};
  }

 private:
  std::uint32_t plane_ = 0;
};

}  // namespace

CSDSIM_MAPPING_POLICY(TestPolicy, PLUGIN_NAME, "All pages in one plane.")
