# Tests, benches and examples: one test binary a folder, one program for each other source file.
add_custom_target(etch_tests)
add_custom_target(etch_benches)
add_custom_target(etch_examples)

# Links PROGRAM with our flags and the whole library.
function(etch_configure_program program)
  target_include_directories(${program} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
  target_compile_definitions(${program} PRIVATE ETCH_EXAMPLE_DATA="${PROJECT_SOURCE_DIR}/examples/data"
    ETCH_SOURCE_DIR="${PROJECT_SOURCE_DIR}" ETCH_BINARY_DIR="${PROJECT_BINARY_DIR}")
  target_link_libraries(${program} PRIVATE etch_flags nlohmann_json::nlohmann_json ${ETCH_LIBRARIES})
endfunction()

# etch_add_program(FOLDER SOURCE [LIBRARIES...]): build/FOLDER/NAME.
function(etch_add_program folder source)
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  etch_configure_program(${name})
  target_link_libraries(${name} PRIVATE etch absl::flags absl::flags_parse absl::flags_usage ${ARGN})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${folder})
endfunction()

if(ETCH_BUILD_TESTS)
  enable_testing()
  find_package(GTest REQUIRED)
  # The graph is verified after each pass and dead memory is poisoned; kernel caches stay in the build folder;
  # libgomp must not spin, since tests run side by side.
  set(ETCH_TEST_ENVIRONMENT OMP_WAIT_POLICY=passive ETCH_VERIFY=1 ETCH_POISON=1 ETCH_CACHE_DIR=${PROJECT_BINARY_DIR}/kernel_cache
    ASAN_OPTIONS=detect_stack_use_after_return=0:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1
    TSAN_OPTIONS=halt_on_error=1)
  # The sanitizer cannot see how libgomp, on which oneDNN runs, synchronises its threads: let it have none.
  if(ETCH_STD_THREAD_POOL)
    list(APPEND ETCH_TEST_ENVIRONMENT OMP_NUM_THREADS=1)
  endif()

  # What several folders of tests share: tests/*.cpp and tests/support/*.cpp, except a main of their own.
  file(GLOB support CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/support/*.cpp)
  list(FILTER support EXCLUDE REGEX "_test\\.cpp$")
  file(GLOB entries CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/tests/*)
  foreach(folder ${entries})
    if(folder MATCHES "^(support|package)$" OR NOT IS_DIRECTORY ${PROJECT_SOURCE_DIR}/tests/${folder})
      continue()
    endif()
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${folder}/*.cpp)
    if(NOT sources)
      continue()
    endif()
    set(program ${folder}_test)
    add_executable(${program} ${sources})
    etch_configure_program(${program})
    etch_use_cuda_headers(${sources})
    set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    # The lowest layers are linked without the rest, so what they may not use does not link.
    if(folder MATCHES "^(runtime|tracer|codegen)$")
      get_property(chain GLOBAL PROPERTY ETCH_CHAIN_${folder})
      target_link_libraries(${program} PRIVATE ${chain})
    else()
      target_sources(${program} PRIVATE ${support})
      target_link_libraries(${program} PRIVATE etch)
    endif()
    target_link_libraries(${program} PRIVATE GTest::gtest GTest::gtest_main)
    add_dependencies(etch_tests ${program})

    # One ctest entry a suite, listed by the binary itself, so that none can be forgotten.
    set(list ${PROJECT_BINARY_DIR}/tests/${program}.cmake)
    add_custom_command(TARGET ${program} POST_BUILD
      COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:${program}> -DNAME=${folder} -DOUTPUT=${list}
        "-DENVIRONMENT=${ETCH_TEST_ENVIRONMENT}" -DWORKING_DIRECTORY=${PROJECT_BINARY_DIR}/tests
        -P ${PROJECT_SOURCE_DIR}/cmake/list_suites.cmake
      BYPRODUCTS ${list} VERBATIM)
    file(WRITE ${list}.in "if(EXISTS \"${list}\")\n  include(\"${list}\")\nelse()\n"
      "  add_test(${folder}.NOT_BUILT ${program})\nendif()\n")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${list}.in)
  endforeach()
  # The search for programs whose compiled answers differ; ctest runs a fixed number of them in jit_test.
  if(TARGET etch AND EXISTS ${PROJECT_SOURCE_DIR}/tests/fuzz.cpp)
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/jit/program_*.cpp)
    list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
    add_executable(fuzz tests/fuzz.cpp ${sources})
    etch_configure_program(fuzz)
    target_link_libraries(fuzz PRIVATE etch)
    set_target_properties(fuzz PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    add_dependencies(etch_tests fuzz)
    add_test(NAME printed_programs COMMAND bash ${PROJECT_SOURCE_DIR}/tests/printed_programs_test.sh
      $<TARGET_FILE:fuzz> ${CMAKE_CXX_COMPILER})
  endif()
  # libFuzzer programs, one a target of tests/fuzzers/targets.cpp. All but one need no layer above codegen.
  if(ETCH_FUZZERS)
    add_custom_target(etch_fuzzers)
    get_property(chain GLOBAL PROPERTY ETCH_CHAIN_codegen)
    foreach(target parse idx cifar10 kernel_cache)
      add_executable(${target}_fuzzer EXCLUDE_FROM_ALL tests/fuzzers/entry.cpp tests/fuzzers/targets.cpp
        nn/data/cifar10.cpp nn/data/dataset.cpp nn/data/file.cpp nn/data/idx.cpp)
      etch_configure_program(${target}_fuzzer)
      target_compile_definitions(${target}_fuzzer PRIVATE ETCH_FUZZ_TARGET="${target}"
        ETCH_FUZZ_WITHOUT_TENSORS=1)
      target_link_libraries(${target}_fuzzer PRIVATE ${chain} -fsanitize=fuzzer)
      set_target_properties(${target}_fuzzer PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
      add_dependencies(etch_fuzzers ${target}_fuzzer)
    endforeach()
    add_executable(safetensors_fuzzer EXCLUDE_FROM_ALL tests/fuzzers/entry.cpp tests/fuzzers/targets.cpp)
    etch_configure_program(safetensors_fuzzer)
    target_compile_definitions(safetensors_fuzzer PRIVATE ETCH_FUZZ_TARGET="safetensors")
    target_link_libraries(safetensors_fuzzer PRIVATE etch -fsanitize=fuzzer)
    set_target_properties(safetensors_fuzzer PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    add_dependencies(etch_fuzzers safetensors_fuzzer)
  endif()
  if(EXISTS ${PROJECT_SOURCE_DIR}/tests/layering_test.sh)
    add_test(NAME layering COMMAND bash ${PROJECT_SOURCE_DIR}/tests/layering_test.sh)
  endif()
  if(TARGET etch AND EXISTS ${PROJECT_SOURCE_DIR}/etch.h)
    add_dependencies(etch_tests etch)
    add_test(NAME package COMMAND bash ${PROJECT_SOURCE_DIR}/tests/package_test.sh ${PROJECT_BINARY_DIR}
      ${CMAKE_CXX_COMPILER})
  endif()
endif()

if(ETCH_BUILD_EXAMPLES AND TARGET etch)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*.cpp)
  foreach(source ${sources})
    etch_add_program(examples ${source})
    get_filename_component(name ${source} NAME_WE)
    add_dependencies(etch_examples ${name})
  endforeach()
endif()

if(ETCH_BUILD_BENCHES)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bench/*.cpp)
  foreach(source ${sources})
    if(NOT TARGET etch)
      break()
    endif()
    get_filename_component(name ${source} NAME_WE)
    if(name MATCHES "_bench$")
      find_package(benchmark REQUIRED)
      etch_add_program(bench ${source} benchmark::benchmark benchmark::benchmark_main)
      # Hand-written loops beside generated kernels are compiled as those are.
      target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O3>)
    else()
      etch_add_program(bench ${source})
    endif()
    add_dependencies(etch_benches ${name})
  endforeach()

  # Peers are built on demand with plain flags, where their library is installed.
  find_path(ETCH_TORCH_INCLUDE torch/csrc/api/include/torch/torch.h)
  find_library(ETCH_TORCH_LIBRARY torch)
  find_library(ETCH_TORCH_CPU_LIBRARY torch_cpu)
  find_library(ETCH_C10_LIBRARY c10)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bench/peers/libtorch_*.cpp)
  if(ETCH_TORCH_INCLUDE AND ETCH_TORCH_LIBRARY AND ETCH_TORCH_CPU_LIBRARY AND ETCH_C10_LIBRARY)
    foreach(source ${sources})
      get_filename_component(name ${source} NAME_WE)
      add_executable(${name} EXCLUDE_FROM_ALL ${source})
      target_include_directories(${name} SYSTEM PRIVATE ${ETCH_TORCH_INCLUDE}
        ${ETCH_TORCH_INCLUDE}/torch/csrc/api/include)
      target_link_libraries(${name} PRIVATE ${ETCH_TORCH_LIBRARY} ${ETCH_TORCH_CPU_LIBRARY} ${ETCH_C10_LIBRARY}
        OpenMP::OpenMP_CXX Threads::Threads)
      set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
      add_dependencies(etch_benches ${name})
    endforeach()
  endif()
endif()
