# Third-party libraries of the drive. The file is installed beside the package's configuration, for its component drive.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
# Headers alone: base/simd_dispatch.h says why the library is not linked.
find_path(HWY_INCLUDE_DIR hwy/highway.h REQUIRED)
if(NOT TARGET hwy::headers)
  add_library(hwy::headers INTERFACE IMPORTED)
  set_target_properties(hwy::headers PROPERTIES INTERFACE_INCLUDE_DIRECTORIES ${HWY_INCLUDE_DIR})
endif()

# Debian's libsystemc is built as C++17 and checks the standard of its users at link time through the name of
# sc_api_version_*; every translation unit that sees systemc.h must carry this definition to be used from C++20.
pkg_check_modules(SYSTEMC REQUIRED systemc)
find_library(SYSTEMC_LIBRARY systemc REQUIRED)
find_path(SYSTEMC_INCLUDE_DIR systemc.h REQUIRED)
if(NOT TARGET systemc::systemc)
  add_library(systemc::systemc UNKNOWN IMPORTED)
  set_target_properties(systemc::systemc PROPERTIES
    IMPORTED_LOCATION ${SYSTEMC_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${SYSTEMC_INCLUDE_DIR}
    INTERFACE_COMPILE_DEFINITIONS "SC_CPLUSPLUS=201703L;SC_INCLUDE_DYNAMIC_PROCESSES"
    INTERFACE_LINK_LIBRARIES Threads::Threads)
endif()
