# mc_python_module(name SOURCES a.cpp ... [LIBS ...])
#   The native module of the package, called from bindings/python/CMakeLists.txt. The build tree
#   holds an importable package: PYTHONPATH=build/<preset>/python (its .py files are links to
#   bindings/python/mooncake). nanobind comes from the Python in use: -DPython_EXECUTABLE, else
#   build/venv (tools/setup makes it), else the first python3.
if(NOT MOONCAKE_PYTHON)
  return()
endif()
if(NOT SKBUILD AND NOT Python_EXECUTABLE AND NOT DEFINED ENV{VIRTUAL_ENV}
   AND EXISTS ${PROJECT_SOURCE_DIR}/build/venv/bin/python)
  set(Python_EXECUTABLE ${PROJECT_SOURCE_DIR}/build/venv/bin/python)
endif()
set(Python_FIND_VIRTUALENV FIRST)
find_package(Python 3.9 COMPONENTS Interpreter Development.Module)
if(Python_FOUND)
  execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
    OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  find_package(nanobind CONFIG QUIET)
endif()
if(NOT nanobind_FOUND)
  if(SKBUILD)
    message(FATAL_ERROR "nanobind not found")
  endif()
  set_property(GLOBAL APPEND PROPERTY MC_SUMMARY
    "left out: Python package (no nanobind for ${Python_EXECUTABLE}: run tools/setup)")
  set(MOONCAKE_PYTHON OFF)
endif()

function(mc_python_module name)
  cmake_parse_arguments(PARSE_ARGV 1 A "" "" "SOURCES;LIBS")
  mc_existing(_sources ${A_SOURCES})
  if(NOT TARGET libmooncake OR NOT _sources)
    message(WARNING "Python module ${name}: nothing to build it from yet")
    return()
  endif()
  nanobind_add_module(${name} NB_STATIC NB_SUPPRESS_WARNINGS ${_sources})
  target_link_libraries(${name} PRIVATE libmooncake ${A_LIBS})
  set(_out ${PROJECT_BINARY_DIR}/python/mooncake)
  # wheel: beside libmooncake; build tree: ../../lib.
  set_target_properties(${name} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY ${_out} INSTALL_RPATH "$ORIGIN;$ORIGIN/../../lib")
  if(SKBUILD)
    install(TARGETS ${name} LIBRARY DESTINATION mooncake COMPONENT python)
  endif()

  file(GLOB_RECURSE _files CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}/mooncake
    ${CMAKE_CURRENT_SOURCE_DIR}/mooncake/*.py ${CMAKE_CURRENT_SOURCE_DIR}/mooncake/*.pyi
    ${CMAKE_CURRENT_SOURCE_DIR}/mooncake/py.typed)
  foreach(_file IN LISTS _files)
    cmake_path(GET _file PARENT_PATH _sub)
    file(MAKE_DIRECTORY ${_out}/${_sub})
    file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR}/mooncake/${_file} ${_out}/${_file} SYMBOLIC)
  endforeach()
endfunction()
