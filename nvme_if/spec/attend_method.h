// The methods of attention as kv_attend commands name them.
#pragma once

#include "contracts/method.h"
#include "nvme_if/spec/kv_command.h"

namespace csdsim::nvme {

constexpr AttendMethod attend_method(Method method, bool partial) {
  if (method == Method::sparf) return partial ? AttendMethod::sparf_partial : AttendMethod::sparf;
  return partial ? AttendMethod::dense_partial : AttendMethod::dense;
}

constexpr Method method_of(AttendMethod method) { return runs_sparf(method) ? Method::sparf : Method::dense; }

}  // namespace csdsim::nvme
