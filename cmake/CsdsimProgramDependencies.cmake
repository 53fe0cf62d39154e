# Third-party libraries that only the program csdsim uses; users of the libraries do not need them.
find_package(CLI11 2 REQUIRED)

# Sweeps under mpirun and srun: a module that csdsim loads there. Without MPI it is left out.
option(CSDSIM_MPI "Build the MPI module where Boost.MPI is found" ON)
set(CSDSIM_HAS_MPI OFF)
# The sanitizers would find what Open MPI never frees.
if(CSDSIM_MPI AND NOT CSDSIM_SANITIZE)
  find_package(Boost 1.74 QUIET COMPONENTS mpi serialization)
  if(TARGET Boost::mpi)
    set(CSDSIM_HAS_MPI ON)
  endif()
  message(STATUS "MPI: ${CSDSIM_HAS_MPI}")
endif()
