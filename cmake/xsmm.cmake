# Finds libxsmm, which multiplies batches of small matrices. Optional: without it, or with -DETCH_XSMM_LIBRARY=OFF,
# oneDNN does.
# The target etch::xsmm is a copy of the static library. Its BLAS fallback, which Etch never calls, is weak in the copy:
# a program needs no BLAS, and one that has a BLAS keeps it. (libxsmmnoblas.a would define sgemm_ and the like.)
find_path(ETCH_XSMM_INCLUDE libxsmm.h)
find_library(ETCH_XSMM_LIBRARY libxsmm.a)
if(NOT ETCH_XSMM_INCLUDE OR NOT ETCH_XSMM_LIBRARY OR NOT CMAKE_OBJCOPY)
  message(STATUS "etch: no libxsmm (package libxsmm-dev) or no objcopy; batches of small products go to oneDNN")
  return()
endif()

set(ETCH_XSMM_COPY ${CMAKE_BINARY_DIR}/generated/libetch_xsmm.a)
if(NOT EXISTS ${ETCH_XSMM_COPY} OR ${ETCH_XSMM_LIBRARY} IS_NEWER_THAN ${ETCH_XSMM_COPY})
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/generated)
  set(weaken)
  foreach(symbol sgemm_ dgemm_ sgemv_ dgemv_)
    list(APPEND weaken --weaken-symbol=${symbol})
  endforeach()
  execute_process(COMMAND ${CMAKE_OBJCOPY} ${weaken} ${ETCH_XSMM_LIBRARY} ${ETCH_XSMM_COPY} COMMAND_ERROR_IS_FATAL ANY)
endif()
add_library(etch::xsmm STATIC IMPORTED)
set_target_properties(etch::xsmm PROPERTIES IMPORTED_LOCATION ${ETCH_XSMM_COPY}
  INTERFACE_INCLUDE_DIRECTORIES ${ETCH_XSMM_INCLUDE})
list(PREPEND ETCH_LIBRARIES etch::xsmm)  # before the system libraries that it uses
set_property(SOURCE ${PROJECT_SOURCE_DIR}/eager/cpu/tile_product.cpp APPEND PROPERTY
  COMPILE_DEFINITIONS ETCH_HAVE_XSMM=1)
