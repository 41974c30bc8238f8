# etch_add_layer(NAME [AFTER LAYER]): the object library etch_NAME from the sources below NAME/, if it has any.
# A layer that does not exist is skipped; what comes after it builds on the one before it.
find_package(nlohmann_json REQUIRED)
set(ETCH_CUDA_INCLUDE /usr/local/cuda/include CACHE PATH "Headers of the CUDA toolkit; the libraries are loaded at run time")

# Gives the sources that speak to CUDA the toolkit's headers and ETCH_CUDA_HEADERS.
function(etch_use_cuda_headers)
  set(sources ${ARGN})
  list(FILTER sources INCLUDE REGEX "cuda|nvrtc")
  if(sources AND EXISTS ${ETCH_CUDA_INCLUDE}/nvrtc.h)
    set_property(SOURCE ${sources} APPEND PROPERTY COMPILE_OPTIONS -isystem ${ETCH_CUDA_INCLUDE})
    set_property(SOURCE ${sources} APPEND PROPERTY COMPILE_DEFINITIONS ETCH_CUDA_HEADERS=1)
  endif()
endfunction()

function(etch_add_layer name)
  cmake_parse_arguments(arg "" "AFTER" "" ${ARGN})
  set(before)
  if(arg_AFTER)
    get_property(before GLOBAL PROPERTY ETCH_CHAIN_${arg_AFTER})
  endif()
  set_property(GLOBAL PROPERTY ETCH_CHAIN_${name} ${before})

  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${name}/*.cpp)
  if(NOT sources)
    return()
  endif()
  add_library(etch_${name} OBJECT ${sources})
  target_include_directories(etch_${name} PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
  target_link_libraries(etch_${name} PUBLIC etch_flags ${ETCH_LIBRARIES} nlohmann_json::nlohmann_json)
  etch_use_cuda_headers(${sources})

  set(kernels ${sources})
  list(FILTER kernels INCLUDE REGEX "/eager/cpu/")
  if(kernels)
    set_property(SOURCE ${kernels} APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release>:-O3> -ftree-slp-vectorize)
  endif()
  # The chain names every object library that a program using this layer has to link.
  set_property(GLOBAL PROPERTY ETCH_CHAIN_${name} ${before} etch_${name})
endfunction()
