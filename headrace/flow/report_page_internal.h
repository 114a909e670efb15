// SPDX-License-Identifier: Apache-2.0
// The files of report_page/ as text; the build writes their definitions (cmake/embed_text.cmake).
#pragma once

#include <string_view>

namespace headrace::flow {

extern const std::string_view kReportHtml;
extern const std::string_view kReportCss;
extern const std::string_view kReportScript;  ///< all .js files, in the order of CMakeLists.txt

}  // namespace headrace::flow
