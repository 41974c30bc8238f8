# CMake package of an installed Etch: find_package(etch), then link etch::etch.
include(${CMAKE_CURRENT_LIST_DIR}/dependencies.cmake)
get_filename_component(ETCH_XSMM_COPY ${CMAKE_CURRENT_LIST_DIR}/../../libetch_xsmm.a ABSOLUTE)
if(EXISTS ${ETCH_XSMM_COPY} AND NOT TARGET etch::xsmm)
  add_library(etch::xsmm STATIC IMPORTED)
  set_target_properties(etch::xsmm PROPERTIES IMPORTED_LOCATION ${ETCH_XSMM_COPY})
endif()
include(${CMAKE_CURRENT_LIST_DIR}/etch-targets.cmake)
