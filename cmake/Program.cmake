# mc_program(name SOURCES a.cpp ... [LIBS <targets> ...])
#   A program in programs/: build/<preset>/bin/<name>, linked to libmooncake.
# mc_bench(name SOURCES a.cpp ... [DEPENDS <modules> ...] [LIBS ...])
#   A Google Benchmark binary in bench/: build/<preset>/bench-bin/<name>, linked to these modules, or
#   to libmooncake when none is named.
add_custom_target(mooncake_programs)  # all programs, without tests and bindings
add_custom_target(mooncake_benches)

function(mc_program name)
  cmake_parse_arguments(PARSE_ARGV 1 A "" "" "SOURCES;LIBS")
  mc_existing(_sources ${A_SOURCES})
  if(NOT TARGET libmooncake OR NOT _sources)
    message(WARNING "program ${name}: nothing to build it from yet")
    return()
  endif()
  add_executable(${name} ${_sources})
  target_link_libraries(${name} PRIVATE libmooncake ${A_LIBS})
  # build tree and prefix: bin/ beside lib/; wheel: mooncake/bin below the library's folder.
  set_target_properties(${name} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib;$ORIGIN/..")
  add_dependencies(mooncake_programs ${name})
  if(SKBUILD)
    install(TARGETS ${name} RUNTIME DESTINATION mooncake/bin COMPONENT python)
  else()
    install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endfunction()

function(mc_bench name)
  cmake_parse_arguments(PARSE_ARGV 1 A "" "" "SOURCES;DEPENDS;LIBS")
  mc_existing(_sources ${A_SOURCES})
  list(TRANSFORM A_DEPENDS PREPEND mc_ OUTPUT_VARIABLE _modules)
  if(NOT _modules)
    set(_modules libmooncake)
  endif()
  if(NOT TARGET benchmark::benchmark OR NOT TARGET libmooncake)
    set_property(GLOBAL APPEND PROPERTY MC_SUMMARY "left out: bench ${name} (libbenchmark-dev)")
    return()
  endif()
  add_executable(${name} ${_sources})
  target_link_libraries(${name} PRIVATE ${_modules} benchmark::benchmark ${A_LIBS})
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench-bin INSTALL_RPATH "$ORIGIN/../lib")
  add_dependencies(mooncake_benches ${name})
endfunction()
