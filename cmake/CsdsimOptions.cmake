option(CSDSIM_BUILD_TESTS "Build the tests" ON)
option(CSDSIM_BUILD_BENCH "Build the Google Benchmark programs" OFF)
option(CSDSIM_WERROR "Warnings are errors on our code" ON)
set(CSDSIM_SANITIZE "" CACHE STRING "Sanitizers to build with, e.g. address,undefined")

option(CSDSIM_FUZZ "Build the fuzz targets of tests/fuzz (needs clang)" OFF)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

# Fuzz targets (libFuzzer) are steered by the branches of all libraries that are compiled here.
if(CSDSIM_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "CSDSIM_FUZZ: libFuzzer needs clang: -D CMAKE_CXX_COMPILER=clang++")
  endif()
  set(CSDSIM_SANITIZE address,undefined)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

if(CSDSIM_SANITIZE)
  # Instrumented code makes GCC's -Wmaybe-uninitialized report parts of the standard library (GCC bug 105562).
  add_compile_options(-fsanitize=${CSDSIM_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
                      $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  add_link_options(-fsanitize=${CSDSIM_SANITIZE})
endif()
