# Every third-party library of the libraries enters here or in CsdsimDriveDependencies.cmake, as a SYSTEM target. Both files
# are installed beside the package's configuration: whoever links a csdsim library needs the same targets.
include(${CMAKE_CURRENT_LIST_DIR}/CsdsimDriveDependencies.cmake)
find_package(yaml-cpp 0.7 REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(rapidcheck REQUIRED)
find_package(muparser 2.3 REQUIRED)
find_package(Boost 1.74 REQUIRED)
pkg_check_modules(SENTENCEPIECE REQUIRED IMPORTED_TARGET sentencepiece)
# Headers alone: a program loads ICU when it reads a tokenizer.
pkg_check_modules(ICU REQUIRED icu-uc icu-i18n)
if(NOT TARGET icu::headers)
  add_library(icu::headers INTERFACE IMPORTED)
  set_target_properties(icu::headers PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${ICU_INCLUDE_DIRS}")
endif()
pkg_check_modules(NLOPT REQUIRED IMPORTED_TARGET nlopt)
