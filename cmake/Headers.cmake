# Target `headers_compile_alone`: each header of src/ and include/ as the only line of a source,
# checked with -fsyntax-only. Not a part of `all`; `make test` runs it as one test. A header is
# checked again only when it or something it includes changed.
function(mc_headers_compile_alone)
  file(GLOB_RECURSE _headers RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/src/*.h ${PROJECT_SOURCE_DIR}/include/*.h)
  get_property(_libs GLOBAL PROPERTY MC_EXTERNAL_LIBS)
  list(REMOVE_DUPLICATES _libs)
  # Stands for what all modules see together: flags and include paths come from it.
  file(CONFIGURE OUTPUT ${MC_GENERATED_DIR}/empty.cpp CONTENT "// A library needs a source.\n")
  add_library(mc_headers OBJECT EXCLUDE_FROM_ALL ${MC_GENERATED_DIR}/empty.cpp)
  target_link_libraries(mc_headers PRIVATE mc_options flatbuffers::headers ${_libs})
  set(_includes $<TARGET_PROPERTY:mc_headers,INCLUDE_DIRECTORIES>)
  set(_defines $<TARGET_PROPERTY:mc_headers,COMPILE_DEFINITIONS>)

  set(_stamps "")
  foreach(_header IN LISTS _headers)
    string(REGEX REPLACE "^(src|include)/" "" _name ${_header})
    set(_stem ${PROJECT_BINARY_DIR}/headers/${_header})
    file(CONFIGURE OUTPUT ${_stem}.cpp CONTENT "#include \"${_name}\"\n")
    add_custom_command(OUTPUT ${_stem}.stamp
      COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -fsyntax-only -Wall -Wextra -Werror
              -Wno-missing-field-initializers
              "-I$<JOIN:$<FILTER:${_includes},EXCLUDE,^/usr/include$>,;-I>"
              "$<$<BOOL:${_defines}>:-D$<JOIN:${_defines},;-D>>"
              -MD -MF ${_stem}.d -MT ${_stem}.stamp ${_stem}.cpp
      COMMAND ${CMAKE_COMMAND} -E touch ${_stem}.stamp
      DEPENDS ${_stem}.cpp ${PROJECT_SOURCE_DIR}/${_header} mc_generated
      DEPFILE ${_stem}.d COMMENT "alone: ${_header}" COMMAND_EXPAND_LISTS VERBATIM)
    list(APPEND _stamps ${_stem}.stamp)
  endforeach()
  add_custom_target(headers_compile_alone DEPENDS ${_stamps})
endfunction()
