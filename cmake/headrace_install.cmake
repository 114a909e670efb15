# What `cmake --install` and the wheel give to users of C++ and C: the library, the public headers and
# the package that find_package(headrace) finds. Paths in it are relative, so the tree may be moved.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
if(SKBUILD)
  set(headrace_library_folder headrace)
  set(headrace_include_folder headrace/include)
  set(headrace_package_folder headrace/cmake)
  # auditwheel puts the libraries of Arrow beside the package and names them.
  set_target_properties(headrace PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS headrace_bin RUNTIME DESTINATION headrace/bin)
else()
  set(headrace_library_folder ${CMAKE_INSTALL_LIBDIR})
  set(headrace_include_folder ${CMAKE_INSTALL_INCLUDEDIR})
  set(headrace_package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/headrace)
  # Copies of our own: whoever replaces the pyarrow that the build used does not break this tree.
  set_target_properties(headrace PROPERTIES INSTALL_RPATH "$ORIGIN/headrace")
  install(FILES $<TARGET_FILE:WheelArrow::arrow> $<TARGET_FILE:WheelArrow::parquet>
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/headrace)
  file(RELATIVE_PATH libraries_of_bin "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}")
  set_target_properties(headrace_bin PROPERTIES INSTALL_RPATH "$ORIGIN/${libraries_of_bin}")
  install(TARGETS headrace_bin RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

install(TARGETS headrace EXPORT headrace_targets
  LIBRARY DESTINATION ${headrace_library_folder} INCLUDES DESTINATION ${headrace_include_folder})
install(CODE "set(HEADRACE_SOURCE \"${PROJECT_SOURCE_DIR}\")
set(HEADERS_DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${headrace_include_folder}\")
set(HEADERS_ONLY headrace/comm/torch_adapter.h headrace/comm/torch_gradients.h)")
install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/install_headers.cmake)
install(EXPORT headrace_targets NAMESPACE headrace:: FILE headrace-targets.cmake
        DESTINATION ${headrace_package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/headrace-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_LIST_DIR}/headrace-config.cmake ${PROJECT_BINARY_DIR}/headrace-config-version.cmake
        DESTINATION ${headrace_package_folder})
