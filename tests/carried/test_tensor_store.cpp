#include <catch2/catch.hpp>

#include "base/error.h"
#include "host_runtime/core/carried/tensor_store.h"

namespace test_tensor_store {

using namespace csdsim;
using namespace csdsim::host;
using Catch::Matchers::Contains;

namespace {

const TensorName kName = TensorName::of(TensorClass::queries, {.phase = Phase::decode, .step = 4, .layer = LayerId{3}});

Operation up(Bytes bytes) {
  Operation op;
  op.kind = OpKind::transfer;
  op.resource = {ResourceKind::host_to_gpu, 0};
  op.work = LinkWork{bytes};
  op.tensors = {.reads = {kName}, .writes = {{kName, bytes}}, .drops = {{kName, Place::host()}}};
  return op;
}

}  // namespace

TEST_CASE("a transfer copies bytes; what is dropped is gone") {
  TensorStore store;
  store.put(kName, Place::host(), std::vector<Half>{1, 2, 3});
  const Operation op = up(Bytes{6});
  store.transfer(op);
  store.at<std::vector<Half>>(kName, Place::host(), "test")[0] = 9;
  CHECK(store.at<std::vector<Half>>(kName, Place::gpu(), "test") == std::vector<Half>{1, 2, 3});
  CHECK(store.size() == 2);
  store.drop(op);
  CHECK_FALSE(store.has(kName, Place::host()));
  CHECK(store.has(kName, Place::gpu()));
}

TEST_CASE("what is not there, or is something else, is named") {
  TensorStore store;
  CHECK_THROWS_WITH(store.at<int>(kName, Place::gpu(), "finish"),
                    Contains("finish reads queries of decode step 4, layer 3"));
  store.put(kName, Place::host(), std::vector<Half>{1});
  CHECK_THROWS_WITH(store.at<int>(kName, Place::gpu(), "finish"), Contains("at gpu, but it is at host"));
  CHECK_THROWS_WITH(store.at<int>(kName, Place::host(), "finish"), Contains("another format"));
  CHECK_THROWS_WITH(store.transfer(up(Bytes{4})), Contains("has 2 B, the plan says 4 B"));
}

}  // namespace test_tensor_store
