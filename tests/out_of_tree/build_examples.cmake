# Installs the built tree into a fresh prefix, moves it away, and configures, builds and runs programs against what was
# moved: those of examples/ and the one beside this script. Policies that were built so are run by the tree's
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

# Headers alone need no library of others, the drive none that scenarios, checkpoints and tests need.
set(not_found -D CMAKE_DISABLE_FIND_PACKAGE_rapidcheck=ON -D CMAKE_DISABLE_FIND_PACKAGE_yaml-cpp=ON
              -D CMAKE_DISABLE_FIND_PACKAGE_Boost=ON -D CMAKE_DISABLE_FIND_PACKAGE_SQLite3=ON)
set(host_software ${WORK_DIR}/host_software)
file(WRITE ${host_software}/CMakeLists.txt "cmake_minimum_required(VERSION 3.25)
project(host_software LANGUAGES CXX)
find_package(csdsim REQUIRED COMPONENTS nvme_spec)
add_executable(host_software main.cpp)
target_link_libraries(host_software PRIVATE csdsim::csdsim_nvme_spec)
")
file(WRITE ${host_software}/main.cpp "#include \"nvme_if/spec/encode.h\"
int main() { return csdsim::nvme::encode(csdsim::nvme::NamespaceId{1}, csdsim::nvme::KvFree{}).opcode == 0x84 ? 0 : 1; }
")
execute_process(COMMAND ${CMAKE_COMMAND} -S ${host_software} -B ${host_software}/build -G ${GENERATOR}
                        -D CMAKE_PREFIX_PATH=${prefix} -D CMAKE_FIND_USE_PACKAGE_REGISTRY=OFF -D CMAKE_CXX_COMPILER=${CXX}
                        -D CMAKE_DISABLE_FIND_PACKAGE_fmt=ON -D CMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON
                        -D CMAKE_DISABLE_FIND_PACKAGE_PkgConfig=ON ${not_found}
                COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${host_software}/build COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${host_software}/build/host_software COMMAND_ERROR_IS_FATAL ANY)
file(COPY ${SOURCE_DIR}/examples/own_initiator DESTINATION ${WORK_DIR}/drive_alone)
execute_process(COMMAND ${CMAKE_COMMAND} -S ${WORK_DIR}/drive_alone/own_initiator -B ${WORK_DIR}/drive_alone/build -G ${GENERATOR}
                        -D CMAKE_PREFIX_PATH=${prefix} -D CMAKE_FIND_USE_PACKAGE_REGISTRY=OFF -D CMAKE_CXX_COMPILER=${CXX} ${not_found}
                COMMAND_ERROR_IS_FATAL ANY)

foreach(program examples/own_initiator examples/own_engine examples/own_argtopk tests/out_of_tree/whole_chain)
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
  string(JSON page_ops_${batch} GET "${result}" metrics page_ops)
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

# Kinds of your own: an offload system and an experiment, one folder each and one line that registers it. csdsim finds
# them in all that it does; no file of its own knows them.
# csdsim(<out> <argument>...): runs the tree's csdsim and fails if it does.
function(csdsim out)
  execute_process(COMMAND ${BUILD_DIR}/csdsim ${ARGN} OUTPUT_VARIABLE text ERROR_VARIABLE errors RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "csdsim ${ARGN} gives ${status}: ${errors}")
  endif()
  set(${out} "${text}" PARENT_SCOPE)
endfunction()
# refused(<pattern> <argument>...): csdsim ends with 2 and says so.
function(refused pattern)
  execute_process(COMMAND ${BUILD_DIR}/csdsim ${ARGN} OUTPUT_QUIET ERROR_VARIABLE errors RESULT_VARIABLE status)
  if(NOT status EQUAL 2 OR NOT errors MATCHES "${pattern}")
    message(FATAL_ERROR "csdsim ${ARGN} gives ${status}: ${errors}; expected '${pattern}'")
  endif()
endfunction()
function(expect text pattern)
  if(NOT text MATCHES "${pattern}")
    message(FATAL_ERROR "'${pattern}' is not in: ${text}")
  endif()
endfunction()

foreach(example IN ITEMS own_offload_system:serial:systems:system:wait own_feature:table:systems:system:hits
                         own_experiment:capacity:workloads:workload:fill)
  string(REPLACE ":" ";" example "${example}")
  list(GET example 0 folder)
  list(GET example 1 kind)
  list(GET example 2 category)
  list(GET example 3 section)
  list(GET example 4 parameter)
  build_program(examples/${folder})
  set(dir ${WORK_DIR}/${folder})
  csdsim(listed list ${category} --plugin ${dir}/${kind}.so)
  expect("${listed}" "  ${kind} ")
  csdsim(described describe ${section} ${kind} --plugin ${dir}/${kind}.so)
  expect("${described}" "kind ${kind}: .*  ${parameter} ")
  csdsim(markdown describe --markdown --plugin ${dir}/${kind}.so)
  expect("${markdown}" "- `${kind}`: .*`${parameter}` \\(${kind}\\)")
  csdsim(checked check ${dir}/scenario.yaml)
  expect("${checked}" "ok, sweep of [23] points")
  csdsim(ran run ${dir}/scenario.yaml --out ${dir}/run)
  csdsim(swept sweep ${dir}/scenario.yaml --out ${dir}/sweep -j 2)
  file(READ ${dir}/sweep/results.csv rows)
  expect("${rows}" "error|tokens")
  # Without the library nobody knows it; with a parameter out of range the mistake is located.
  csdsim(unknown list ${category})
  if(unknown MATCHES "  ${kind} ")
    message(FATAL_ERROR "${kind} is listed without its plugin")
  endif()
  refused("scenario.yaml:[0-9]+:[0-9]+: error: ${section}.kind: unknown kind '${kind}'" check ${dir}/scenario.yaml --set
          plugins=[])
  refused("--set ${section}.${parameter}=0: error: ${section}.${parameter}: " check ${dir}/scenario.yaml --set
          ${section}.${parameter}=0)
endforeach()

# An eviction policy: csdsim counts the hits that it gives, and refuses a library that was cut off.
build_program(examples/own_eviction)
set(sieve ${WORK_DIR}/own_eviction/own_eviction.so)
set(trace ${WORK_DIR}/own_eviction/trace.jsonl)
# One popular block among blocks that come once: SIEVE keeps it, FIFO does not.
set(lines "")
foreach(i RANGE 1 60)
  math(EXPR odd "${i} % 2")
  math(EXPR block "${i} * (1 - ${odd})")
  string(APPEND lines "{\"timestamp\": ${i}, \"input_length\": 512, \"output_length\": 1, \"hash_ids\": [${block}]}\n")
endforeach()
file(WRITE ${trace} "${lines}")
csdsim(rows hit-rates ${trace} --eviction fifo,${sieve},${sieve}:most_uses=0 --capacity 4 --format json)
set(policies fifo sieve sieve:most_uses=0)
set(hits 22 29 22)
foreach(i RANGE 2)
  list(GET policies ${i} policy)
  list(GET hits ${i} expected)
  string(JSON name GET "${rows}" ${i} eviction)
  string(JSON hit_blocks GET "${rows}" ${i} hit_blocks)
  if(NOT name STREQUAL policy OR NOT hit_blocks EQUAL expected)
    message(FATAL_ERROR "${name} hits ${hit_blocks} blocks, not ${policy} ${expected}")
  endif()
endforeach()
refused("sieve: setting most_uses: 256 is out of range" hit-rates ${trace} --eviction ${sieve}:most_uses=256)
refused("own_mapping_policy.so is no eviction plugin" hit-rates ${trace} --eviction
        ${WORK_DIR}/own_mapping_policy/own_mapping_policy.so)
execute_process(COMMAND head -c 4000 ${sieve} OUTPUT_FILE ${WORK_DIR}/own_eviction/cut.so COMMAND_ERROR_IS_FATAL ANY)
refused("cut.so cannot be loaded: it is truncated" hit-rates ${trace} --eviction ${WORK_DIR}/own_eviction/cut.so)

# What overlap buys: every operation after the one before takes longest, and a system of a plugin decodes the same
# tokens as attention on the host, compared by name with a system that csdsim comes with.
file(STRINGS ${WORK_DIR}/own_offload_system/sweep/results.csv rows)
list(LENGTH rows count)
if(NOT count EQUAL 4)
  message(FATAL_ERROR "the sweep over three systems has ${count} lines: ${rows}")
endif()
csdsim(compared run ${SOURCE_DIR}/scenarios/quickstart.yaml --set plugins=[${WORK_DIR}/own_offload_system/serial.so]
       --set system={kind:\ serial} --set simulation.compare=[host,\ instinfer-dense] --out ${WORK_DIR}/compared)
file(READ ${WORK_DIR}/compared/result.json result)
foreach(other host instinfer-dense)
  string(JSON same GET "${result}" comparison ${other} attention_outputs_identical)
  if(NOT same)
    message(FATAL_ERROR "serial and ${other} differ")
  endif()
endforeach()
string(JSON serial_rate GET "${result}" metrics decode_tokens_per_s)
string(JSON dense_rate GET "${result}" comparison instinfer-dense metrics decode_tokens_per_s)
if(NOT serial_rate LESS dense_rate)
  message(FATAL_ERROR "without overlap ${serial_rate} tokens/s, with it ${dense_rate}: overlap bought nothing")
endif()

# A feature of a plugin: the size of an operation that depends on data, what it counts, its metric, and a check.
set(table ${WORK_DIR}/own_feature)
csdsim(metric describe metrics table_bytes_per_step --plugin ${table}/table.so)
expect("${metric}" "table_bytes_per_step \\[B\\]: Rows of the table")
file(READ ${table}/run/result.json result)
string(JSON bytes GET "${result}" metrics table_bytes_per_step)
if(bytes LESS 60000000 OR bytes GREATER 75000000)
  message(FATAL_ERROR "a quarter of a table of 268 MB is fetched per step, not ${bytes} B")
endif()
file(STRINGS ${table}/sweep/results.csv rows)
list(GET rows 0 header)
expect("${header}" "table_bytes_per_step")
refused("platform.gpu.count: table sends its rows to one GPU" check ${table}/scenario.yaml --set platform.gpu.count=2)
