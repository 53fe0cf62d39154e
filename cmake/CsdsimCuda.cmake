# Whether there is CUDA, and for which GPUs to compile. Sets CSDSIM_HAS_CUDA.
set(CSDSIM_CUDA AUTO CACHE STRING "The CUDA backend: AUTO builds it where nvcc is found, ON requires it, OFF leaves it out")
set_property(CACHE CSDSIM_CUDA PROPERTY STRINGS AUTO ON OFF)
# Machine code of sm_80 also runs on sm_86 and sm_89; the kernels of sm_90 need its own instructions (the "a"); later
# GPUs compile the virtual one.
set(CSDSIM_CUDA_ARCHITECTURES "75-real;80-real;90a-real;90-virtual" CACHE STRING "GPUs that CUDA code is compiled for")

set(CSDSIM_HAS_CUDA OFF)
# Sanitizers cannot be passed to nvcc, and have nothing to find on a GPU.
if(CSDSIM_CUDA STREQUAL "ON" OR (CSDSIM_CUDA STREQUAL "AUTO" AND NOT CSDSIM_SANITIZE))
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(CSDSIM_NVCC nvcc HINTS /usr/local/cuda/bin)
    mark_as_advanced(CSDSIM_NVCC)
    if(CSDSIM_NVCC)
      set(CMAKE_CUDA_COMPILER ${CSDSIM_NVCC})
    endif()
  endif()
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80)  # of what CMake itself compiles; our targets name theirs
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(CCACHE_PROGRAM)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
    endif()
    enable_language(CUDA)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has it
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    endif()
    find_package(CUDAToolkit REQUIRED)
    set(CSDSIM_HAS_CUDA ON)
    include(${CMAKE_CURRENT_LIST_DIR}/CsdsimCudnn.cmake)
  elseif(CSDSIM_CUDA STREQUAL "ON")
    message(FATAL_ERROR "CSDSIM_CUDA is ON, but no CUDA compiler was found (nvcc on the PATH, or CUDACXX)")
  endif()
endif()
