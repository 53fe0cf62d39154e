# csdsim test-policy, and what a policy that answers badly does to a run. CSDSIM, SOURCE_DIR, PLUGINS are given.
function(expect status)
  cmake_parse_arguments(ARG "" "SAYS" "COMMAND" ${ARGN})
  execute_process(COMMAND ${CSDSIM} ${ARG_COMMAND} RESULT_VARIABLE found OUTPUT_VARIABLE out ERROR_VARIABLE err)
  if(NOT found EQUAL status OR NOT "${out}${err}" MATCHES "${ARG_SAYS}")
    message(FATAL_ERROR "csdsim ${ARG_COMMAND}: exit ${found}, not ${status} with '${ARG_SAYS}':\n${out}${err}")
  endif()
endfunction()

set(fast --cases 30 --scenario ${CMAKE_CURRENT_LIST_DIR}/small_study.yaml)
expect(0 COMMAND test-policy paired ${fast} SAYS "data +holds")
expect(0 COMMAND test-policy channel-balanced --setting slack=0 ${fast} --format json SAYS "\"passed\": true")
# A plugin that wants plane 3 of every flash: a counterexample on the smallest one.
expect(1 COMMAND test-policy ${PLUGINS}/plugin_good.so ${fast}
       SAYS "interface +BROKEN.*\"one-plane\" breaks \"interface\".*1 channels, 1 dies, 1 planes.*asks for plane 3")
# A policy that crashes or never returns.
expect(1 COMMAND test-policy ${PLUGINS}/plugin_good.so --setting plane=98 ${fast}
       SAYS "has crashed: Segmentation fault \\(signal 11\\), in case [0-9]+, operation [0-9]+ \\([a-z ]+\\), in place\\(\\).*drive: [0-9]+ channels.*create sequence 0")
expect(1 COMMAND test-policy ${PLUGINS}/plugin_good.so --setting plane=99 --limit 1 ${fast}
       SAYS "has not ended within 1 s.*in case [0-9]+.*in place\\(\\)")
expect(1 COMMAND test-policy ${PLUGINS}/plugin_good.so --setting plane=99 ${fast}
       SAYS "has not returned within 5 s of processor time, in case [0-9]+.*in place\\(\\)")
# One that throws what is no exception, one that ends the process, one that opens an append point per page.
expect(1 COMMAND test-policy ${PLUGINS}/plugin_good.so --setting plane=97 ${fast}
       SAYS "interface +BROKEN.*has thrown what is no std::exception")
expect(1 COMMAND test-policy ${PLUGINS}/plugin_good.so --setting plane=96 ${fast} SAYS "has ended the process, with exit status 0")
expect(1 COMMAND test-policy ${PLUGINS}/plugin_good.so --setting plane=95 ${fast} SAYS "space +BROKEN.*each page opens a block")
# One that never writes: no property is broken, and none was tested.
expect(1 COMMAND test-policy ${PLUGINS}/plugin_good.so --setting plane=93 ${fast} SAYS "wrote no group of tokens.*nothing was tested")
# One that sleeps: it uses no processor time.
expect(1 COMMAND test-policy ${PLUGINS}/plugin_good.so --setting plane=94 --limit 1 ${fast}
       SAYS "has used no processor time for 1 s: it waits, in case [0-9]+.*in place\\(\\)")
expect(2 COMMAND test-policy piared SAYS "unknown mapping policy 'piared' \\(did you mean paired\\?\\)")
expect(2 COMMAND test-policy ${PLUGINS}/none.so SAYS "none.so")
expect(2 COMMAND test-policy channel-balanced --setting slack SAYS "--setting slack: write name=value")
expect(2 COMMAND test-policy channel-balanced --setting slak=1 SAYS "no setting 'slak'")
expect(2 COMMAND test-policy paired --scenario ${SOURCE_DIR}/scenarios/block_read.yaml SAYS "workload.kind is block_io")

# What the block namespace loses with the power.
expect(0 COMMAND test-power --cuts 300 --commands 1 --seed 3 SAYS "[0-9]+ cuts in [0-9]+ histories.*seed 3: 3[0-9][0-9] cuts.*nothing that was durable was lost")
expect(0 COMMAND test-power --cuts 50 --commands 0 --protection none --units-per-program 3 SAYS " 0 pages from dumps")
expect(2 COMMAND test-power --protection fuse SAYS "--protection.*fuse")

# The same plugin in a run: the user's mistake, named with the plane.
set(plugin --set "platform.device.ftl.mapping={kind: plugin, library: ${PLUGINS}/plugin_good.so, settings: {plane: 100}}")
expect(2 COMMAND run ${CMAKE_CURRENT_LIST_DIR}/small_run.yaml ${plugin} -q
       SAYS "mapping policy \"one-plane\" asks for plane 100 of a flash with 64")
expect(2 COMMAND run ${CMAKE_CURRENT_LIST_DIR}/small_study.yaml ${plugin} -q
       SAYS "mapping policy \"one-plane\" asks for plane 100 of a flash with 16")
# A good plane: one more row beside the policies that csdsim comes with.
set(plugin --set "platform.device.ftl.mapping={kind: plugin, library: ${PLUGINS}/plugin_good.so, settings: {plane: 3}}")
expect(0 COMMAND run ${CMAKE_CURRENT_LIST_DIR}/small_study.yaml ${plugin} -q SAYS "page-l2p.*one-plane")
expect(2 COMMAND run ${CMAKE_CURRENT_LIST_DIR}/small_study.yaml --set platform.device.link.lanes=8 -q
       SAYS "platform.device.link: has no effect in an ftl_policies workload")
expect(0 COMMAND run ${CMAKE_CURRENT_LIST_DIR}/small_study.yaml --set workload.attend_every=100000 -q
       SAYS "No attend was measured: no sequence grows to workload.attend_every tokens")
