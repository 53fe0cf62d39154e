# csdsim_add_plugin(<name> SOURCES <file>... LIBRARIES <csdsim::...>... [SCENARIOS <file>...])
# A shared library <name>.so that csdsim loads: a mapping or eviction policy, an offload system, an experiment. The
# scenarios are copied to the folder of the build, where they find the library beside them.
function(csdsim_add_plugin name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "SOURCES;LIBRARIES;SCENARIOS")
  add_library(${name} MODULE ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES PREFIX "" SUFFIX ".so")
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES})
  foreach(scenario IN LISTS ARG_SCENARIOS)
    configure_file(${scenario} ${scenario} COPYONLY)
  endforeach()
endfunction()
