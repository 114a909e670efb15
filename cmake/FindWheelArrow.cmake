# Arrow C++ out of the installed pyarrow wheel: WheelArrow::arrow, WheelArrow::parquet, WHEELARROW_ROOT.
# The wheel ships headers and shared libraries, but no CMake configuration.
include(FindPackageHandleStandardArgs)
if(NOT WHEELARROW_ROOT)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -c
            "import importlib.util as u; print(u.find_spec('pyarrow').submodule_search_locations[0])"
    OUTPUT_VARIABLE WHEELARROW_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
set(_config "${WHEELARROW_ROOT}/include/arrow/util/config.h")
if(EXISTS "${_config}")
  file(STRINGS "${_config}" _line REGEX "define ARROW_VERSION_STRING ")
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" WheelArrow_VERSION "${_line}")
endif()
set(_wheelarrow_complete TRUE)
foreach(_name arrow parquet)
  file(GLOB _library LIST_DIRECTORIES false "${WHEELARROW_ROOT}/lib${_name}.so.*")
  if(NOT _library)
    set(_wheelarrow_complete FALSE)
    continue()
  endif()
  list(GET _library 0 _library)
  get_filename_component(_soname "${_library}" NAME)
  if(NOT TARGET WheelArrow::${_name})
    add_library(WheelArrow::${_name} SHARED IMPORTED GLOBAL)
    set_target_properties(WheelArrow::${_name} PROPERTIES
      IMPORTED_LOCATION "${_library}" IMPORTED_SONAME "${_soname}"
      INTERFACE_INCLUDE_DIRECTORIES "${WHEELARROW_ROOT}/include" INTERFACE_COMPILE_FEATURES cxx_std_20)
  endif()
endforeach()
if(TARGET WheelArrow::parquet)
  target_link_libraries(WheelArrow::parquet INTERFACE WheelArrow::arrow)
endif()
find_package_handle_standard_args(WheelArrow
  REQUIRED_VARS WHEELARROW_ROOT _wheelarrow_complete VERSION_VAR WheelArrow_VERSION)
