# Installs the built tree into a fresh prefix, moves it away, and configures, builds and runs programs against what was
# moved: those of examples/ and the one beside this script. A mapping policy that was built so is run by the tree's
# csdsim. Any error ends the script with a failure. Parameters: see CMakeLists.txt.
file(REMOVE_RECURSE ${WORK_DIR})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD_DIR} --component development --prefix ${WORK_DIR}/staging
                OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
# A package that finds itself by an absolute path does not survive this.
set(prefix ${WORK_DIR}/prefix)
file(RENAME ${WORK_DIR}/staging ${prefix})

file(GLOB_RECURSE package_files ${prefix}/*.cmake)
foreach(file IN LISTS package_files)
  file(READ ${file} text)
  foreach(dir IN ITEMS ${SOURCE_DIR} ${BUILD_DIR})
    string(FIND "${text}" "${dir}" position)
    if(NOT position EQUAL -1)
      message(FATAL_ERROR "${file} refers to ${dir}: the package works on this machine only")
    endif()
  endforeach()
endforeach()

set(flags "-Wall -Wextra -Werror")
if(SANITIZE)
  string(APPEND flags " -fsanitize=${SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all")
endif()
# build_program(<folder>): a copy of the sources, so that no include is found in the tree of csdsim itself, built in
# WORK_DIR/<name>.
function(build_program program)
  cmake_path(GET program FILENAME name)
  set(build ${WORK_DIR}/${name})
  file(COPY ${SOURCE_DIR}/${program} DESTINATION ${WORK_DIR}/source)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -S ${WORK_DIR}/source/${name} -B ${build} -G ${GENERATOR}
            -D CMAKE_PREFIX_PATH=${prefix} -D CMAKE_FIND_USE_PACKAGE_REGISTRY=OFF -D CMAKE_BUILD_TYPE=${CONFIG}
            -D CMAKE_CXX_COMPILER=${CXX} -D CMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} -D CMAKE_CXX_FLAGS=${flags}
    COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${CMAKE_COMMAND} --build ${build} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

foreach(program examples/own_initiator examples/own_engine tests/out_of_tree/whole_chain)
  cmake_path(GET program FILENAME name)
  build_program(${program})
  execute_process(COMMAND ${WORK_DIR}/${name}/${name} COMMAND_ERROR_IS_FATAL ANY)
endforeach()

# A mapping policy is no program: csdsim loads it. What it is told has to change what the run costs.
build_program(examples/own_mapping_policy)
foreach(batch 1 4)
  execute_process(
    COMMAND ${BUILD_DIR}/csdsim run ${WORK_DIR}/own_mapping_policy/scenario.yaml
            --set platform.device.ftl.mapping.settings.batch=${batch} --out ${WORK_DIR}/batch_${batch}
    OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  file(READ ${WORK_DIR}/batch_${batch}/result.json result)
  string(JSON page_ops_${batch} GET ${result} metrics page_ops)
endforeach()
execute_process(COMMAND ${BUILD_DIR}/csdsim check ${WORK_DIR}/own_mapping_policy/scenario.yaml
                        --set platform.device.ftl.mapping.settings.batch=65
                RESULT_VARIABLE status ERROR_VARIABLE message)
if(NOT status EQUAL 2 OR NOT message MATCHES "diagonal: setting batch: 65 is out of range: 1 to 64")
  message(FATAL_ERROR "a setting out of range gives ${status}: ${message}")
endif()
if(page_ops_1 STREQUAL page_ops_4)
  message(FATAL_ERROR "the mapping policy of the plugin took no part: ${page_ops_1} page operations with any setting")
endif()
