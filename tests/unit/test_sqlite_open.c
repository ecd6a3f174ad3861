/*
 * Opening a SQLite store: options, files that are none, rights, names, forks (capabilities 49,
 * 123).
 */
#include <sys/stat.h>
#include <sys/wait.h>

#include "support/enqueue.h"
#include "support/sqlite_world.h"

#include "port/store.h"

#define NOBODY 65534

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void test_options_refused(void **state)
{
    (void)state;
    const struct {
        const char *label;
        pr_sqlite_options opt;
        const char *text;
    } cases[] = {
        {"no size", {.path = "x"}, "size of pr_sqlite_options"},
        {"no path", PR_SQLITE_OPTIONS(.create = true), "path is empty"},
        {"memory", PR_SQLITE_OPTIONS(.path = ":memory:"), "no plain file"},
        {"uri", PR_SQLITE_OPTIONS(.path = "file:x?mode=memory"), "no plain file"},
        {"the command's name", PR_SQLITE_OPTIONS(.path = "sqlite:x", .create = true),
         "give the path alone"},
        {"PostgreSQL", PR_SQLITE_OPTIONS(.path = "postgresql://u:pw@h/x", .create = true),
         "path is an address of PostgreSQL: open it"},
        {"busy < 0", PR_SQLITE_OPTIONS(.path = "x", .busy_ms = -1), "busy_ms is -1"},
        {"busy too long", PR_SQLITE_OPTIONS(.path = "x", .busy_ms = 3600001), "busy_ms"},
        {"body limit", PR_SQLITE_OPTIONS(.path = "x", .body_size_max = 67108865), "body_size_max"},
        {"prefix empty", PR_SQLITE_OPTIONS(.path = "x", .prefix = ""), "[A-Za-z0-9_]"},
        {"prefix quote", PR_SQLITE_OPTIONS(.path = "x", .prefix = "a'b"), "[A-Za-z0-9_]"},
        {"prefix space", PR_SQLITE_OPTIONS(.path = "x", .prefix = "a b"), "[A-Za-z0-9_]"},
        {"prefix semicolon", PR_SQLITE_OPTIONS(.path = "x", .prefix = "a;DROP TABLE b"),
         "[A-Za-z0-9_]"},
        {"prefix schema", PR_SQLITE_OPTIONS(.path = "x", .prefix = "main.a"), "[A-Za-z0-9_]"},
        {"prefix umlaut", PR_SQLITE_OPTIONS(.path = "x", .prefix = "post\xc3\xa4mt"),
         "[A-Za-z0-9_]"},
        {"prefix digit", PR_SQLITE_OPTIONS(.path = "x", .prefix = "1a"), "begins with a digit"},
        {"prefix sqlite", PR_SQLITE_OPTIONS(.path = "x", .prefix = "SQLite_a"), "SQLite's own"},
        {"prefix of 36 bytes",
         PR_SQLITE_OPTIONS(.path = "x", .prefix = "a23456789012345678901234567890123456"),
         "at most 35"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        pr_store *store = NULL;
        check_error(pr_sqlite_store_open(&cases[i].opt, &store, &err), &err, PR_E_INVALID,
                    cases[i].text, cases[i].label);
        assert_int_equal(err.retry, PR_RETRY_NEVER);
        assert_null(store);
    }
    pr_error err = PR_ERROR_INIT;
    check_error(pr_sqlite_store_open(NULL, NULL, &err), &err, PR_E_INVALID, "NULL", "nothing");
}

static pr_status open_path(const char *path, bool create, bool unchecked, pr_error *err)
{
    pr_store *store = NULL;
    pr_sqlite_options opt =
        PR_SQLITE_OPTIONS(.path = path, .create = create, .schema_check_off = unchecked);
    pr_status status = pr_sqlite_store_open(&opt, &store, err);
    pr_store_free(store);
    return status;
}

static void test_files_refused(void **state)
{
    (void)state;
    sqlite_world at;
    pr_error err = PR_ERROR_INIT;
    check_ok(sqlite_world_open(&at, &err), &err, "world");
    char other[320];
    snprintf(other, sizeof other, "%s/other", at.folder);

    check_error(open_path(other, false, true, &err), &err, PR_E_NOT_FOUND, "no file", "missing");
    assert_int_equal(access(other, F_OK), -1); /* and it was not made */
    pr_error_clear(&err);
    check_error(open_path(at.folder, true, true, &err), &err, PR_E_BACKEND, "no regular file",
                "a folder");
    pr_error_clear(&err);
    char deep[340];
    snprintf(deep, sizeof deep, "%s/no/such.db", at.folder);
    check_error(open_path(deep, true, true, &err), &err, PR_E_BACKEND, "rights of its folder",
                "no such folder");

    write_file(other, "this is no database, it is a text that is long enough to be looked at. "
                      "SQLite reads the first hundred bytes as a header, and these are none.");
    pr_error_clear(&err);
    check_error(open_path(other, false, false, &err), &err, PR_E_BACKEND, "not a database", "text");
    assert_int_equal(err.backend_code, SQLITE_NOTADB);
    assert_int_equal(err.retry, PR_RETRY_NEVER);
    assert_non_null(strstr(err.message, other));
    unlink(other);

    write_file(other, ""); /* an empty file is an empty database */
    pr_error_clear(&err);
    check_error(open_path(other, false, false, &err), &err, PR_E_SCHEMA, "postroom migrate",
                "empty");
    unlink(other);
    sqlite_world_close(&at);
}

/* Looking at somebody else's database changes nothing in it, not even its journal mode. */
static void test_foreign_database_untouched(void **state)
{
    (void)state;
    sqlite_world at;
    pr_error err = PR_ERROR_INIT;
    check_ok(sqlite_world_open(&at, &err), &err, "world");
    char other[320];
    char mode[16] = "";
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    snprintf(other, sizeof other, "%s/other", at.folder);
    assert_int_equal(sqlite3_open(other, &db), SQLITE_OK);
    sqlite_run(db, "CREATE TABLE theirs (a)");
    check_error(open_path(other, false, false, &err), &err, PR_E_SCHEMA, "prefix 'postroom'",
                "foreign");
    assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA journal_mode", -1, &stmt, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    snprintf(mode, sizeof mode, "%s", (const char *)sqlite3_column_text(stmt, 0));
    assert_string_equal(mode, "delete");
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    unlink(other);
    sqlite_world_close(&at);
}

/* The short form makes file and schema, finds them again, leaves alone what it does not know. */
static void test_short_form(void **state)
{
    (void)state;
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    sqlite_world at, other;
    pr_error err = PR_ERROR_INIT;
    pr_store *store = NULL;
    check_error(pr_sqlite_open(NULL, &store, &err), &err, PR_E_INVALID, "path is empty", "no path");
    check_ok(sqlite_world_open(&at, NULL), &err, "world");
    pr_error_clear(&err);
    check_error(pr_sqlite_open(at.path, NULL, &err), &err, PR_E_INVALID, "ret_store", "no result");
    pr_error_clear(&err);
    check_error(pr_sqlite_open(at.folder, &store, &err), &err, PR_E_BACKEND, "no regular file",
                "a folder");
    assert_null(store);
    other = at;
    snprintf(other.path, sizeof other.path, "%s/other", at.folder);
    pr_error_clear(&err);
    for (int i = 0; i < 2; i++) {
        check_ok(pr_sqlite_open(other.path, &store, &err), &err, i == 0 ? "made" : "found");
        check_ok(pr_store_check(store, &err), &err, "check");
        store = pr_store_free(store);
    }
    assert_true(sqlite_world_number(&other,
                                    "INSERT INTO postroom_schema_version VALUES (999, "
                                    "'later', 0) RETURNING version",
                                    NULL) == 999);
    check_error(pr_sqlite_open(other.path, &store, &err), &err, PR_E_SCHEMA, "999", "newer");
    assert_null(store);
    for (size_t i = 0; i < COUNT_OF(suffixes); i++) {
        char path[340];
        snprintf(path, sizeof path, "%s%s", other.path, suffixes[i]);
        unlink(path);
    }
    sqlite_world_close(&at);
}

/* Rights do not bind root, so that the child becomes nobody. */
static int in_child_as_nobody(int (*work)(const char *path), const char *path)
{
    pid_t pid = fork();
    if (pid == 0) {
        if (getuid() == 0 && (setgid(NOBODY) != 0 || setuid(NOBODY) != 0))
            _exit(100);
        _exit(work(path));
    }
    int how = 0;
    assert_true(pid > 0 && waitpid(pid, &how, 0) == pid);
    return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
}

static int says_read_only(const char *path)
{
    pr_error err = PR_ERROR_INIT;
    pr_status status = open_path(path, false, false, &err);
    if (status == PR_E_BACKEND && strstr(err.message, "writable") && strstr(err.message, path))
        return 0;
    fprintf(stderr, "# %s\n", err.message);
    return 1;
}

static void test_read_only(void **state)
{
    (void)state;
    sqlite_world at;
    pr_error err = PR_ERROR_INIT;
    check_ok(sqlite_world_open(&at, &err), &err, "world");
    assert_int_equal(chmod(at.folder, 0777), 0);
    assert_int_equal(chmod(at.path, 0444), 0);
    assert_int_equal(in_child_as_nobody(says_read_only, at.path), 0);
    assert_int_equal(chmod(at.path, 0666), 0);
    assert_int_equal(chmod(at.folder, 0555), 0); /* no WAL can be made beside it */
    assert_int_equal(in_child_as_nobody(says_read_only, at.path), 0);
    assert_int_equal(chmod(at.folder, 0755), 0);
    sqlite_world_close(&at);
}

static void test_two_installations(void **state)
{
    (void)state;
    sqlite_world at;
    pr_error err = PR_ERROR_INIT;
    check_ok(sqlite_world_open(&at, &err), &err, "world");
    pr_store *stores[2] = {NULL, NULL};
    static const char *const prefixes[] = {"postroom", "Other_1"};
    for (int i = 0; i < 2; i++) {
        pr_sqlite_options opt =
            PR_SQLITE_OPTIONS(.path = at.path, .prefix = prefixes[i], .schema_check_off = true);
        check_ok(pr_sqlite_store_open(&opt, &stores[i], &err), &err, prefixes[i]);
        check_ok(pr_store_migrate(stores[i], NULL, NULL, &err), &err, prefixes[i]);
        check_ok(pr_store_check(stores[i], &err), &err, prefixes[i]);
    }
    pr_message message = PR_MESSAGE(.type = "urn:message:shop:a", .destination = "b://in/x");
    enqueue_and_commit(stores[1], &message);
    pr__claim_options opt = {.reader = 1, .lease_ms = 1000, .batch_max = 10, .bytes_max = 1000};
    pr__batch *batch = NULL;
    check_ok(pr__store_claim(stores[0], &opt, &batch, &err), &err, "the other one");
    assert_null(batch);
    check_ok(pr__store_claim(stores[1], &opt, &batch, &err), &err, "its own");
    assert_int_equal(batch->item_count, 1);
    pr__batch_free(batch);
    pr_store_free(stores[0]);
    pr_store_free(stores[1]);
    sqlite_world_close(&at);
}

static void test_pragmas(void **state)
{
    (void)state;
    sqlite_world at;
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = NULL;
    pr_store *store = sqlite_world_begin(&at, 0);
    sqlite3 *host = sqlite_world_connect(&at);
    check_error(pr_sqlite_prepare(NULL, 0, &err), &err, PR_E_INVALID, "NULL", "no handle");
    pr_error_clear(&err);
    check_error(pr_sqlite_prepare(host, -1, &err), &err, PR_E_INVALID, "busy_ms", "busy < 0");
    pr_error_clear(&err);
    sqlite_run(host, "BEGIN");
    check_error(pr_sqlite_prepare(host, 0, &err), &err, PR_E_STATE, "open", "in a transaction");
    pr_error_clear(&err);
    sqlite_run(host, "ROLLBACK");
    check_ok(pr_sqlite_prepare(host, 0, &err), &err, "prepare");
    check_ok(pr_unit_begin(store, &unit, &err), &err, "begin");
    sqlite3 *dbs[] = {host, pr_sqlite_unit_connection(unit)};
    static const struct {
        const char *sql;
        const char *wanted;
    } pragmas[] = {{"PRAGMA journal_mode", "wal"},
                   {"PRAGMA synchronous", "2"},
                   {"PRAGMA wal_autocheckpoint", "0"}};
    for (size_t d = 0; d < 2; d++) {
        for (size_t i = 0; i < COUNT_OF(pragmas); i++) {
            sqlite3_stmt *stmt = NULL;
            assert_int_equal(sqlite3_prepare_v2(dbs[d], pragmas[i].sql, -1, &stmt, NULL), 0);
            assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
            assert_string_equal((const char *)sqlite3_column_text(stmt, 0), pragmas[i].wanted);
            sqlite3_finalize(stmt);
        }
    }
    pr_unit_free(unit);
    pr_store_free(store);
    sqlite3_close(host);
    sqlite_world_close(&at);
}

static void test_fork_refused(void **state)
{
    (void)state;
    sqlite_world at;
    pr_error err = PR_ERROR_INIT;
    pr_store *store = sqlite_world_begin(&at, 0);
    pid_t pid = fork();
    if (pid == 0) {
        pr_unit *unit = NULL;
        bool refused =
            pr_unit_begin(store, &unit, &err) == PR_E_STATE && strstr(err.message, "fork") != NULL;
        _exit(refused ? 0 : 1); /* without closing anything of the parent's */
    }
    int how = 0;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    sqlite_world_end(&at, store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_refused), cmocka_unit_test(test_files_refused),
        cmocka_unit_test(test_short_form),      cmocka_unit_test(test_foreign_database_untouched),
        cmocka_unit_test(test_read_only),       cmocka_unit_test(test_two_installations),
        cmocka_unit_test(test_pragmas),         cmocka_unit_test(test_fork_refused),
    };
    return RUN_TESTS(tests);
}
