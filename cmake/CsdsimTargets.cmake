include(GNUInstallDirs)

add_library(csdsim_warnings INTERFACE)
# -Wrestrict, -Wstringop-overflow and -Warray-bounds misfire on std::string concatenation in GCC 12 (bugs 105651 and
# 105329).
set(csdsim_warning_options -Wall -Wextra -Wconversion -Wshadow -Wno-sign-conversion
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict> $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow>
  $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds>)
if(CSDSIM_WERROR)
  list(APPEND csdsim_warning_options -Werror)
endif()
target_compile_options(csdsim_warnings INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${csdsim_warning_options}>")
# GCC collects garbage whenever its heap has doubled from 128 MiB on: an eighth of the time of a large unit. From 1 GiB
# on it hardly ever does; few units take that much.
add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=1048576>)

# csdsim_few_passes(<target>): compiles a target in which no run spends its time (it reads scenarios, starts runs and
# writes results) with few optimization passes. They were half of the compiler's time for these files.
function(csdsim_few_passes target)
  target_compile_options(${target} PRIVATE $<$<AND:$<CXX_COMPILER_ID:GNU,Clang>,$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
endfunction()

# csdsim_library(<name> [SYSC] [FEW_PASSES] [SOURCES ...] [DEPS ...])
# One static library of the project, installable; without sources, one of headers alone. Users link it as
# csdsim::<name>, in this build and from an installed package. SYSC: its sources see SystemC. FEW_PASSES: see
# csdsim_few_passes. Headers are included by their path from the root: "ftl/kv/kv_ftl.h"; an installed package keeps the
# same paths.
function(csdsim_library name)
  cmake_parse_arguments(ARG "SYSC;FEW_PASSES" "" "SOURCES;DEPS" ${ARGN})
  if(ARG_SOURCES)
    set(scope PUBLIC)
    add_library(${name} STATIC ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE $<BUILD_INTERFACE:csdsim_warnings>)
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    # Nobody replaces our functions at load time: without this GCC inlines none of them in position independent code.
    target_compile_options(${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fno-semantic-interposition>)
    if(ARG_SYSC)
      csdsim_precompile(${name} csdsim_pch_sysc)
    else()
      csdsim_precompile(${name} csdsim_pch_core)
    endif()
    if(ARG_FEW_PASSES)
      csdsim_few_passes(${name})
    endif()
  else()
    set(scope INTERFACE)
    add_library(${name} INTERFACE)
  endif()
  add_library(csdsim::${name} ALIAS ${name})
  target_include_directories(${name} ${scope} $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                              $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/csdsim>)
  target_compile_features(${name} ${scope} cxx_std_20)
  target_link_libraries(${name} ${scope} ${ARG_DEPS})
  install(TARGETS ${name} EXPORT csdsimTargets
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
endfunction()

add_custom_target(lint
  COMMAND ${PROJECT_SOURCE_DIR}/scripts/lint.py
  COMMENT "Layering, formatting, forbidden calls, orphan tests" VERBATIM)

# Every header compiles alone: target header_check, a part of lint. Headers are compiled with the options of one
# generated unit, which links everything that headers may include.
function(csdsim_check_headers)
  set(unit ${PROJECT_BINARY_DIR}/header_check/unit.cpp)
  file(CONFIGURE OUTPUT ${unit} CONTENT "// Its options are those that headers are checked with.\n")
  add_library(header_check_options OBJECT EXCLUDE_FROM_ALL ${unit})
  set_target_properties(header_check_options PROPERTIES UNITY_BUILD OFF)
  target_link_libraries(header_check_options PRIVATE csdsim_warnings ${ARGN})
  target_compile_options(header_check_options PRIVATE -O0 -g0)
  add_custom_target(header_check
    COMMAND ${PROJECT_SOURCE_DIR}/scripts/check_headers.py ${PROJECT_BINARY_DIR}/compile_commands.json ${unit}
    COMMENT "Every header compiles alone" USES_TERMINAL VERBATIM)
  add_dependencies(lint header_check)
endfunction()
