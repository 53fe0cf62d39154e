// Fills a described struct from a tree of values and collects all errors.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/config/diagnostics.h"
#include "base/config/node.h"
#include "base/param.h"

namespace csdsim::config {

/// Origin of every parameter, by its path; ordered by path.
using Origins = std::map<std::string, Origin, std::less<>>;

/// Provides the values of presets by name.
class PresetSource {
 public:
  virtual ~PresetSource() = default;
  /// Values of a preset, or nullptr. `kind` is the argument of ParamVisitor::preset.
  virtual const Node* find(std::string_view kind, std::string_view name) const = 0;
  virtual std::vector<std::string> names(std::string_view kind) const = 0;
};

/// Reads values in the order of describe(). A key of the tree that describe() does not read is reported as unknown.
/// When a stronger layer changes the `kind` of a map (a --set over a file), keys of the old kind from weaker layers
/// are dropped with a note.
class Reader final : public ParamVisitor {
 public:
  /// A remark about a key that does not exist, " (did you mean ...?)", from its path; empty if there is none.
  using Hint = std::function<std::string(std::string_view path)>;

  /// `hint`: asked where no key of the same map has a similar name.
  Reader(Node root, const PresetSource& presets, Diagnostics& diagnostics, Hint hint = {});

  /// Fills `value`; parameters that the tree does not contain keep their values.
  template <class S>
  void read(S& value) {
    describe(*this, value);
    leave_map();
  }

  const Origins& origins() const { return origins_; }
  /// Call it last.
  Origins take_origins() { return std::move(origins_); }
  /// Paths whose value could not be read; these parameters keep their defaults.
  const std::set<std::string, std::less<>>& failed() const { return failed_; }
  /// The tree with presets merged in.
  const Node& root() const { return root_; }

 protected:
  void on_param(Param& param) override;
  void on_entries(std::string_view name, std::map<std::string, std::string>& value, std::string_view doc,
                  Cite cite) override;
  void on_preset(std::string_view kind, std::string& name) override;
  void on_shorthand(std::string_view key, std::string_view kind, std::string& name, std::string_view doc) override;
  void on_enter(std::string_view name, std::string_view doc) override;
  void on_leave() override { leave_map(); }
  bool on_optional_section(std::string_view name, std::string_view none, std::string_view doc, Cite cite,
                           bool present) override;
  std::vector<std::size_t> on_choice(const ChoiceInfo& info) override;

 private:
  struct Frame {
    Node* map;
    std::string path;  ///< with a trailing dot, "" at the top
    std::vector<std::string> known;
    std::vector<ChoiceInfo> choice;  ///< empty or the one of this map
    Origin kind_origin;
  };

  Frame& top() { return frames_.back(); }
  std::string path_of(std::string_view name) const { return frames_.back().path + std::string(name); }
  /// Reads the preset name under `key` into `name` and returns the values of the preset. Returns nullptr when the key
  /// is absent or, after an error, when the preset does not exist.
  const Node* named_preset(std::string_view key, std::string_view kind, std::string& name);
  /// Returns the scalar under a key; nullptr when the key is absent or, after an error, not a scalar.
  const Node* scalar_under(std::string_view name);
  void fail(const std::string& path, const Origin& origin, const std::string& message);
  /// Records "expected EXPECTED, found WHAT" at the value, or at the key when there is no value.
  void fail_shape(const std::string& path, const Entry& entry, std::string_view expected);
  void leave_map();
  void report_unknown(const Frame& frame, const Entry& entry);

  Node root_;
  const PresetSource& presets_;
  Diagnostics& diagnostics_;
  Hint hint_;
  Origins origins_;
  std::set<std::string, std::less<>> failed_;
  std::vector<Frame> frames_;
};

/// The note of a default: "assumed: why".
std::string cite_text(Cite cite);

}  // namespace csdsim::config
