# headrace::sqlite and headrace::sodium: the static archives, so that ours are ours alone; their names stay hidden in
# libheadrace.so. Debian builds them for executables; --exclude-libs (top CMakeLists.txt) is what lets them into a
# shared library.
macro(headrace_static name archive header package)
  find_library(HEADRACE_${name}_ARCHIVE NAMES ${archive})
  find_path(HEADRACE_${name}_INCLUDE ${header})
  if(NOT HEADRACE_${name}_ARCHIVE OR NOT HEADRACE_${name}_INCLUDE)
    message(FATAL_ERROR "${archive} and ${header} are needed: apt-get install ${package}")
  endif()
  add_library(headrace::${name} STATIC IMPORTED GLOBAL)
  set_target_properties(headrace::${name} PROPERTIES
    IMPORTED_LOCATION "${HEADRACE_${name}_ARCHIVE}" INTERFACE_INCLUDE_DIRECTORIES "${HEADRACE_${name}_INCLUDE}"
    INTERFACE_LINK_LIBRARIES "m;dl;Threads::Threads")
endmacro()
headrace_static(sqlite libsqlite3.a sqlite3.h libsqlite3-dev)
headrace_static(sodium libsodium.a sodium.h libsodium-dev)
