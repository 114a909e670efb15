# Turn text files into one C++ source with string_view constants, at build time and by CMake alone.
#
# headrace_embed_text(OUT_VARIABLE NAME NAMESPACE ... TEXTS kName=file[+file...] ...) makes
# ${CMAKE_CURRENT_BINARY_DIR}/NAME.cc, which defines the constants that a header declares; files joined by + follow
# one another. Run as a script (cmake -P) it writes that source.
if(CMAKE_SCRIPT_MODE_FILE)
  set(source "// Written by cmake/embed_text.cmake.\n#include <string_view>\n\nnamespace ${NAMESPACE} {\n")
  string(APPEND source "extern const std::string_view ${FIRST_NAMES};\n")
  string(REPLACE "|" ";" texts "${TEXTS}")
  foreach(entry ${texts})
    string(REGEX MATCH "^([A-Za-z]+)=(.*)$" _ "${entry}")
    set(name ${CMAKE_MATCH_1})
    string(REPLACE "+" ";" files "${CMAKE_MATCH_2}")
    set(text "")
    foreach(file ${files})
      file(READ "${file}" content)
      string(APPEND text "${content}")
    endforeach()
    string(APPEND source "const std::string_view ${name} = R\"hrtext(${text})hrtext\";\n")
  endforeach()
  file(WRITE "${OUTPUT}" "${source}}  // namespace ${NAMESPACE}\n")
  return()
endif()

set(HEADRACE_EMBED_TEXT ${CMAKE_CURRENT_LIST_FILE})
function(headrace_embed_text out name)
  cmake_parse_arguments(arg "" "NAMESPACE" "TEXTS" ${ARGN})
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc)
  set(depends "")
  set(names "")
  foreach(entry ${arg_TEXTS})
    string(REGEX MATCH "^([A-Za-z]+)=(.*)$" _ "${entry}")
    list(APPEND names ${CMAKE_MATCH_1})
    string(REPLACE "+" ";" files "${CMAKE_MATCH_2}")
    list(APPEND depends ${files})
  endforeach()
  list(JOIN names ", " names)
  list(JOIN arg_TEXTS "|" texts)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DNAMESPACE=${arg_NAMESPACE} "-DFIRST_NAMES=${names}" "-DTEXTS=${texts}"
            -DOUTPUT=${output} -P ${HEADRACE_EMBED_TEXT}
    DEPENDS ${depends} ${HEADRACE_EMBED_TEXT}
    WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}
    VERBATIM)
  set(${out} ${output} PARENT_SCOPE)
endfunction()
