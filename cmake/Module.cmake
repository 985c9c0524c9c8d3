# mc_module(name [SOURCES a.cpp ...] [TESTS a_test.cpp ...] [DEPENDS <modules> ...]
#           [LIBS <targets> ...] [SCHEMAS x.fbs ...] [FLATC_FLAGS ...]
#           [TEST_LIBS <targets> ...] [TEST_LABELS slow|serial ...] [TEST_TIMEOUT seconds])
# One module = one folder under src/: static library mc_<name> (alias mooncake::<name>) and, if it
# has TESTS, one gtest binary <name>_test. Called from the module's own CMakeLists.txt.
#  - Includes are "folder/file.h" from src/, <mooncake/x.h> from include/.
#  - DEPENDS names modules (`net`, `store_master`), checked against layers.txt; order is free.
#  - LIBS names targets of cmake/Dependencies.cmake.
#  - x.fbs becomes "<folder>/x_generated.h" (folder = path under src/).
# A file that is named but missing gives a warning here and fails the tidy test.
define_property(GLOBAL PROPERTY MC_MODULES BRIEF_DOCS "names of all modules")
add_custom_target(mc_generated)  # every generated header; all our code waits for it

function(mc_existing out)
  set(_result "")
  foreach(_file IN LISTS ARGN)
    if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${_file})
      list(APPEND _result ${_file})
    else()
      set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
        ${CMAKE_CURRENT_SOURCE_DIR})
      message(WARNING "${CMAKE_CURRENT_SOURCE_DIR}/${_file} is named but not there")
    endif()
  endforeach()
  set(${out} ${_result} PARENT_SCOPE)
endfunction()

function(mc_module name)
  cmake_parse_arguments(PARSE_ARGV 1 A "" "TEST_TIMEOUT"
    "SOURCES;TESTS;DEPENDS;LIBS;SCHEMAS;FLATC_FLAGS;TEST_LIBS;TEST_LABELS")
  if(A_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "mc_module(${name}): unknown words ${A_UNPARSED_ARGUMENTS}")
  endif()
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR}/src
    OUTPUT_VARIABLE _path)
  mc_existing(_sources ${A_SOURCES})
  mc_existing(_tests ${A_TESTS})
  mc_existing(_schemas ${A_SCHEMAS})
  if(NOT _sources)
    set(_sources ${MC_GENERATED_DIR}/empty.cpp)
    file(CONFIGURE OUTPUT ${_sources} CONTENT "// A library needs a source.\n")
  endif()

  add_library(mc_${name} STATIC ${_sources})
  add_library(mooncake::${name} ALIAS mc_${name})
  target_link_libraries(mc_${name} PUBLIC mc_options ${A_LIBS})
  add_dependencies(mc_${name} mc_generated)
  if(_schemas)
    mc_schemas_(${name} ${_path} "${A_FLATC_FLAGS}" ${_schemas})
    target_link_libraries(mc_${name} PUBLIC flatbuffers::headers)
  endif()
  set_property(GLOBAL APPEND PROPERTY MC_MODULES ${name})
  set_property(GLOBAL PROPERTY MC_MODULE_PATH_${name} ${_path})
  set_property(GLOBAL PROPERTY MC_MODULE_DEPENDS_${name} "${A_DEPENDS}")
  set_property(GLOBAL APPEND PROPERTY MC_EXTERNAL_LIBS ${A_LIBS})

  if(_tests AND MOONCAKE_TESTS)
    set(_labels unit ${A_TEST_LABELS})
    if(NOT A_TEST_TIMEOUT)
      set(A_TEST_TIMEOUT 120)
    endif()
    mc_gtest_(${name}_test SOURCES ${_tests} LIBS mc_${name} ${A_TEST_LIBS}
      LABELS ${_labels} TIMEOUT ${A_TEST_TIMEOUT})
  endif()
endfunction()

# flatc for one module. --keep-prefix: an `include "net/x.fbs"` stays a path from src/.
function(mc_schemas_ name path flags)
  # Schemas include each other, so each depends on all.
  file(GLOB_RECURSE _all CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.fbs)
  set(_outputs "")
  foreach(_schema IN LISTS ARGN)
    cmake_path(GET _schema PARENT_PATH _sub)
    cmake_path(GET _schema STEM _stem)
    cmake_path(APPEND MC_GENERATED_DIR ${path} ${_sub} OUTPUT_VARIABLE _dir)
    set(_output ${_dir}/${_stem}_generated.h)
    add_custom_command(OUTPUT ${_output}
      COMMAND ${MC_FLATC} --cpp --cpp-std c++17 --scoped-enums --keep-prefix ${flags}
              -I ${PROJECT_SOURCE_DIR}/src -o ${_dir} ${CMAKE_CURRENT_SOURCE_DIR}/${_schema}
      DEPENDS ${_all} COMMENT "flatc ${path}/${_schema}" VERBATIM)
    list(APPEND _outputs ${_output})
  endforeach()
  add_custom_target(mc_${name}_schemas DEPENDS ${_outputs})
  add_dependencies(mc_generated mc_${name}_schemas)
endfunction()

# After all modules: check and make the links, then build libmooncake out of everything.
function(mc_finish_modules)
  get_property(_modules GLOBAL PROPERTY MC_MODULES)
  foreach(_name IN LISTS _modules)
    get_property(_path GLOBAL PROPERTY MC_MODULE_PATH_${_name})
    get_property(_depends GLOBAL PROPERTY MC_MODULE_DEPENDS_${_name})
    foreach(_dep IN LISTS _depends)
      get_property(_dep_path GLOBAL PROPERTY MC_MODULE_PATH_${_dep})
      if(NOT _dep_path)
        string(REGEX REPLACE "_.*" "" _dep_path ${_dep})
        mc_check_layers(${_path} ${_dep_path})
        message(WARNING "${_path} DEPENDS on module ${_dep}, which is not there")
      else()
        mc_check_layers(${_path} ${_dep_path})
        target_link_libraries(mc_${_name} PUBLIC mc_${_dep})
      endif()
    endforeach()
  endforeach()
  mc_plugin_tables_()

  if(MOONCAKE_PROGRAMS AND _modules)
    get_property(_modules GLOBAL PROPERTY MC_MODULES)
    mc_shared_library_(${_modules})
  endif()
endfunction()

# libmooncake.so: the objects of every module, so that nothing can be dropped. It exports what is
# ours (cmake/exports.map); the header-only libraries inside stay private to it.
function(mc_shared_library_)
  set(_objects "")
  foreach(_name IN LISTS ARGN)
    list(APPEND _objects $<TARGET_OBJECTS:mc_${_name}>)
  endforeach()
  add_library(libmooncake SHARED ${_objects})
  add_library(mooncake::mooncake ALIAS libmooncake)
  set_target_properties(libmooncake PROPERTIES PREFIX "" LINKER_LANGUAGE CXX
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} INSTALL_RPATH "$ORIGIN")
  add_dependencies(libmooncake mc_generated)
  target_link_libraries(libmooncake PUBLIC mc_options)
  get_property(_libs GLOBAL PROPERTY MC_EXTERNAL_LIBS)
  list(REMOVE_DUPLICATES _libs)
  foreach(_lib IN LISTS _libs)
    set(_type "")
    if(TARGET ${_lib})
      get_target_property(_type ${_lib} TYPE)
    endif()
    if(_type STREQUAL INTERFACE_LIBRARY)
      target_link_libraries(libmooncake PUBLIC ${_lib})
    else()
      target_link_libraries(libmooncake PRIVATE ${_lib})
    endif()
  endforeach()
  if(NOT MOONCAKE_SANITIZE)
    set(_map ${PROJECT_SOURCE_DIR}/cmake/exports.map)
    target_link_options(libmooncake PRIVATE -Wl,--version-script=${_map} -Wl,--no-undefined)
    set_property(TARGET libmooncake APPEND PROPERTY LINK_DEPENDS ${_map})
  endif()
  if(SKBUILD)
    # A wheel has no symlinks: one file, under the name that the others look for at run time.
    set_target_properties(libmooncake PROPERTIES VERSION ${PROJECT_VERSION_MAJOR})
    install(TARGETS libmooncake LIBRARY DESTINATION mooncake COMPONENT python NAMELINK_SKIP)
    foreach(_library ${MC_YAML_CPP_LIBRARY} ${MC_RE2_LIBRARY})
      # Not on every system, so it travels along, under its soname (the shortest versioned name).
      file(GLOB _names "${_library}.*")
      list(SORT _names)
      list(GET _names 0 _soname)
      cmake_path(GET _soname FILENAME _name)
      file(REAL_PATH ${_soname} _file)
      install(FILES ${_file} DESTINATION mooncake RENAME ${_name} COMPONENT python)
    endforeach()
  else()
    install(TARGETS libmooncake LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
      FILES_MATCHING PATTERN "*.h" PATTERN "*.def")
  endif()
endfunction()
