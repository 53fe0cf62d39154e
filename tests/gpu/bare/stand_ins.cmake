# The host runtime and its CPU backend with small stand-ins for fmt, OpenBLAS and Highway: ${name} and ${name}_cpu.
function(csdsim_host_with_stand_ins name)
  set(bare ${CMAKE_CURRENT_FUNCTION_LIST_DIR})
  set(source ${bare}/../../..)
  file(GLOB core CONFIGURE_DEPENDS ${source}/host_runtime/core/attention/*.cpp ${source}/host_runtime/core/decoder/*.cpp)
  add_library(${name} STATIC ${core} ${source}/base/fp16.cpp ${source}/base/look_alikes.cpp ${source}/base/text.cpp
              ${source}/contracts/token_score.cpp ${bare}/plain_simd.cpp)
  target_include_directories(${name} PUBLIC ${source} ${bare}/include)
  add_library(${name}_cpu STATIC ${source}/host_runtime/cpu/cpu_attention.cpp
              ${source}/host_runtime/cpu/cpu_backend.cpp ${bare}/plain_blas.cpp)
  target_link_libraries(${name}_cpu PUBLIC ${name})
endfunction()
