# The static library of all layers, its installation and its CMake package.
set(objects)
foreach(layer ${ETCH_LAYERS})
  if(TARGET etch_${layer})
    list(APPEND objects $<TARGET_OBJECTS:etch_${layer}>)
  endif()
endforeach()
if(NOT objects)
  return()
endif()

add_library(etch STATIC ${objects})
add_library(etch::etch ALIAS etch)
set_target_properties(etch PROPERTIES LINKER_LANGUAGE CXX)
target_compile_features(etch INTERFACE cxx_std_20)
target_include_directories(etch INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/etch>)
target_link_libraries(etch PRIVATE ${ETCH_LIBRARIES})
if(ETCH_SANITIZE)
  target_link_options(etch INTERFACE -fsanitize=${ETCH_SANITIZE})
endif()

if(TARGET etch::xsmm)
  install(FILES ${ETCH_XSMM_COPY} DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(TARGETS etch EXPORT etch ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${ETCH_LAYERS} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/etch
  FILES_MATCHING PATTERN "*.h" PATTERN "*.def")
install(FILES etch.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/etch OPTIONAL)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/etch)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/generated/etch-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(EXPORT etch NAMESPACE etch:: DESTINATION ${package} FILE etch-targets.cmake)
install(FILES cmake/etch-config.cmake cmake/dependencies.cmake
  ${CMAKE_BINARY_DIR}/generated/etch-config-version.cmake DESTINATION ${package})
