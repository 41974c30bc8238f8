# Writes OUTPUT with one ctest entry for each suite of the GoogleTest binary PROGRAM.
execute_process(COMMAND ${PROGRAM} --gtest_list_tests OUTPUT_VARIABLE listing RESULT_VARIABLE failed
  WORKING_DIRECTORY ${WORKING_DIRECTORY})
if(failed)
  message(FATAL_ERROR "${PROGRAM} --gtest_list_tests failed: ${failed}")
endif()
string(REPLACE ";" "\\;" listing "${listing}")
string(REPLACE "\n" ";" lines "${listing}")
set(text "")
foreach(line ${lines})
  string(REGEX REPLACE " *#.*" "" line "${line}")
  if(NOT line MATCHES "^([^ ]+)\\.$")
    continue()
  endif()
  set(suite ${CMAKE_MATCH_1})
  string(APPEND text "add_test([[${NAME}.${suite}]] [[${PROGRAM}]] [[--gtest_filter=${suite}.*]] --gtest_brief=1)\n"
    "set_tests_properties([[${NAME}.${suite}]] PROPERTIES TIMEOUT 900 WORKING_DIRECTORY [[${WORKING_DIRECTORY}]]"
    " ENVIRONMENT [[${ENVIRONMENT}]])\n")
endforeach()
file(WRITE ${OUTPUT} "${text}")
