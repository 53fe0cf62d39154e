# Every third-party library of the libraries enters here, as a SYSTEM target. The file is installed beside the package's
# configuration: whoever links a csdsim library needs the same targets.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(yaml-cpp 0.7 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(rapidcheck REQUIRED)
find_package(muparser 2.3 REQUIRED)
find_package(Boost 1.74 REQUIRED)
pkg_check_modules(SENTENCEPIECE REQUIRED IMPORTED_TARGET sentencepiece)
pkg_check_modules(ICU REQUIRED IMPORTED_TARGET icu-uc icu-i18n)
pkg_check_modules(NLOPT REQUIRED IMPORTED_TARGET nlopt)
pkg_check_modules(OPENBLAS REQUIRED IMPORTED_TARGET openblas)
find_library(HWY_LIBRARY hwy REQUIRED)
find_path(HWY_INCLUDE_DIR hwy/highway.h REQUIRED)
if(NOT TARGET hwy::hwy)
  add_library(hwy::hwy UNKNOWN IMPORTED)
  set_target_properties(hwy::hwy PROPERTIES IMPORTED_LOCATION ${HWY_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES ${HWY_INCLUDE_DIR})
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
