# csdsim_library(<name> SOURCES ... [DEPS ...] [INCLUDE dir])
# One static library, warnings as errors, its public headers under INCLUDE (default: the source tree's root, so that a
# file is included by its path: "ftl/core/kv_ftl.h").
add_library(csdsim_warnings INTERFACE)
target_compile_options(csdsim_warnings INTERFACE -Wall -Wextra -Wconversion -Wshadow -Wno-sign-conversion)
if(CSDSIM_WERROR)
  target_compile_options(csdsim_warnings INTERFACE -Werror)
endif()

function(csdsim_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE csdsim_warnings)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()

add_custom_target(lint
  COMMAND ${PROJECT_SOURCE_DIR}/scripts/lint.py
  COMMENT "Layering, formatting, forbidden calls, orphan tests" VERBATIM)
