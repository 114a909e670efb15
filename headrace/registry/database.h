// SPDX-License-Identifier: Apache-2.0
// The one door to SQLite: a connection with the settings of the registry, cached statements, errors
// as values. SQLite's names stand in database.cc alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/clock.h"
#include "headrace/base/file.h"
#include "headrace/base/json.h"
#include "headrace/base/result.h"

namespace headrace::registry {

class Database;

/// One use of a prepared statement; goes back to the connection's cache at destruction. Parameters
/// count from 1, columns from 0. Texts and blobs that are bound must live until the last `step`;
/// column texts are valid until the next `step`.
class Statement {
 public:
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&&) = delete;
  ~Statement();

  Statement& bind(int64_t value);
  Statement& bind(double value);  ///< NaN becomes NULL
  Statement& bind(std::string_view text);
  Statement& bind_blob(std::span<const std::byte> bytes);
  Statement& bind_null();
  Statement& bind_text_or_null(std::string_view text) {
    return text.empty() ? bind_null() : bind(text);
  }

  /// True when there is a row.
  Result<bool> step();
  /// Run to the end, ignoring rows.
  Result<void> run();
  /// Ready for the next set of parameters.
  void reset();

  int64_t integer(int column) const;
  double real(int column) const;
  std::string_view text(int column) const;
  std::span<const std::byte> blob(int column) const;
  bool is_null(int column) const;
  Json json(int column) const;  ///< as it is: integer, number, text, hex of a blob, or null
  int columns() const;
  std::string column_name(int column) const;

 private:
  friend class Database;
  struct Entry;
  Statement(Database* database, Entry* entry);
  Database* database_;
  Entry* entry_;
  int next_ = 1;
  int bind_error_ = 0;
};

enum class DatabaseMode { read_only, read_write, create };

/// One connection, used by one thread at a time.
class Database {
 public:
  struct Options {
    DatabaseMode mode = DatabaseMode::read_only;
    bool sync_full = true;      ///< PRAGMA synchronous=FULL, else NORMAL
    bool select_only = false;   ///< refuse everything but reading (an authorizer asks)
    unsigned file_mode = 0600;  ///< of a file that is made; its log's files get the same
  };
  static Result<std::unique_ptr<Database>> open(const base::Path& path, const Options& options);
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  ~Database();

  /// A statement from the cache, or prepared. `sql` must be a literal of ours.
  Result<Statement> prepare(std::string_view sql);
  /// The same for a text of a user: not cached, exactly one statement.
  Result<Statement> prepare_user(std::string_view sql);
  /// Run statements without parameters or rows.
  Result<void> execute(const char* sql);
  Result<int64_t> integer(std::string_view sql);
  int64_t last_id() const;
  int64_t changes() const;
  bool in_transaction() const;

  /// Ids of names of metrics, parameters and tags, cached; forget them after a rollback.
  Result<int64_t> key_id(std::string_view name);
  void forget_keys();

  /// While it lives, statements end with an error once `ends` says so.
  class Guard {
   public:
    Guard(Database* database, std::function<bool()> ends);
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    ~Guard();

   private:
    Database* database_;
    std::function<bool()> ends_;
  };

  /// Copy everything into a new file by the backup interface.
  Result<void> copy_to(const base::Path& target);
  /// Never touch the file again, not even to close it: for the child of a fork.
  void abandon();
  const base::Path& path() const;

 private:
  friend class Statement;
  struct State;
  explicit Database(std::unique_ptr<State> state);
  Error error(int code, std::string_view what) const;
  std::unique_ptr<State> state_;
};

/// BEGIN at construction, ROLLBACK at destruction unless committed.
class Transaction {
 public:
  static Result<Transaction> begin(Database* database, bool immediate);
  Transaction(Transaction&& other) noexcept : database_(std::exchange(other.database_, nullptr)) {}
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();
  Result<void> commit();

 private:
  explicit Transaction(Database* database) : database_(database) {}
  Database* database_;
};

}  // namespace headrace::registry
