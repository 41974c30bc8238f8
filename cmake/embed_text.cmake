# Makes the text of a file available to the program as a string constant.

# Run as a script: writes OUTPUT, a C++ source that defines etch::SYMBOL as the text of INPUT.
if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  file(READ ${INPUT} text)
  if(text MATCHES "\\)etch_text\"")
    message(FATAL_ERROR "embed_text: expected no raw string delimiter, got one in ${INPUT}")
  endif()
  get_filename_component(name ${INPUT} NAME)
  file(WRITE ${OUTPUT} "// The text of ${name}.\nnamespace etch {\nextern const char ${SYMBOL}[];\n"
    "const char ${SYMBOL}[] = R\"etch_text(${text})etch_text\";\n}  // namespace etch\n")
  return()
endif()

# etch_embed_text(TARGET FILE SYMBOL): adds `extern const char SYMBOL[]` in namespace etch, the zero-terminated text of
# FILE (relative to the calling folder), to TARGET, which must belong to this folder. It follows changes of FILE.
set(ETCH_EMBED_TEXT_SCRIPT ${CMAKE_CURRENT_LIST_FILE})
function(etch_embed_text target file symbol)
  get_filename_component(input ${file} ABSOLUTE BASE_DIR ${CMAKE_CURRENT_SOURCE_DIR})
  set(output ${CMAKE_CURRENT_BINARY_DIR}/generated/${symbol}.cpp)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DINPUT=${input} -DOUTPUT=${output} -DSYMBOL=${symbol} -P ${ETCH_EMBED_TEXT_SCRIPT}
    DEPENDS ${input} ${ETCH_EMBED_TEXT_SCRIPT} VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()
