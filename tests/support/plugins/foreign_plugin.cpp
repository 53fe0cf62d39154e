// A plugin of a csdsim to come: what follows the first three members may be anything.
namespace {
struct Later {
  unsigned interface = 4711;
  const char* version = "99.1.0";
  const char* abi = "";
};
}  // namespace

extern "C" const Later* PLUGIN_ENTRY() {
  static const Later plugin;
  return &plugin;
}
