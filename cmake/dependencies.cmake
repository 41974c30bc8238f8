# Finds what the library links. The installed package runs this file too.
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Threads REQUIRED)
find_package(absl REQUIRED)

# By header and library: the packaged CMake file of oneDNN asks for OpenCL's headers, which Etch does not need.
find_path(ETCH_DNNL_INCLUDE dnnl.hpp)
find_library(ETCH_DNNL_LIBRARY dnnl)
if(NOT ETCH_DNNL_INCLUDE OR NOT ETCH_DNNL_LIBRARY)
  message(FATAL_ERROR "etch: expected oneDNN (dnnl.hpp and libdnnl); install libdnnl-dev")
endif()
if(NOT TARGET etch::dnnl)
  add_library(etch::dnnl UNKNOWN IMPORTED)
  set_target_properties(etch::dnnl PROPERTIES IMPORTED_LOCATION ${ETCH_DNNL_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${ETCH_DNNL_INCLUDE})
endif()

set(ETCH_LIBRARIES etch::dnnl OpenMP::OpenMP_CXX Threads::Threads absl::flat_hash_map absl::flat_hash_set
  absl::hash absl::inlined_vector absl::span absl::strings absl::str_format
  absl::function_ref absl::cleanup ${CMAKE_DL_LIBS})
