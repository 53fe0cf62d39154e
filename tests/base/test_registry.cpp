#include <catch2/catch.hpp>

#include "base/registry.h"

namespace test_registry {

using namespace csdsim;

TEST_CASE("a registry gives what was put in, in order, and names what exists") {
  Registry<int> r("mapping policy");
  CHECK_THROWS_WITH(r.at("x"), "unknown mapping policy 'x'; exists: none");
  r.add("page", "A page map.", 1);
  r.add("instinfer", "Two maps.", 2);
  CHECK(r.at("instinfer") == 2);
  CHECK(r.names() == std::vector<std::string>{"page", "instinfer"});
  CHECK_THROWS_WITH(r.at("instinfr"),
                    "unknown mapping policy 'instinfr' (did you mean instinfer?); exists: page, instinfer");
  CHECK_THROWS_AS(r.at("nothing"), UserError);
  CHECK_THROWS_AS(r.add("page", "Again.", 3), UserError);
  CHECK_THROWS_AS(r.add("", "Nameless.", 3), InternalError);
}

}  // namespace test_registry
