# find_package(headrace) -> headrace::headrace, the library with its headers for C++20 (and for C: hr_comm_*). The public
# headers need nothing but the standard library; headrace/comm/torch_*.h need LibTorch: find_package(Torch).
include("${CMAKE_CURRENT_LIST_DIR}/headrace-targets.cmake")
