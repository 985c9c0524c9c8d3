# Compiler, linker and flags. Our own targets take them from the interface target `mc_options`;
# nothing is set globally that a third-party target would inherit, except the standard and PIC.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_LINK_DEPENDS_NO_SHARED ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()

# One layout for build tree and install prefix: bin/ beside lib/, so that one rpath fits both.
set(CMAKE_INSTALL_LIBDIR lib CACHE PATH "Library folder below the prefix")
include(GNUInstallDirs)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)

find_program(MC_CCACHE ccache)
if(MC_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths below the source folder are cached as relative ones, so that clones share the cache.
  set(_launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${MC_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${_launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${_launcher})
endif()

include(CheckLinkerFlag)
foreach(_linker mold lld)
  check_linker_flag(CXX -fuse-ld=${_linker} MC_HAVE_${_linker})
  if(MC_HAVE_${_linker})
    add_link_options(-fuse-ld=${_linker})
    set(MC_LINKER ${_linker})
    break()
  endif()
endforeach()

set(MC_GENERATED_DIR ${PROJECT_BINARY_DIR}/generated)
file(MAKE_DIRECTORY ${MC_GENERATED_DIR})

add_library(mc_options INTERFACE)
target_include_directories(mc_options INTERFACE
  ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_include_directories(mc_options SYSTEM INTERFACE ${MC_GENERATED_DIR})
target_compile_definitions(mc_options INTERFACE MOONCAKE_VERSION="${PROJECT_VERSION}")
# Designated initializers may name only the fields they change: that is what defaults are for.
target_compile_options(mc_options INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers
  -fno-semantic-interposition)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # g++ 12 cries wolf in inlined standard library code: never for std::string (-Wrestrict), often
  # for the others, which stay visible as plain warnings.
  target_compile_options(mc_options INTERFACE
    -Wno-restrict -Wno-error=maybe-uninitialized -Wno-error=array-bounds
    -Wno-error=stringop-overflow -Wno-error=stringop-overread -Wno-error=free-nonheap-object)
endif()
if(MOONCAKE_WERROR)
  target_compile_options(mc_options INTERFACE -Werror)
endif()
if(MOONCAKE_SANITIZE)
  # Global, also for linking: a process is instrumented as a whole.
  add_compile_options(-fsanitize=${MOONCAKE_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${MOONCAKE_SANITIZE})
  if(MOONCAKE_SANITIZE MATCHES undefined)
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
  if(MOONCAKE_SANITIZE MATCHES thread AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    add_compile_options(-Wno-tsan)  # says that stand-alone fences are not modelled
  endif()
endif()
if(MOONCAKE_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL Clang)
    message(FATAL_ERROR "MOONCAKE_FUZZ needs clang (libFuzzer); use the `fuzz` preset")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# Adds a folder if it is there and has a CMakeLists.txt; looks again on each build.
function(mc_add_folder folder)
  file(GLOB _found CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/CMakeLists.txt)
  if(_found)
    add_subdirectory(${PROJECT_SOURCE_DIR}/${folder} ${PROJECT_BINARY_DIR}/${folder})
  endif()
endfunction()
