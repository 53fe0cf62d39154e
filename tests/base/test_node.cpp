#include <catch2/catch.hpp>

#include "base/config/yaml.h"

namespace test_node {

using namespace csdsim::config;

namespace {
Node parse(std::string_view text, Layer layer = Layer::file) {
  Diagnostics d;
  Node n = parse_document(text, {layer, "f", 0, 0, ""}, d);
  d.throw_if_any();
  return n;
}
}  // namespace

TEST_CASE("places count from 1 and are those of keys and values") {
  const Node n = parse("a: 1\nb:\n  c: [x, 'y z']\n  d: {e: f}\n");
  CHECK(n.find("a")->origin.text() == "f:1:1");
  CHECK(n.find("a")->value.origin.text() == "f:1:4");
  const Node& c = n.find("b")->value.find("c")->value;
  CHECK(c.origin.text() == "f:3:6");
  CHECK(c.items[1].origin.text() == "f:3:10");
  CHECK(c.items[1].scalar == "y z");
  CHECK(find_path(n, "b.d.e")->scalar == "f");
  CHECK(find_path(n, "b.d.x") == nullptr);
}

TEST_CASE("null in its spellings is no value, quoted it is text") {
  const Node n = parse("a:\nb: ~\nc: null\nd: 'null'\n");
  CHECK(n.find("a")->value.kind == Node::Kind::null);
  CHECK(n.find("b")->value.kind == Node::Kind::null);
  CHECK(n.find("c")->value.kind == Node::Kind::null);
  CHECK(n.find("d")->value.scalar == "null");
}

TEST_CASE("aliases are copies, within bounds") {
  const Node n = parse("a: &x {b: 1}\nc: *x\n");
  CHECK(find_path(n, "c.b")->scalar == "1");
}

TEST_CASE("maps merge key by key, everything else is replaced") {
  Node lower = parse("a: {b: 1, c: [1, 2]}\nd: 4\n");
  merge(lower, parse("a: {c: [3], e: 5}\nd: {f: 6}\n"));
  CHECK(find_path(lower, "a.b")->scalar == "1");
  CHECK(find_path(lower, "a.c")->items.size() == 1);
  CHECK(find_path(lower, "a.e")->scalar == "5");
  CHECK(find_path(lower, "d.f")->scalar == "6");
}

TEST_CASE("a map that is set says which keys of the file it keeps") {
  Node root = parse("model: {preset: opt-13b, layers: 2, path: x}\n");
  Diagnostics d;
  apply_set(root, "model={path: y}", d);
  CHECK(d.notes() == std::vector<std::string>{"--set model={path: y}: note: model keeps preset, layers of the file; "
                                              "--set 'model={}' before it takes them away"});
  Diagnostics none;
  apply_set(root, "model={preset: a, layers: 1, path: z}", none);
  apply_set(root, "model={}", none);
  apply_set(root, "model={path: y}", none);
  CHECK(none.notes().empty());
  CHECK(find_path(root, "model")->entries.size() == 1);
  // The reader says itself what a change of kind leaves out.
  Diagnostics kinds;
  Node of_kind = parse("system: {kind: a, ratio: 1/4}\n");
  apply_set(of_kind, "system={kind: b}", kinds);
  CHECK(kinds.notes().empty());
}

TEST_CASE("settings make their way, and axes are named by whole paths") {
  Node root = parse("simulation: {sampling: off}\n");
  Diagnostics d;
  apply_set(root, "simulation.sampling.layers=2", d);
  apply_set(root, "sweep.axes.platform.device.count=[1, 2]", d);
  apply_set(root, "a.b.c={d: 1}", d);
  apply_set(root, "a.b.c.e=2", d);
  CHECK(d.ok());
  CHECK(find_path(root, "simulation.sampling.layers")->scalar == "2");
  CHECK(find_path(root, "sweep.axes")->find("platform.device.count")->value.items.size() == 2);
  CHECK(find_path(root, "a.b.c")->entries.size() == 2);
  CHECK(find_path(root, "a.b.c.d")->origin.text() == "--set a.b.c={d: 1}");
}

}  // namespace test_node
