// SPDX-License-Identifier: Apache-2.0
#include "headrace/comm/gpu/library_search.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <filesystem>
#include <system_error>
#include <utility>

namespace headrace::comm {

namespace {

std::string path_of(void* handle, const std::string& asked) {
  link_map* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0 && map != nullptr &&
      map->l_name != nullptr && *map->l_name != '\0') {
    return map->l_name;
  }
  return asked;
}

std::string refusal(const LibraryPlace& place) {
  if (place.mapped_only) {
    return "not loaded";
  }
  const char* said = ::dlerror();
  return said != nullptr ? said : "the loader does not say why not";
}

}  // namespace

std::vector<LibraryPlace> library_places(std::span<const std::string_view> names,
                                         std::span<const std::string> folders) {
  std::vector<LibraryPlace> places;
  for (const std::string_view name : names) {
    places.push_back({std::string(name), "this process", true});
  }
  for (const std::string& folder : folders) {
    for (const std::string_view name : names) {
      const auto file = std::filesystem::path(folder) / name;
      std::error_code ignored;
      // Most folders have one of the names; the others would only make the message longer.
      if (names.size() == 1 || std::filesystem::exists(file, ignored)) {
        places.push_back({file.string(), folder, false});
      }
    }
  }
  for (const std::string_view name : names) {
    places.push_back({std::string(name), "the system", false});
  }
  return places;
}

Result<OpenLibrary> OpenLibrary::open(std::string_view what, std::span<const LibraryPlace> places) {
  std::string looked;
  for (const LibraryPlace& place : places) {
    const int mode = RTLD_NOW | RTLD_LOCAL | (place.mapped_only ? RTLD_NOLOAD : 0);
    if (void* handle = ::dlopen(place.path.c_str(), mode); handle != nullptr) {
      return OpenLibrary(handle, path_of(handle, place.path), place.told_by);
    }
    looked += fmt::format("{}{} ({}): {}", looked.empty() ? "" : "; ", place.path, place.told_by,
                          refusal(place));
  }
  return Error{Errc::unsupported, fmt::format("{} was not found. Looked for: {}", what, looked)};
}

void* OpenLibrary::symbol(const char* name) const { return ::dlsym(handle_, name); }

Error OpenLibrary::missing(const char* name) const {
  return {Errc::unsupported, fmt::format("{} has no function {}", path_, name)};
}

}  // namespace headrace::comm
