/*
 * Databases for benchmarks.
 */
#include "database.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "base/time.h"

#define FILL_TRANSACTION 1000
#define BENCH_TYPE       "urn:message:bench:measured"

void bench_fail(const char *what, const char *why)
{
    fprintf(stderr, "postroom-bench: %s: %s\n", what, why);
    exit(1);
}

void bench_check_drained(uint64_t drained, uint64_t expected, const char *what)
{
    char why[80];
    if (drained == expected)
        return;
    pr__format(why, sizeof why, "%llu of %llu messages came", (unsigned long long)drained,
               (unsigned long long)expected);
    bench_fail(what, why);
}

void bench_check(pr_status status, const pr_error *err, const char *what)
{
    if (status != PR_OK)
        bench_fail(what, err->message);
}

void bench_check_sqlite(int result, sqlite3 *db, const char *what)
{
    if (result != SQLITE_OK && result != SQLITE_ROW && result != SQLITE_DONE)
        bench_fail(what, sqlite3_errmsg(db));
}

bench_folder bench_folder_make(void)
{
    bench_folder folder;
    const char *base = getenv("TMPDIR");
    pr__format(folder.path, sizeof folder.path, "%s/postroom-bench-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(folder.path))
        bench_fail("make a folder", folder.path);
    return folder;
}

void bench_folder_remove(const bench_folder *folder)
{
    DIR *dir = opendir(folder->path);
    if (!dir)
        return;
    for (struct dirent *entry; (entry = readdir(dir));)
        (void)unlinkat(dirfd(dir), entry->d_name, 0); /* "." and ".." refuse */
    closedir(dir);
    (void)rmdir(folder->path);
}

pr_store *bench_store_open(const char *path)
{
    pr_error err = PR_ERROR_INIT;
    pr_sqlite_options opt =
        PR_SQLITE_OPTIONS(.create = true, .schema_check_off = true, .path = path);
    pr_store *store = NULL;
    bench_check(pr_sqlite_store_open(&opt, &store, &err), &err, "open a store");
    bench_check(pr_store_migrate(store, NULL, NULL, &err), &err, "migrate");
    bench_check(pr_store_check(store, &err), &err, "check the store");
    return store;
}

sqlite3 *bench_connection_open(const char *path)
{
    pr_error err = PR_ERROR_INIT;
    sqlite3 *db = NULL;
    bench_check_sqlite(sqlite3_open(path, &db), db, "open a connection");
    bench_check(pr_sqlite_prepare(db, 0, &err), &err, "prepare a connection");
    return db;
}

void bench_exec(sqlite3 *db, const char *sql)
{
    bench_check_sqlite(sqlite3_exec(db, sql, NULL, NULL, NULL), db, sql);
}

sqlite3_stmt *bench_prepare(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *stmt = NULL;
    bench_check_sqlite(sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &stmt, NULL), db,
                       sql);
    return stmt;
}

void bench_bare_create(sqlite3 *db)
{
    bench_exec(db, "CREATE TABLE bare (id INTEGER PRIMARY KEY AUTOINCREMENT, message_id TEXT, "
                   "type TEXT, type_version INTEGER, content_type TEXT, key TEXT, body BLOB, "
                   "occurred_at INTEGER, published INTEGER NOT NULL DEFAULT 0) STRICT");
}

sqlite3_stmt *bench_bare_insert(sqlite3 *db)
{
    return bench_prepare(db, "INSERT INTO bare (message_id, type, type_version, content_type, key, "
                             "body, occurred_at) VALUES (?, ?, ?, ?, ?, ?, ?)");
}

void bench_bare_bind(sqlite3_stmt *insert, const pr_message *message)
{
    static const char id[] = "0193a0de-7c1b-7e55-9f2e-0123456789ab";
    sqlite3_bind_text(insert, 1, id, sizeof id - 1, SQLITE_STATIC);
    sqlite3_bind_text(insert, 2, message->type, -1, SQLITE_STATIC);
    sqlite3_bind_int64(insert, 3, 1);
    sqlite3_bind_text(insert, 4, "application/json", -1, SQLITE_STATIC);
    sqlite3_bind_text(insert, 5, message->key, -1, SQLITE_STATIC);
    sqlite3_bind_blob64(insert, 6, message->body, message->body_size_bytes, SQLITE_STATIC);
    sqlite3_bind_int64(insert, 7, pr__wall_us());
}

pr_message bench_message(uint64_t i, uint64_t keys, const void *body, char key[32])
{
    if (keys)
        pr__format(key, 32, "order-%llu", (unsigned long long)(i % keys));
    return (pr_message)PR_MESSAGE(.type = BENCH_TYPE, .key = keys ? key : NULL, .body = body,
                                  .body_size_bytes = BENCH_BODY_SIZE);
}

void bench_fill(pr_store *store, uint64_t count, uint64_t keys)
{
    char body[BENCH_BODY_SIZE], key[32];
    pr_error err = PR_ERROR_INIT;
    memset(body, 'x', sizeof body);
    for (uint64_t i = 0; i < count;) {
        pr_unit *unit = NULL;
        bench_check(pr_unit_begin(store, &unit, &err), &err, "begin");
        for (int n = 0; n < FILL_TRANSACTION && i < count; n++, i++) {
            pr_message message = bench_message(i, keys, body, key);
            bench_check(pr_unit_enqueue(unit, &message, NULL, &err), &err, "enqueue");
        }
        bench_check(pr_unit_commit(unit, NULL, &err), &err, "commit");
        pr_unit_free(unit);
    }
}

void bench_fill_large(pr_store *store, uint64_t count, uint64_t body_size)
{
    pr_error err = PR_ERROR_INIT;
    char *body = pr__alloc((size_t)body_size);
    if (!body)
        bench_fail("make a body", "out of memory");
    for (uint64_t i = 0; i < count;) {
        pr_unit *unit = NULL;
        bench_check(pr_unit_begin(store, &unit, &err), &err, "begin");
        for (int n = 0; n < 8 && i < count; n++, i++) {
            pr_message message =
                PR_MESSAGE(.type = BENCH_TYPE, .body = body, .body_size_bytes = body_size);
            bench_check(pr_unit_enqueue(unit, &message, NULL, &err), &err, "enqueue");
        }
        bench_check(pr_unit_commit(unit, NULL, &err), &err, "commit");
        pr_unit_free(unit);
    }
    pr__free(body);
}

void bench_bare_fill(sqlite3 *db, uint64_t count, uint64_t keys)
{
    char body[BENCH_BODY_SIZE], key[32];
    memset(body, 'x', sizeof body);
    sqlite3_stmt *insert = bench_bare_insert(db);
    for (uint64_t i = 0; i < count;) {
        bench_exec(db, "BEGIN IMMEDIATE");
        for (int n = 0; n < FILL_TRANSACTION && i < count; n++, i++) {
            pr_message message = bench_message(i, keys, body, key);
            bench_bare_bind(insert, &message);
            bench_check_sqlite(sqlite3_step(insert), db, "insert");
            sqlite3_reset(insert);
        }
        bench_exec(db, "COMMIT");
    }
    sqlite3_finalize(insert);
}

double bench_seconds(void)
{
    return (double)pr__monotonic_us() / 1e6;
}
