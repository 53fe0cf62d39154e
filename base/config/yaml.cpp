#include "base/config/yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <vector>

#include "base/look_alikes.h"
#include "base/text.h"
#include "base/text_file.h"

namespace csdsim::config {
namespace {

/// Thrown to stop the parser, with a located message.
struct Refused {
  Origin origin;
  std::string message;
};

/// Builds the tree from parse events, because yaml-cpp's own tree silently drops duplicate keys.
class Builder final : public YAML::EventHandler {
 public:
  Builder(const Origin& base, Diagnostics& diagnostics) : base_(base), diagnostics_(diagnostics) {}

  Node root;
  bool has_root = false;

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Node node = make(Node::Kind::null, mark);
    remember(anchor, node);
    put(std::move(node));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    Node node = make(Node::Kind::scalar, mark);
    check_tag(node, tag);
    const bool quoted = tag == "!";
    if (!quoted && (value == "~" || value == "null")) {
      node.kind = Node::Kind::null;
    } else {
      node.scalar = value;
    }
    remember(anchor, node);
    put(std::move(node));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto it = anchors_.find(anchor);
    if (it == anchors_.end()) throw Refused{at(mark), "an alias stands inside its own anchor"};
    count(it->second.second, mark);
    put(it->second.first);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(Node::Kind::list, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(Node::Kind::map, mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    Node node;
    YAML::anchor_t anchor = 0;
    std::size_t nodes_before = 0;
    bool has_key = false;
    Node key;
    std::set<std::string> seen;
  };

  Origin at(const YAML::Mark& mark) const {
    Origin origin = base_;
    if (base_.layer != Layer::override && !mark.is_null()) {
      origin.line = mark.line + 1;
      origin.column = mark.column + 1;
    }
    return origin;
  }
  Node make(Node::Kind kind, const YAML::Mark& mark) {
    count(1, mark);
    Node node;
    node.kind = kind;
    node.origin = at(mark);
    return node;
  }
  void count(std::size_t nodes, const YAML::Mark& mark) {
    nodes_ += nodes;
    if (nodes_ > kMaxNodes) {
      throw Refused{at(mark), fmt::format("more than {} values{}", kMaxNodes,
                                          anchors_.empty() ? "" : " once aliases are expanded")};
    }
  }
  void check_tag(const Node& node, const std::string& tag) {
    if (tag != "?" && tag != "!" && !tag.empty()) {
      diagnostics_.error(node.origin, fmt::format("tags such as '{}' are not used here", printable(tag)));
    }
  }
  void remember(YAML::anchor_t anchor, const Node& node, std::size_t size = 1) {
    if (anchor) anchors_[anchor] = {node, size};
  }
  void open(Node::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (stack_.size() >= kMaxDepth) throw Refused{at(mark), fmt::format("nested deeper than {} levels", kMaxDepth)};
    const std::size_t before = nodes_;
    Node node = make(kind, mark);
    check_tag(node, tag);
    stack_.emplace_back();
    stack_.back().node = std::move(node);
    stack_.back().anchor = anchor;
    stack_.back().nodes_before = before;
  }
  void close() {
    Open done = std::move(stack_.back());
    stack_.pop_back();
    remember(done.anchor, done.node, nodes_ - done.nodes_before);
    put(std::move(done.node));
  }
  void put(Node node) {
    if (stack_.empty()) {
      root = std::move(node);
      has_root = true;
      return;
    }
    Open& top = stack_.back();
    if (top.node.kind == Node::Kind::list) {
      top.node.items.push_back(std::move(node));
    } else if (!top.has_key) {
      top.key = std::move(node);
      top.has_key = true;
    } else {
      add_entry(top, std::move(node));
    }
  }
  void add_entry(Open& top, Node value) {
    top.has_key = false;
    if (top.key.kind != Node::Kind::scalar || top.key.scalar.empty()) {
      diagnostics_.error(top.key.origin,
                         fmt::format("a key is a name, not {}",
                                     top.key.kind == Node::Kind::scalar ? "an empty text" : top.key.kind_name()));
      return;
    }
    if (!top.seen.insert(top.key.scalar).second) {
      const Origin& first = top.node.find(top.key.scalar)->origin;
      diagnostics_.error(top.key.origin,
                         fmt::format("duplicate key '{}', first given at {}", printable(top.key.scalar), first.text()));
      return;
    }
    top.node.entries.push_back({top.key.scalar, top.key.origin, std::move(value)});
  }

  Origin base_;
  Diagnostics& diagnostics_;
  std::vector<Open> stack_;
  std::map<YAML::anchor_t, std::pair<Node, std::size_t>> anchors_;
  std::size_t nodes_ = 0;
};

Node empty_map(const Origin& origin) {
  Node node;
  node.kind = Node::Kind::map;
  node.origin = origin;
  return node;
}

Origin with_position(Origin origin, int line, int column) {
  if (origin.layer != Layer::override) {
    origin.line = line;
    origin.column = column;
  }
  return origin;
}

Origin position_of(std::string_view text, std::size_t offset, const Origin& base) {
  const std::string_view before = text.substr(0, offset);
  const auto newline = before.rfind('\n');
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t column = 1 + offset - (newline == std::string_view::npos ? 0 : newline + 1);
  return with_position(base, static_cast<int>(line), static_cast<int>(column));
}

/// Records an error and returns true when the bytes cannot be YAML text at all.
bool refuse_bytes(std::string_view text, const Origin& base, Diagnostics& diagnostics) {
  if (text.size() > kMaxFileBytes) {
    diagnostics.error(with_position(base, 1, 1),
                      fmt::format("the file has {} bytes, more than the limit of {}", text.size(), kMaxFileBytes));
    return true;
  }
  if (const std::size_t bad = invalid_utf8(text); bad != std::string_view::npos) {
    diagnostics.error(position_of(text, bad, base), "the file is not UTF-8 text");
    return true;
  }
  const auto control = std::find_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\r' && c != '\t') || c == 0x7F;
  });
  if (control != text.end()) {
    const auto offset = static_cast<std::size_t>(control - text.begin());
    diagnostics.error(position_of(text, offset, base),
                      fmt::format("control character {} in the file", printable(text.substr(offset, 1))));
    return true;
  }
  return false;
}

/// The first character that indents a line and is no blank, a tab or one that looks like a blank, up to the line behind
/// that on which a parser has stopped. Lines of comments and empty ones do not count.
std::optional<std::size_t> foreign_indent(std::string_view text, int stopped) {
  std::size_t from = 0;
  for (int line = 0; line <= stopped + 1 && from < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', from), text.size());
    std::optional<std::size_t> foreign;
    std::size_t at = from;
    for (; at < end; at += code_point_at(text, at).length) {
      if (text[at] == ' ') continue;
      if (text[at] != '\t' && !invisible(code_point_at(text, at).code)) break;
      if (!foreign) foreign = at;
    }
    if (foreign && at < end && text[at] != '#' && text[at] != '\r') return foreign;
    from = end + 1;
  }
  return {};
}

/// What may be wrong with the lines on which a parser has stopped, beside what it says: characters that look like ones
/// with a meaning, a carriage return that ends no line. Empty if nothing of this kind is there.
std::string suspect_of(std::string_view text, int stopped) {
  if (const std::size_t lone = text.find('\r'); lone != text.npos && !text.substr(lone).starts_with("\r\n"))
    return "; a carriage return alone ends no line: save the file with LF or CRLF";
  std::size_t from = 0;
  for (int line = 0; line <= stopped && from < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', from), text.size());
    const std::string shown = printable(text.substr(from, end - from), 120);
    if (line + 1 >= stopped && shown.find("<U+") != std::string::npos)
      return fmt::format("; line {} is '{}'", line + 1, shown);
    from = end + 1;
  }
  return "";
}

/// Returns the first document; null when it cannot be read or does not exist.
Node parse_any(std::string_view text, const Origin& base, Diagnostics& diagnostics, bool& readable) {
  readable = false;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  if (refuse_bytes(text, base, diagnostics)) return {};
  Builder builder(base, diagnostics);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    parser.HandleNextDocument(builder);
    Diagnostics ignored;
    Builder second(base, ignored);
    if (builder.has_root && parser.HandleNextDocument(second)) {
      throw Refused{second.root.origin, "a second document starts here; a scenario is one document"};
    }
  } catch (const Refused& refused) {
    diagnostics.error(refused.origin, refused.message);
    return {};
  } catch (const YAML::DeepRecursion& e) {
    diagnostics.error(with_position(base, e.mark.line + 1, e.mark.column + 1),
                      fmt::format("nested deeper than {} levels", kMaxDepth));
    return {};
  } catch (const YAML::Exception& e) {
    const Origin at = with_position(base, std::max(e.mark.line, 0) + 1, std::max(e.mark.column, 0) + 1);
    if (const std::optional<std::size_t> indent = foreign_indent(text, std::max(e.mark.line, 0))) {
      const std::string what =
          text[*indent] == '\t' ? "a tab" : printable(text.substr(*indent, code_point_at(text, *indent).length));
      diagnostics.error(position_of(text, *indent, base),
                        fmt::format("{} indents this line; YAML indents with blanks only", what));
    } else {
      diagnostics.error(
          at, fmt::format("not YAML: {}{}", printable(e.msg, 120), suspect_of(text, std::max(e.mark.line, 0))));
    }
    return {};
  }
  readable = true;
  return std::move(builder.root);
}

/// Notes the keys of a map that stay when another map is merged into it. What a change of kind leaves out, the reader
/// says.
void note_kept_keys(const Node& there, const Node& value, const std::string& path, const Origin& origin,
                    Diagnostics& diagnostics) {
  if (value.find("kind") != nullptr) return;
  std::vector<std::string> kept;
  for (const Entry& entry : there.entries)
    if (value.find(entry.key) == nullptr) kept.push_back(entry.key);
  if (kept.empty()) return;
  diagnostics.note(origin, fmt::format("{} keeps {} of the file; --set '{}={{}}' before it takes {} away", path,
                                       join(kept), path, kept.size() == 1 ? "it" : "them"));
}

}  // namespace

Node parse_document(std::string_view text, const Origin& base, Diagnostics& diagnostics) {
  bool readable = false;
  Node root = parse_any(text, base, diagnostics, readable);
  const Origin start = with_position(base, 1, 1);
  if (!readable) return empty_map(start);
  if (root.kind == Node::Kind::null) {
    diagnostics.error(start, "the file is empty");
    return empty_map(start);
  }
  if (!root.is_map()) {
    diagnostics.error(root.origin,
                      fmt::format("the file holds {}, expected a map of keys and values", root.kind_name()));
    return empty_map(start);
  }
  return root;
}

void apply_set(Node& root, const std::string& assignment, Diagnostics& diagnostics) {
  Origin origin{Layer::override, "--set " + printable(assignment, 120), 0, 0, ""};
  const auto equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    diagnostics.error(origin, "expected PATH=VALUE, for example --set platform.device.count=2");
    return;
  }
  const std::string path = assignment.substr(0, equals);
  if (path.front() == '.' || path.back() == '.' || path.find("..") != std::string::npos ||
      static_cast<std::size_t>(std::count(path.begin(), path.end(), '.')) > kMaxDepth) {
    diagnostics.error(origin, fmt::format("'{}' is not a path such as platform.device.count", printable(path)));
    return;
  }
  bool readable = false;
  const Node value = parse_any(std::string_view(assignment).substr(equals + 1), origin, diagnostics, readable);
  if (!readable) return;
  if (value.kind == Node::Kind::null) {
    diagnostics.error(origin, fmt::format("{} has no value", printable(path)));
    return;
  }
  // Other maps are merged into what the file says; an empty one takes it away.
  const Node* const there = find_path(root, path);
  if (there && there->is_map() && value.is_map()) {
    if (value.entries.empty()) const_cast<Node*>(there)->entries.clear();
    note_kept_keys(*there, value, path, origin, diagnostics);
  }
  set_path(root, path, value);
}

std::string read_file(const std::filesystem::path& path) { return read_text_file(path, Bytes{kMaxFileBytes}); }

}  // namespace csdsim::config
