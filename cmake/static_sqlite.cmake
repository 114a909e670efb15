# headrace::sqlite: the static archive, so that our SQLite is ours alone; its names stay hidden in libheadrace.so.
# Debian builds it position-independent; --exclude-libs (top CMakeLists.txt) is what lets it into a shared library.
find_library(HEADRACE_SQLITE_ARCHIVE NAMES libsqlite3.a HINTS ${SQLITE_LIBRARY_DIRS})
find_path(HEADRACE_SQLITE_INCLUDE sqlite3.h HINTS ${SQLITE_INCLUDE_DIRS})
if(NOT HEADRACE_SQLITE_ARCHIVE OR NOT HEADRACE_SQLITE_INCLUDE)
  message(FATAL_ERROR "libsqlite3.a and sqlite3.h are needed: apt-get install libsqlite3-dev")
endif()
add_library(headrace::sqlite STATIC IMPORTED GLOBAL)
set_target_properties(headrace::sqlite PROPERTIES
  IMPORTED_LOCATION "${HEADRACE_SQLITE_ARCHIVE}" INTERFACE_INCLUDE_DIRECTORIES "${HEADRACE_SQLITE_INCLUDE}"
  INTERFACE_LINK_LIBRARIES "m;dl;Threads::Threads")
