// SPDX-License-Identifier: Apache-2.0
#include "headrace/registry/database.h"

#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <unordered_map>

#include "headrace/base/checksum.h"
#include "headrace/registry/fault.h"
#include "headrace/registry/object_store.h"
#include "headrace/registry/registry.h"

namespace headrace::registry {

namespace {

constexpr int kBusyMillis = 30'000;  // readers meet it only in recovery and checkpoint
constexpr size_t kStatementsMax = 128;

Errc code_of(int code, int system_error) {
  switch (code & 0xFF) {
    case SQLITE_FULL: return Errc::out_of_space;
    case SQLITE_IOERR:
      return system_error == ENOSPC || system_error == EDQUOT ? Errc::out_of_space : Errc::io;
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM: return Errc::io;
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return Errc::busy;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return Errc::corrupt;
    case SQLITE_NOMEM: return Errc::out_of_memory;
    case SQLITE_CONSTRAINT: return Errc::already_exists;
    case SQLITE_AUTH:
    case SQLITE_ERROR:
    case SQLITE_TOOBIG: return Errc::invalid_argument;
    default: return Errc::internal;
  }
}

/// What `models sql` may do: read.
int select_only(void*, int action, const char*, const char*, const char*, const char*) {
  switch (action) {
    case SQLITE_SELECT:
    case SQLITE_READ:
    case SQLITE_FUNCTION:
    case SQLITE_RECURSIVE: return SQLITE_OK;
    default: return SQLITE_DENY;
  }
}

/// A closed database on a medium that nobody can write: there WAL's shared memory cannot be made,
/// and is not needed.
bool is_frozen(const base::Path& path) {
  if (::access(path.parent_path().c_str(), W_OK) == 0 || errno != EROFS) {
    return false;
  }
  struct stat info = {};
  return ::stat((path.string() + "-wal").c_str(), &info) != 0 || info.st_size == 0;
}

std::string immutable_uri(const std::string& path) {
  std::string uri = "file:";
  for (const char c : path) {
    if (c == '%' || c == '?' || c == '#') {
      static constexpr char kDigits[] = "0123456789ABCDEF";
      uri += {'%', kDigits[static_cast<unsigned char>(c) >> 4U], kDigits[c & 15]};
    } else {
      uri.push_back(c);
    }
  }
  return uri + "?immutable=1";
}

}  // namespace

struct Statement::Entry {
  sqlite3_stmt* statement = nullptr;
  bool busy = false;
  bool cached = true;
};

struct Database::State {
  base::Path path;
  sqlite3* connection = nullptr;
  std::map<std::string, Statement::Entry, std::less<>> statements;
  std::unordered_map<std::string, int64_t> keys;

  /// Listings build their SQL from conditions, so the number of texts has no bound of its own.
  void trim() {
    if (statements.size() < kStatementsMax) {
      return;
    }
    std::erase_if(statements, [](auto& row) {
      if (!row.second.busy) {
        sqlite3_finalize(row.second.statement);
      }
      return !row.second.busy;
    });
  }

  ~State() {
    for (auto& [sql, entry] : statements) {
      sqlite3_finalize(entry.statement);
    }
    sqlite3_close(connection);
  }
};

Statement::Statement(Database* database, Entry* entry) : database_(database), entry_(entry) {
  entry_->busy = true;
}

Statement::Statement(Statement&& other) noexcept
    : database_(other.database_),
      entry_(std::exchange(other.entry_, nullptr)),
      next_(other.next_),
      bind_error_(other.bind_error_) {}

Statement::~Statement() {
  if (entry_ == nullptr) {
    return;
  }
  if (!entry_->cached) {
    sqlite3_finalize(entry_->statement);
    delete entry_;
    return;
  }
  sqlite3_reset(entry_->statement);
  sqlite3_clear_bindings(entry_->statement);
  entry_->busy = false;
}

void Statement::reset() {
  sqlite3_reset(entry_->statement);
  sqlite3_clear_bindings(entry_->statement);
  next_ = 1;
}

Statement& Statement::bind(int64_t value) {
  bind_error_ |= sqlite3_bind_int64(entry_->statement, next_++, value);
  return *this;
}
Statement& Statement::bind(double value) {
  bind_error_ |= sqlite3_bind_double(entry_->statement, next_++, value);
  return *this;
}
Statement& Statement::bind(std::string_view text) {
  bind_error_ |=
      sqlite3_bind_text64(entry_->statement, next_++, text.data() == nullptr ? "" : text.data(),
                          text.size(), SQLITE_STATIC, SQLITE_UTF8);
  return *this;
}
Statement& Statement::bind_blob(std::span<const std::byte> bytes) {
  bind_error_ |=
      sqlite3_bind_blob64(entry_->statement, next_++,
                          bytes.data() == nullptr ? "" : static_cast<const void*>(bytes.data()),
                          bytes.size(), SQLITE_STATIC);
  return *this;
}
Statement& Statement::bind_null() {
  bind_error_ |= sqlite3_bind_null(entry_->statement, next_++);
  return *this;
}

Result<bool> Statement::step() {
  if (bind_error_ != 0) {
    return database_->error(bind_error_, sqlite3_sql(entry_->statement));
  }
  const int code = sqlite3_step(entry_->statement);
  if (code == SQLITE_ROW) {
    return true;
  }
  if (code == SQLITE_DONE) {
    return false;
  }
  Error error = database_->error(code, sqlite3_sql(entry_->statement));
  sqlite3_reset(entry_->statement);
  return error;
}

Result<void> Statement::run() {
  for (;;) {
    HR_TRY(const bool row, step());
    if (!row) {
      return {};
    }
  }
}

int64_t Statement::integer(int column) const {
  return sqlite3_column_int64(entry_->statement, column);
}
double Statement::real(int column) const {
  return sqlite3_column_double(entry_->statement, column);
}
std::string_view Statement::text(int column) const {
  const unsigned char* text = sqlite3_column_text(entry_->statement, column);
  if (text == nullptr) {
    return {};
  }
  return {reinterpret_cast<const char*>(text),
          static_cast<size_t>(sqlite3_column_bytes(entry_->statement, column))};
}
std::span<const std::byte> Statement::blob(int column) const {
  const void* bytes = sqlite3_column_blob(entry_->statement, column);
  return {static_cast<const std::byte*>(bytes),
          static_cast<size_t>(sqlite3_column_bytes(entry_->statement, column))};
}
bool Statement::is_null(int column) const {
  return sqlite3_column_type(entry_->statement, column) == SQLITE_NULL;
}
Json Statement::json(int column) const {
  switch (sqlite3_column_type(entry_->statement, column)) {
    case SQLITE_INTEGER: return integer(column);
    case SQLITE_FLOAT: return real(column);
    case SQLITE_TEXT: return text(column);
    case SQLITE_BLOB: return base::hex(blob(column));
    default: return {};
  }
}
int Statement::columns() const { return sqlite3_column_count(entry_->statement); }
std::string Statement::column_name(int column) const {
  const char* name = sqlite3_column_name(entry_->statement, column);
  return name == nullptr ? "" : name;
}

Database::Database(std::unique_ptr<State> state) : state_(std::move(state)) {}
Database::~Database() = default;

Error Database::error(int code, std::string_view what) const {
  std::string message = "registry: " + state_->path.string() + ": " +
                        sqlite3_errmsg(state_->connection) + " (SQLite " +
                        std::to_string(sqlite3_extended_errcode(state_->connection)) + ")";
  const int system_error = sqlite3_system_errno(state_->connection);
  const Errc kind = code_of(code, system_error);
  if (kind == Errc::out_of_space) {
    message += "; free space on its disk and try again";
  } else if (kind == Errc::corrupt) {
    message += "; restore it with a copy from backup/ or of headrace models backup";
  } else if (kind == Errc::internal || kind == Errc::already_exists) {
    message += " in " + std::string(what.substr(0, 200));
  }
  return Error{kind, message};
}

Result<std::unique_ptr<Database>> Database::open(const base::Path& path, const Options& options) {
  auto state = std::make_unique<State>();
  state->path = path;
  int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE;
  switch (options.mode) {
    case DatabaseMode::read_only: flags |= SQLITE_OPEN_READONLY; break;
    case DatabaseMode::read_write: flags |= SQLITE_OPEN_READWRITE; break;
    case DatabaseMode::create: flags |= SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE; break;
  }
  // NOFOLLOW refuses a link anywhere in the path; folders may well be links.
  std::error_code ignored;
  const base::Path folder = std::filesystem::canonical(path.parent_path(), ignored);
  const base::Path real = ignored ? path : folder / path.filename();
  if (const auto kind = std::filesystem::status(real, ignored);
      std::filesystem::exists(kind) && !std::filesystem::is_regular_file(kind)) {
    return Error{Errc::invalid_argument,
                 "registry: " + real.string() + " is no regular file; it cannot be the database"};
  }
  std::string name = real.string();
  if (options.mode == DatabaseMode::read_only && is_frozen(real)) {
    name = immutable_uri(name);
    flags |= SQLITE_OPEN_URI;
  }
  if (options.mode == DatabaseMode::create) {
    HR_TRY(make_file(real, options.file_mode));  // SQLite would make it readable for everybody
  }
  const int code = sqlite3_open_v2(name.c_str(), &state->connection, flags, nullptr);
  std::unique_ptr<Database> database(new Database(std::move(state)));
  if (code != SQLITE_OK) {
    return database->error(code, "opening");
  }
  sqlite3* const connection = database->state_->connection;
  sqlite3_busy_timeout(connection, kBusyMillis);
  for (const int setting : {SQLITE_DBCONFIG_DEFENSIVE, SQLITE_DBCONFIG_ENABLE_FKEY}) {
    sqlite3_db_config(connection, setting, 1, nullptr);
  }
  for (const int setting :
       {SQLITE_DBCONFIG_TRUSTED_SCHEMA, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION}) {
    sqlite3_db_config(connection, setting, 0, nullptr);
  }
  // At the end the log is emptied into the database, but its files stay: on a full disk no reader
  // could make them anew.
  int persist = 1;
  sqlite3_file_control(connection, "main", SQLITE_FCNTL_PERSIST_WAL, &persist);
  // mmap_size 0: an I/O error on a mapped page would be SIGBUS.
  HR_TRY(database->execute(
      "PRAGMA cell_size_check=ON; PRAGMA temp_store=MEMORY; PRAGMA cache_size=-16000;"
      "PRAGMA mmap_size=0; PRAGMA wal_autocheckpoint=1000; PRAGMA journal_size_limit=67108864;"));
  HR_TRY(database->execute(options.sync_full ? "PRAGMA synchronous=FULL"
                                             : "PRAGMA synchronous=NORMAL"));
  if (options.select_only) {
    sqlite3_set_authorizer(connection, select_only, nullptr);
  }
  return database;
}

Result<Statement> Database::prepare(std::string_view sql) {
  const auto found = state_->statements.find(sql);
  if (found != state_->statements.end() && !found->second.busy) {
    return Statement(this, &found->second);
  }
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v3(state_->connection, sql.data(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (code != SQLITE_OK) {
    return error(code, sql);
  }
  if (found != state_->statements.end()) {  // in use further up: one of its own
    return Statement(this, new Statement::Entry{statement, false, false});
  }
  state_->trim();
  const auto added = state_->statements.emplace(std::string(sql), Statement::Entry{}).first;
  added->second.statement = statement;
  return Statement(this, &added->second);
}

Result<Statement> Database::prepare_user(std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  const char* tail = nullptr;
  const int code = sqlite3_prepare_v3(state_->connection, sql.data(), static_cast<int>(sql.size()),
                                      0, &statement, &tail);
  if (code != SQLITE_OK) {
    return Error{Errc::invalid_argument, std::string("registry: this SELECT cannot run: ") +
                                             sqlite3_errmsg(state_->connection) +
                                             "; one SELECT is allowed"};
  }
  const std::string_view rest(tail, static_cast<size_t>(sql.data() + sql.size() - tail));
  if (statement == nullptr || rest.find_first_not_of(" \t\r\n;") != std::string_view::npos) {
    sqlite3_finalize(statement);
    return Error{Errc::invalid_argument, "registry: exactly one SELECT is allowed"};
  }
  auto* entry = new Statement::Entry;
  entry->statement = statement;
  entry->cached = false;
  return Statement(this, entry);
}

Result<void> Database::execute(const char* sql) {
  const int code = sqlite3_exec(state_->connection, sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) {
    return error(code, sql);
  }
  return {};
}

Result<int64_t> Database::integer(std::string_view sql) {
  HR_TRY(auto statement, prepare(sql));
  HR_TRY(const bool row, statement.step());
  return row ? statement.integer(0) : 0;
}

int64_t Database::last_id() const { return sqlite3_last_insert_rowid(state_->connection); }
int64_t Database::changes() const { return sqlite3_changes64(state_->connection); }
bool Database::in_transaction() const { return sqlite3_get_autocommit(state_->connection) == 0; }

Result<int64_t> Database::key_id(std::string_view name) {
  const auto found = state_->keys.find(std::string(name));
  if (found != state_->keys.end()) {
    return found->second;
  }
  HR_TRY(auto insert, prepare("INSERT INTO key(name) VALUES(?) ON CONFLICT(name) DO NOTHING"));
  HR_TRY(insert.bind(name).run());
  HR_TRY(auto select, prepare("SELECT id FROM key WHERE name=?"));
  HR_TRY(const bool row, select.bind(name).step());
  HR_CHECK(row, "a key that was just inserted is there");
  const int64_t id = select.integer(0);
  state_->keys.emplace(std::string(name), id);
  return id;
}

void Database::forget_keys() { state_->keys.clear(); }

Database::Guard::Guard(Database* database, std::function<bool()> ends)
    : database_(database), ends_(std::move(ends)) {
  constexpr int kSteps = 4000;  // of SQLite's machine: some 50 us
  const auto ask = [](void* guard) { return static_cast<Guard*>(guard)->ends_() ? 1 : 0; };
  sqlite3_progress_handler(database->state_->connection, kSteps, ask, this);
}

Database::Guard::~Guard() {
  sqlite3_progress_handler(database_->state_->connection, 0, nullptr, nullptr);
}

Result<void> Database::copy_to(const base::Path& target) {
  HR_TRY(auto copy, open(target, {.mode = DatabaseMode::create}));
  sqlite3_backup* backup =
      sqlite3_backup_init(copy->state_->connection, "main", state_->connection, "main");
  if (backup == nullptr) {
    return copy->error(SQLITE_ERROR, "backup");
  }
  // In one step: between steps a writer would make the copy begin again, for ever under load.
  const int code = sqlite3_backup_step(backup, -1);
  fault::point("backup.copied");
  sqlite3_backup_finish(backup);
  if (code != SQLITE_DONE) {
    return copy->error(code, "backup").add_context("copying " + path().string());
  }
  return {};
}

void Database::abandon() { static_cast<void>(state_.release()); }
const base::Path& Database::path() const { return state_->path; }

Result<Transaction> Transaction::begin(Database* database, bool immediate) {
  HR_TRY(database->execute(immediate ? "BEGIN IMMEDIATE" : "BEGIN"));
  return Transaction(database);
}

Transaction::~Transaction() {
  if (database_ != nullptr && database_->in_transaction()) {
    static_cast<void>(database_->execute("ROLLBACK"));
    database_->forget_keys();
  }
}

Result<void> Transaction::commit() {
  HR_TRY(database_->execute("COMMIT"));
  database_ = nullptr;
  return {};
}

std::string sqlite_version() { return sqlite3_libversion(); }

}  // namespace headrace::registry
