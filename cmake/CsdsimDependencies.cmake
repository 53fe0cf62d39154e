# Every third-party library of the libraries enters here or in CsdsimDriveDependencies.cmake, as a SYSTEM target. Both files
# are installed beside the package's configuration: whoever links a csdsim library needs the same targets.
include(${CMAKE_CURRENT_LIST_DIR}/CsdsimDriveDependencies.cmake)
find_package(yaml-cpp 0.7 REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(rapidcheck REQUIRED)
find_package(muparser 2.3 REQUIRED)
find_package(Boost 1.74 REQUIRED)
pkg_check_modules(SENTENCEPIECE REQUIRED IMPORTED_TARGET sentencepiece)
pkg_check_modules(ICU REQUIRED IMPORTED_TARGET icu-uc icu-i18n)
pkg_check_modules(NLOPT REQUIRED IMPORTED_TARGET nlopt)
