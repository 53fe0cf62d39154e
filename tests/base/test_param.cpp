#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "base/config/dump.h"
#include "base/config/yaml.h"

using namespace csdsim;
using namespace csdsim::config;

namespace demo {
enum class Colour : std::uint8_t { red, green };
struct Lamp {
  static constexpr std::string_view kKind = "lamp";
  static constexpr std::string_view kDoc = "Gives light.";
  bool on = false;
};
struct Fan {
  static constexpr std::string_view kKind = "fan";
  static constexpr std::string_view kDoc = "Moves air.";
  std::uint32_t speed = 3;
};
struct Extra {
  std::uint64_t depth = 1;
};
struct Config {
  SimTime delay = SimTime::nanoseconds(5);
  Ratio share = Ratio::of(1, 4);
  Colour colour = Colour::red;
  std::string label = "x";
  std::vector<Bandwidth> rates{Bandwidth{1000}};
  std::optional<std::uint32_t> limit;
  std::vector<std::uint32_t> depths;
  std::optional<Extra> extra;
  std::variant<Lamp, Fan> device;
  std::map<std::string, std::string> notes;
};
void describe(ParamVisitor& v, Lamp& c) { v.param("on", c.on, "Whether it is lit.", assumed("why")); }
void describe(ParamVisitor& v, Fan& c) { v.param("speed", c.speed, {1, 5}, "Its step.", assumed("why")); }
void describe(ParamVisitor& v, Extra& c) { v.param("depth", c.depth, {1, 9}, "How deep.", assumed("why")); }
void describe(ParamVisitor& v, Config& c) {
  v.param("delay", c.delay, {SimTime{}, SimTime::microseconds(1)}, "Wait.", paper("P 1"));
  v.param("share", c.share, {Ratio{0, 1}, Ratio{1, 1}}, "Part.", assumed("why"));
  v.param("colour", c.colour, "Paint.", assumed("why"));
  v.param("label", c.label, "Text.", assumed("why"));
  v.list("rates", c.rates, {1, 3}, "Speeds.", assumed("why"));
  v.optional("limit", c.limit, "none", {1, 10}, "Most.", assumed("why"));
  v.single_or_list("depths", c.depths, "auto", {1, 10}, 3, "Of all, or of each.", assumed("why"));
  v.optional_section("extra", c.extra, "off", "More.", assumed("why"));
  v.choice("device", c.device, "What.", assumed("why"));
  v.entries("notes", c.notes, "Anything.", assumed("why"));
}
}  // namespace demo

template <>
struct csdsim::EnumValues<demo::Colour> {
  static constexpr EnumValue<demo::Colour> values[] = {{demo::Colour::red, "red", "Red."},
                                                       {demo::Colour::green, "green", "Green."}};
};

namespace {
struct NoPresets : PresetSource {
  const Node* find(std::string_view, std::string_view) const override { return nullptr; }
  std::vector<std::string> names(std::string_view) const override { return {}; }
};

std::vector<std::string> read(std::string_view text, demo::Config& config) {
  Diagnostics d;
  const NoPresets presets;
  Reader reader(parse_document(text, {Layer::file, "f", 0, 0, ""}, d), presets, d);
  reader.read(config);
  return d.errors();
}
}  // namespace

TEST_CASE("every type of parameter is read") {
  demo::Config c;
  CHECK(
      read("delay: 7 ns\nshare: 1/3\ncolour: green\nlabel: a b\nrates: [1 MB/s, 2 kB/s]\nlimit: 4\nextra: {depth: 2}\n"
           "device: {kind: fan, speed: 5}\nnotes: {b: 1/3, a: x y}\n",
           c)
          .empty());
  CHECK(c.delay == SimTime::nanoseconds(7));
  CHECK(c.share == Ratio::of(1, 3));
  CHECK(c.colour == demo::Colour::green);
  CHECK(c.label == "a b");
  CHECK(c.rates == std::vector<Bandwidth>{{1'000'000}, {2'000}});
  CHECK(c.limit == 4u);
  CHECK(c.extra->depth == 2);
  CHECK(std::get<demo::Fan>(c.device).speed == 5);
  CHECK(c.notes == std::map<std::string, std::string>{{"a", "x y"}, {"b", "1/3"}});
  const std::string dump = JsonDump::of(c).dump();
  CHECK(
      dump ==
      R"({"delay":"7 ns","share":"1/3","colour":"green","label":"a b","rates":["1 MB/s","2 kB/s"],"limit":4,"depths":"auto",)"
      R"("extra":{"depth":2},"device":{"kind":"fan","speed":5},"notes":{"a":"x y","b":"1/3"}})");
  demo::Config again;
  CHECK(read(dump, again).empty());
  CHECK(JsonDump::of(again).dump() == dump);
}

TEST_CASE("what is not mentioned keeps its default, and words stand for nothing") {
  demo::Config c;
  c.extra.emplace();
  CHECK(read("limit: none\nextra: off\n", c).empty());
  CHECK_FALSE(c.limit);
  CHECK_FALSE(c.extra);
  CHECK(c.delay == SimTime::nanoseconds(5));
  demo::Config plain;
  CHECK(JsonDump::of(plain).dump() == JsonDump::of(c).dump());
}

TEST_CASE("a parameter takes one value, a list, or a word") {
  const auto taken = [](const std::string& text) {
    demo::Config c;
    c.depths = {7, 8};
    CHECK(read("depths: " + text + "\n", c).empty());
    CHECK(JsonDump::of(c).dump().find("\"depths\":" + (text == "auto" ? "\"auto\"" : text)) != std::string::npos);
    return c.depths;
  };
  CHECK(taken("4") == std::vector<std::uint32_t>{4});
  CHECK(taken("[4,1,9]") == std::vector<std::uint32_t>{4, 1, 9});
  CHECK(taken("auto").empty());
  demo::Config c;
  CHECK(read("depths: [1, 2, 3, 4]\n", c) ==
        std::vector<std::string>{"f:1:9: error: depths: has 4 items, expected 1 to 3"});
  CHECK(read("depths: []\n", c) == std::vector<std::string>{"f:1:9: error: depths: has 0 items, expected 1 to 3"});
  CHECK(read("depths: [1, 11]\n", c) == std::vector<std::string>{"f:1:9: error: depths: 11 is out of range: 1 to 10"});
  CHECK(read("depths: {a: 1}\n", c).size() == 1);
}

TEST_CASE("all mistakes of all types are found at once") {
  demo::Config c;
  const auto errors = read(
      "delay: 2 us\nshare: 1.5\ncolour: blue\nlabel: ''\nrates: []\nlimit: 11\nextra: {deep: 2}\ndevice: {kind: fan, "
      "on: "
      "true, speed: 0}\nnotes: {a: [1], b: 2}\n",
      c);
  CHECK(read("notes: 3\n", c) ==
        std::vector<std::string>{"f:1:8: error: notes: expected a map {...}, found a single value"});
  CHECK(errors == std::vector<std::string>{
                      "f:1:8: error: delay: 2 us is out of range: 0 ps to 1 us",
                      "f:2:8: error: share: 1.5 is out of range: 0 to 1, a share (did you mean 1.5 %?)",
                      "f:3:9: error: colour: unknown value 'blue'; exists: red, green",
                      "f:4:8: error: label: is an empty text",
                      "f:5:8: error: rates: has 0 items, expected 1 to 3",
                      "f:6:8: error: limit: 11 is out of range: 1 to 10",
                      "f:7:9: error: unknown key 'deep' in extra; exists: depth",
                      "f:8:21: error: 'on' in device belongs to kind lamp, not to fan",
                      "f:8:38: error: device.speed: 0 is out of range: 1 to 5",
                      "f:9:12: error: notes.a: expected a single value, found a list",
                  });
}

TEST_CASE("a table has every parameter of every kind") {
  const auto table = ParamTable::of<demo::Config>();
  std::vector<std::string> paths;
  for (const auto& row : table.rows) paths.push_back(row.path);
  CHECK(paths == std::vector<std::string>{"delay", "share", "colour", "label", "rates", "limit", "depths", "extra",
                                          "extra.depth", "device.kind", "device.on", "device.speed", "notes"});
  CHECK(table.rows[0].range == "0 ps to 1 us");
  CHECK(table.rows[0].value == "5 ns");
  CHECK(table.rows[0].cite.where == "P 1");
  CHECK(table.rows[11].kinds == std::vector<std::string>{"fan"});
  CHECK(table.rows[2].type == "one of red, green");
  CHECK(table.rows[6].type == "count, list of count, or auto");
}
