// What the parts of DecoderData share: K and V of new tokens, and how messages name an operation.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/fp16.h"
#include "host_runtime/core/planner/operation.h"

namespace csdsim::host {

/// K and V of a mini-batch's new tokens for some heads, one behind the other: [row][heads][d] each.
using NewKv = std::vector<Half>;
inline std::span<const Half> keys(const NewKv& kv) { return std::span(kv).first(kv.size() / 2); }
inline std::span<const Half> values(const NewKv& kv) { return std::span(kv).last(kv.size() / 2); }

inline std::string user(const Operation& op) { return operation_name(op.kind, op.tag); }

}  // namespace csdsim::host
