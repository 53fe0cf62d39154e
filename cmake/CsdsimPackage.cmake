# cpack --config BUILD/CPackConfig.cmake: a Debian package of the program alone, with its scenarios, small models, manual
# page and completion. The modules for CUDA and MPI, and what other programs are built with, are installed from a build
# (cmake --install).
install(DIRECTORY ${PROJECT_SOURCE_DIR}/scenarios ${PROJECT_SOURCE_DIR}/models DESTINATION ${CMAKE_INSTALL_DATADIR}/csdsim COMPONENT runtime)
install(FILES ${PROJECT_SOURCE_DIR}/docs/scenario.schema.json DESTINATION ${CMAKE_INSTALL_DATADIR}/csdsim/docs
        COMPONENT runtime)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright COMPONENT runtime)
install(CODE "
  foreach(form bash man)
    execute_process(COMMAND $<TARGET_FILE:csdsim> completion \${form}
                    OUTPUT_FILE ${PROJECT_BINARY_DIR}/package/csdsim.\${form} COMMAND_ERROR_IS_FATAL ANY)
  endforeach()" COMPONENT runtime)
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/package)
install(FILES ${PROJECT_BINARY_DIR}/package/csdsim.bash RENAME csdsim
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT runtime)
install(FILES ${PROJECT_BINARY_DIR}/package/csdsim.man RENAME csdsim.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1
        COMPONENT runtime)

set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL runtime)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_VENDOR csdsim)
set(CPACK_PACKAGE_CONTACT "The authors of csdsim <csdsim@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME csdsim)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# Loaded when they are needed: dpkg-shlibdeps does not see them.
string(REGEX MATCH "^[0-9]+" csdsim_icu_major "${ICU_icu-uc_VERSION}")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS "libopenblas0, libicu${csdsim_icu_major}")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS "python3-matplotlib")
include(CPack)
