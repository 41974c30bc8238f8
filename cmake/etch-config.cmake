# CMake package of an installed Etch: find_package(etch), then link etch::etch.
include(${CMAKE_CURRENT_LIST_DIR}/dependencies.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/etch-targets.cmake)
