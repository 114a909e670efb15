// SPDX-License-Identifier: Apache-2.0
// The boards of a run: where they lie, which processes they belong to, and their sum.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/board.h"
#include "headrace/base/clock.h"
#include "headrace/base/export.h"
#include "headrace/base/file.h"

namespace headrace::base {

/// Where a board lies whose options name no folder: /dev/shm/headrace-UID/RUN, or below the folder
/// for temporary files when /dev/shm is missing or smaller than 16 MiB.
HR_API Path board_folder(std::string_view run);

/// When a process started, in clock ticks since the boot (field 22 of /proc/PID/stat); nullopt:
/// there is none.
HR_API std::optional<uint64_t> start_ticks_of(int64_t pid);

/// The boards in a folder, by name. None when it cannot be read.
HR_API std::vector<Path> boards_in(const Path& folder);

/// Does the process that counts on it still run? It holds a lock on the file, which the kernel
/// takes back at its end, also where its pid says nothing here (another container).
HR_API bool board_is_alive(const Path& board);

/// Remove a run's boards whose processes are gone, and the folder when nothing is left in it. Only
/// for who knows that nobody makes a board there at this moment.
HR_API void remove_dead_boards(const Path& folder);
/// The same for all runs of this user of which no process is left and whose folder has not changed
/// for `age`: what killed processes left behind.
HR_API void remove_left_boards(Micros age = std::chrono::minutes(1));

/// Add the counters and histograms of `one` to `all`; a gauge is added only when `all` has none of
/// this name and labels.
HR_API void add_board(BoardSnapshot* all, const BoardSnapshot& one);
/// Count the counters and histograms of `one` on `board`: a process has gone, its numbers stay.
HR_API void fold_board(Board* board, const BoardSnapshot& one);

}  // namespace headrace::base
