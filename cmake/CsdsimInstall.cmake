# cmake --install BUILD [--prefix DIR] [--component development]
# The component holds what a user's own program needs: headers, libraries, and the package for find_package(csdsim).
include(CMakePackageConfigHelpers)

foreach(dir base contracts simulation nfc ftl attention_engine nvme_if host_runtime csd_model platform report scenario experiment launch reproduction)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${dir} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/csdsim COMPONENT development
          FILES_MATCHING PATTERN "*.h" PATTERN "presets" EXCLUDE PATTERN "cuda" EXCLUDE)
endforeach()

set(csdsim_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/csdsim)
install(EXPORT csdsimTargets NAMESPACE csdsim:: DESTINATION ${csdsim_package_dir} COMPONENT development)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/csdsimConfig.cmake.in ${PROJECT_BINARY_DIR}/csdsimConfig.cmake
                              INSTALL_DESTINATION ${csdsim_package_dir} NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/csdsimConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/csdsimConfig.cmake ${PROJECT_BINARY_DIR}/csdsimConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/CsdsimDependencies.cmake
              ${PROJECT_SOURCE_DIR}/cmake/CsdsimDriveDependencies.cmake
              ${PROJECT_SOURCE_DIR}/cmake/CsdsimPlugin.cmake
        DESTINATION ${csdsim_package_dir} COMPONENT development)
