#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "base/config/dump.h"
#include "base/kinds.h"
#include "base/param.h"

namespace test_kinds {

using namespace csdsim;

namespace {

struct Shape {
  virtual ~Shape() = default;
  virtual std::unique_ptr<Shape> clone() const = 0;
  virtual void describe(ParamVisitor& v) = 0;
};
struct Circle final : Shape {
  static constexpr std::string_view kKind = "circle";
  static constexpr std::string_view kDoc = "Round.";
  std::uint32_t radius = 3;
  std::unique_ptr<Shape> clone() const override { return std::make_unique<Circle>(*this); }
  void describe(ParamVisitor& v) override { v.param("radius", radius, {1, 9}, "From the centre.", assumed("small")); }
};
struct Square final : Shape {
  static constexpr std::string_view kKind = "square";
  static constexpr std::string_view kDoc = "Four equal sides.";
  std::uint32_t side = 2;
  std::unique_ptr<Shape> clone() const override { return std::make_unique<Square>(*this); }
  void describe(ParamVisitor& v) override { v.param("side", side, {1, 9}, "Of four.", assumed("small")); }
};

struct Drawing {
  Chosen<Shape> shape;
  std::vector<std::string> tags;
};
void describe(ParamVisitor& v, Drawing& d) {
  v.choice("shape", d.shape, "What is drawn.", assumed("the simplest"));
  v.names("tags", d.tags, {"red", "blue"}, {0, 2}, "Its colours.", assumed("none"));
}

std::shared_ptr<const Kinds<Shape>> shapes() {
  auto kinds = std::make_shared<Kinds<Shape>>("shape");
  kinds->add<Circle>();
  kinds->add<Square>();
  return kinds;
}

}  // namespace

TEST_CASE("an open choice starts with its first kind, copies deeply and knows its kinds") {
  Chosen<Shape> chosen(shapes());
  CHECK(chosen.kind() == "circle");
  dynamic_cast<Circle&>(*chosen).radius = 7;
  const Chosen<Shape> copy = chosen;
  dynamic_cast<Circle&>(*chosen).radius = 1;
  CHECK(dynamic_cast<const Circle&>(*copy).radius == 7);
  chosen.select("square");
  CHECK(chosen.kind() == "square");
  CHECK(chosen.index() == 1);
  CHECK_THROWS_WITH(chosen.select("sqare"), Catch::Contains("(did you mean square?)"));
  CHECK(chosen.kind() == "square");

  // An assignment copies deeply, too, and choosing a kind gives its defaults.
  Chosen<Shape> assigned(shapes());
  dynamic_cast<Square&>(*chosen).side = 5;
  assigned = chosen;
  chosen.select("square");
  CHECK(dynamic_cast<Square&>(*chosen).side == 2);
  CHECK(assigned.kind() == "square");
  CHECK(dynamic_cast<Square&>(*assigned).side == 5);

  CHECK_THROWS_AS(Chosen<Shape>(std::make_shared<Kinds<Shape>>("shape")), InternalError);
  Kinds<Shape> twice("shape");
  twice.add<Circle>();
  CHECK_THROWS_WITH(twice.add<Circle>(), "shape 'circle' is registered twice");
}

TEST_CASE("visitors treat an open choice like a variant") {
  const auto table = config::ParamTable::of(Drawing{Chosen<Shape>(shapes()), {}});
  REQUIRE(table.sections.size() == 1);
  CHECK(table.sections[0].kinds == std::vector<std::string>{"circle", "square"});
  CHECK(table.sections[0].kind_docs[1] == "Four equal sides.");
  REQUIRE(table.rows.size() == 4);  // kind, radius, side, tags
  CHECK(table.rows[2].name == "side");
  CHECK(table.rows[2].kinds == std::vector<std::string>{"square"});
  CHECK(table.rows[3].type == "list of one of red, blue");

  Drawing drawing{Chosen<Shape>(shapes()), {"blue"}};
  drawing.shape.select(1);
  CHECK(config::JsonDump::of(drawing).dump() == R"({"shape":{"kind":"square","side":2},"tags":["blue"]})");
}

}  // namespace test_kinds
