# Third-party packages, all from Debian 12 (tools/setup lists them). The targets to name in LIBS:
#   Boost::headers  tl::expected  fmt::fmt-header-only  spdlog::spdlog_header_only
#   flatbuffers::headers  nlohmann_json::nlohmann_json  CLI11::CLI11  xxhash::xxhash
#   OpenSSL::SSL  OpenSSL::Crypto  yaml-cpp::yaml-cpp  re2::re2  Threads::Threads
# Header-only forms wherever there is one: libmooncake.so then needs nothing unusual at run time.
set(MC_LEFT_OUT "" CACHE INTERNAL "Lines for the summary")

# mc_find(package [args of find_package]): required, except in the minimal preset.
macro(mc_find package)
  if(MOONCAKE_MINIMAL)
    find_package(${package} ${ARGN} QUIET)
  else()
    find_package(${package} ${ARGN} REQUIRED)
  endif()
endmacro()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(Boost 1.81 REQUIRED CONFIG COMPONENTS headers)
find_package(tl-expected REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenSSL REQUIRED)
mc_find(CLI11)
mc_find(yaml-cpp)

# Debian links spdlog's header-only form to the shared fmt; we want the header-only fmt under it.
set_target_properties(spdlog::spdlog_header_only PROPERTIES
  INTERFACE_LINK_LIBRARIES "Threads::Threads;fmt::fmt-header-only")
set_property(TARGET Boost::headers APPEND PROPERTY INTERFACE_COMPILE_DEFINITIONS
  BOOST_ASIO_NO_DEPRECATED BOOST_ASIO_NO_TS_EXECUTORS BOOST_ERROR_CODE_HEADER_ONLY)

find_program(MC_FLATC flatc REQUIRED)
find_path(MC_FLATBUFFERS_INCLUDE flatbuffers/flatbuffers.h REQUIRED)
add_library(mc_flatbuffers INTERFACE)
target_include_directories(mc_flatbuffers SYSTEM INTERFACE ${MC_FLATBUFFERS_INCLUDE})
add_library(flatbuffers::headers ALIAS mc_flatbuffers)

find_path(MC_XXHASH_INCLUDE xxhash.h REQUIRED)
add_library(mc_xxhash INTERFACE)
target_include_directories(mc_xxhash SYSTEM INTERFACE ${MC_XXHASH_INCLUDE})
target_compile_definitions(mc_xxhash INTERFACE XXH_INLINE_ALL)
add_library(xxhash::xxhash ALIAS mc_xxhash)

if(TARGET yaml-cpp AND NOT TARGET yaml-cpp::yaml-cpp)
  add_library(mc_yaml_cpp INTERFACE)
  target_link_libraries(mc_yaml_cpp INTERFACE yaml-cpp)
  add_library(yaml-cpp::yaml-cpp ALIAS mc_yaml_cpp)
endif()

find_path(MC_RE2_INCLUDE re2/re2.h REQUIRED)
find_library(MC_RE2_LIBRARY re2 REQUIRED)
add_library(mc_re2 INTERFACE)
target_include_directories(mc_re2 SYSTEM INTERFACE ${MC_RE2_INCLUDE})
target_link_libraries(mc_re2 INTERFACE ${MC_RE2_LIBRARY})
add_library(re2::re2 ALIAS mc_re2)

# Debian has these as shared libraries only (or the archive is not for one); the wheel takes them along.
find_library(MC_YAML_CPP_LIBRARY yaml-cpp)

if(MOONCAKE_TESTS)
  find_package(GTest REQUIRED)
  find_package(rapidcheck QUIET)
  if(NOT TARGET rapidcheck AND NOT MOONCAKE_MINIMAL)
    message(FATAL_ERROR "rapidcheck not found; run tools/setup")
  endif()
endif()
if(MOONCAKE_BENCH)
  find_package(benchmark QUIET)
endif()
