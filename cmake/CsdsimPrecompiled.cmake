# Precompiled headers: most of the build time is the compiler reading the standard library, fmt, SystemC, JSON and
# Catch2 again for each file. One set for each kind of target; what a target includes itself stays as it is, so that
# every header still compiles alone (target header_check).
option(CSDSIM_PRECOMPILED_HEADERS "Precompile the headers of other libraries" ON)

set(csdsim_pch_core <algorithm> <array> <cstdint> <functional> <map> <memory> <optional> <span> <string> <string_view>
                    <tuple> <utility> <variant> <vector> <fmt/format.h>)
set(csdsim_pch_sysc ${csdsim_pch_core} <systemc> <tlm> <tlm_utils/simple_initiator_socket.h>
                    <tlm_utils/simple_target_socket.h> <nlohmann/json.hpp>)

# csdsim_pch_carrier(<name> PIC <ON|OFF> HEADERS ... DEPS ...): compiles a set that other targets use.
function(csdsim_pch_carrier name)
  cmake_parse_arguments(ARG "" "PIC" "HEADERS;DEPS" ${ARGN})
  set(unit ${PROJECT_BINARY_DIR}/precompiled/${name}.cpp)
  if(NOT EXISTS ${unit})
    file(WRITE ${unit} "\n")
  endif()
  add_library(${name} OBJECT ${unit})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} csdsim_warnings)
  target_compile_features(${name} PRIVATE cxx_std_20)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ${ARG_PIC})
  if(ARG_PIC)
    target_compile_options(${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fno-semantic-interposition>)
  endif()
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
endfunction()

# csdsim_precompile(<target> <carrier>): the target uses the carrier's set.
function(csdsim_precompile target carrier)
  if(CSDSIM_PRECOMPILED_HEADERS)
    target_precompile_headers(${target} REUSE_FROM ${carrier})
  endif()
endfunction()

if(CSDSIM_PRECOMPILED_HEADERS)
  csdsim_pch_carrier(csdsim_pch_core PIC ON HEADERS ${csdsim_pch_core} DEPS fmt::fmt)
  csdsim_pch_carrier(csdsim_pch_sysc PIC ON HEADERS ${csdsim_pch_sysc} DEPS fmt::fmt systemc::systemc nlohmann_json::nlohmann_json)
endif()
