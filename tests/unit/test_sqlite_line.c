/*
 * Threads of one process that write to one database: a store and its clones stand in one line, one
 * has the turn at a time, none waits for ever, and each way out of a transaction gives it up.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "support/sqlite_world.h"

#include "base/time.h"
#include "store/sqlite/line.h"
#include "store/sqlite/store.h"

#define FAR_US   (INT64_C(30) * 1000 * 1000)
#define SHORT_MS 50
#define THREADS  4
#define TURNS    300

/* ---- the line alone ---- */

static int64_t far(void)
{
    return pr__monotonic_us() + FAR_US;
}

static void test_time_is_up(void **state)
{
    (void)state;
    pr__line *line = pr__line_new();
    assert_non_null(line);
    assert_true(pr__line_enter(line, far()));
    assert_false(pr__line_enter(line, pr__monotonic_us())); /* itself has it */
    int64_t before_us = pr__monotonic_us();
    assert_false(pr__line_enter(line, before_us + 2000));
    assert_true(pr__monotonic_us() >= before_us + 2000);
    pr__line_leave(line); /* and those that gave up are in line no more */
    assert_true(pr__line_enter(line, pr__monotonic_us()));
    pr__line_leave(line);
    assert_null(pr__line_release(line));
    assert_null(pr__line_release(NULL));
}

typedef struct shared {
    pr__line *line;
    atomic_int inside;
    atomic_int together; /* how often two were inside */
    atomic_int entered;
    atomic_bool stop;
    int64_t counted; /* guarded by the line alone */
} shared;

static void one_turn(shared *at)
{
    if (!pr__line_enter(at->line, far()))
        return;
    if (atomic_fetch_add(&at->inside, 1) > 0)
        atomic_fetch_add(&at->together, 1);
    at->counted++;
    atomic_fetch_sub(&at->inside, 1);
    atomic_fetch_add(&at->entered, 1);
    pr__line_leave(at->line);
}

static void *take_turns(void *user)
{
    for (int i = 0; i < TURNS; i++)
        one_turn(user);
    return NULL;
}

static void test_one_at_a_time(void **state)
{
    (void)state;
    shared at = {.line = pr__line_new()};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_turns, &at), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&at.together), 0);
    assert_int_equal(atomic_load(&at.entered), THREADS * TURNS);
    assert_int_equal(at.counted, THREADS * TURNS);
    pr__line_release(at.line);
}

static void *stay_until_stopped(void *user)
{
    shared *at = user;
    if (!pr__line_enter(at->line, far())) {
        atomic_store(&at->entered, -1);
        return NULL;
    }
    atomic_store(&at->entered, 1);
    while (!atomic_load(&at->stop))
        pr__sleep_us(100);
    pr__line_leave(at->line);
    return NULL;
}

/* It waits by then, most likely; if not, less is shown. */
static void who_waited_has_it(int64_t waited_us)
{
    static shared at;
    pthread_t thread;
    at = (shared){.line = pr__line_new()};
    assert_true(pr__line_enter(at.line, far()));
    assert_false(pr__line_enter(at.line, pr__monotonic_us() + 1000));
    assert_int_equal(pthread_create(&thread, NULL, stay_until_stopped, &at), 0);
    pr__sleep_us(waited_us);
    pr__line_leave(at.line);
    int64_t until_us = far() + FAR_US;
    while (atomic_load(&at.entered) == 0 && pr__monotonic_us() < until_us)
        pr__sleep_us(100);
    bool second = pr__line_enter(at.line, pr__monotonic_us());
    atomic_store(&at.stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&at.entered), 1);
    assert_false(second);
    assert_true(pr__line_enter(at.line, pr__monotonic_us()));
    pr__line_leave(at.line);
    pr__line_release(at.line);
}

/* One that waited, behind one that gave up, gets the turn when it is free, and has it alone: one
   that may be passed, and one that waited long enough for the turn to be handed over. */
static void test_who_waited_has_it(void **state)
{
    (void)state;
    who_waited_has_it(1000);
    who_waited_has_it(20000);
}

static void *take_turns_until_stopped(void *user)
{
    shared *at = user;
    while (!atomic_load(&at->stop)) {
        if (!pr__line_enter(at->line, far()))
            return NULL;
        pr__sleep_us(100);
        atomic_fetch_add(&at->entered, 1);
        pr__line_leave(at->line); /* and back at once */
    }
    return NULL;
}

/* One that leaves and comes back at once may pass, but not for ever. */
static void test_no_one_starves(void **state)
{
    (void)state;
    shared at = {.line = pr__line_new()};
    pthread_t greedy[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&greedy[i], NULL, take_turns_until_stopped, &at), 0);
    while (atomic_load(&at.entered) == 0)
        pr__sleep_us(100);
    for (int i = 0; i < 20; i++) {
        assert_true(pr__line_enter(at.line, far()));
        pr__line_leave(at.line);
    }
    atomic_store(&at.stop, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(greedy[i], NULL);
    pr__line_release(at.line);
}

/* A child has the memory of its parent, and not its threads. */
static void test_forked(void **state)
{
    (void)state;
    pr__line *line = pr__line_new();
    assert_true(pr__line_enter(line, far()));
    pid_t child = fork();
    if (child == 0) {
        pr__line_leave(line);
        pr__line_release(line);
        _exit(0);
    }
    int how = 1;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
    pr__line_leave(line);
    assert_true(pr__line_enter(line, pr__monotonic_us()));
    pr__line_leave(line);
    pr__line_release(line);
}

/* ---- stores in it ---- */

typedef struct pair {
    sqlite_world at;
    pr_store *store, *clone;
} pair;

static void open_pair(pair *two)
{
    pr_error err = PR_ERROR_INIT;
    check_ok(sqlite_world_open(&two->at, &err), &err, "world");
    check_ok(sqlite_world_store(&two->at, SHORT_MS, 0, &two->store, &err), &err, "store");
    check_ok(pr_store_clone(two->store, &two->clone, &err), &err, "clone");
}

static void close_pair(pair *two)
{
    pr_store_free(two->store);
    pr_store_free(two->clone);
    sqlite_world_close(&two->at);
}

static bool in_turn(pr_store *store)
{
    return pr__sqlite_store_of(store)->conn.in_turn;
}

/* Commit one message; what it met. */
static pr_status write_one(pr_store *store, pr_error *err)
{
    static const pr_message message = PR_MESSAGE(.type = "urn:message:test:placed");
    pr_unit *unit = NULL;
    pr_status status = pr_unit_begin(store, &unit, err);
    if (status == PR_OK)
        status = pr_unit_enqueue(unit, &message, NULL, err);
    if (status == PR_OK)
        status = pr_unit_commit(unit, NULL, err);
    pr_unit_free(unit);
    return status;
}

static void test_second_unit_is_busy(void **state)
{
    (void)state;
    pair two;
    pr_error err = PR_ERROR_INIT;
    pr_unit *unit = NULL;
    open_pair(&two);
    assert_ptr_equal(pr__sqlite_store_of(two.store)->line, pr__sqlite_store_of(two.clone)->line);
    check_ok(pr_unit_begin(two.store, &unit, &err), &err, "begin");
    assert_true(in_turn(two.store));
    int64_t before_us = pr__monotonic_us();
    assert_int_equal(write_one(two.clone, &err), PR_E_BUSY); /* of the same thread */
    assert_true(pr__monotonic_us() >= before_us + SHORT_MS * 1000);
    assert_int_equal(err.retry, PR_RETRY_SAME);
    assert_int_equal(err.backend_code, SQLITE_BUSY);
    assert_non_null(strstr(err.message, "another writer holds the database"));
    assert_false(in_turn(two.clone));
    pr_unit_free(unit);
    pr_error_clear(&err);
    check_ok(write_one(two.clone, &err), &err, "write after it");
    close_pair(&two);
}

static void end_by_sql(pr_unit *unit, const char *sql)
{
    assert_int_equal(sqlite3_exec(pr_sqlite_unit_connection(unit), sql, NULL, NULL, NULL),
                     SQLITE_OK);
}

/* Whatever ends the transaction lets the clone write, while the unit is still there. */
static void test_each_end_gives_it_up(void **state)
{
    (void)state;
    static const char *const ends[] = {"commit", "rollback", "free", "COMMIT", "ROLLBACK"};
    pair two;
    pr_error err = PR_ERROR_INIT;
    open_pair(&two);
    for (size_t i = 0; i < COUNT_OF(ends); i++) {
        pr_unit *unit = NULL;
        check_ok(pr_unit_begin(two.store, &unit, &err), &err, ends[i]);
        assert_true(in_turn(two.store));
        if (strcmp(ends[i], "commit") == 0)
            check_ok(pr_unit_commit(unit, NULL, &err), &err, ends[i]);
        else if (strcmp(ends[i], "rollback") == 0)
            check_ok(pr_unit_rollback(unit, &err), &err, ends[i]);
        else if (strcmp(ends[i], "free") == 0)
            unit = pr_unit_free(unit);
        else
            end_by_sql(unit, ends[i]);
        assert_false(in_turn(two.store));
        check_ok(write_one(two.clone, &err), &err, ends[i]);
        pr_unit_free(unit);
        check_ok(write_one(two.store, &err), &err, ends[i]);
    }
    close_pair(&two);
}

/* A lock of another process is waited for by one of the line; it and the others answer BUSY. */
static void test_other_process_holds_it(void **state)
{
    (void)state;
    pair two;
    pr_error err = PR_ERROR_INIT;
    sqlite3 *other = NULL;
    open_pair(&two);
    assert_int_equal(sqlite3_open(two.at.path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(write_one(two.store, &err), PR_E_BUSY);
    assert_false(in_turn(two.store));
    pr_error_clear(&err);
    assert_int_equal(write_one(two.clone, &err), PR_E_BUSY);
    assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(other);
    pr_error_clear(&err);
    check_ok(write_one(two.clone, &err), &err, "write after it");
    close_pair(&two);
}

/* A host's own transaction is none of the line's business. */
static void test_joined_takes_no_turn(void **state)
{
    (void)state;
    pair two;
    pr_error err = PR_ERROR_INIT;
    sqlite3 *host = NULL;
    pr_unit *unit = NULL;
    open_pair(&two);
    assert_int_equal(sqlite3_open(two.at.path, &host), SQLITE_OK);
    assert_int_equal(sqlite3_exec(host, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    check_ok(pr_sqlite_unit_join(two.store, host, &unit, &err), &err, "join");
    assert_false(in_turn(two.store));
    assert_true(pr__line_enter(pr__sqlite_store_of(two.store)->line, pr__monotonic_us()));
    pr__line_leave(pr__sqlite_store_of(two.store)->line);
    pr_unit_free(unit);
    sqlite3_close(host);
    close_pair(&two);
}

typedef struct writer {
    pr_store *store;
    pr_error err;
    int written;
} writer;

static void *write_many(void *user)
{
    writer *one = user;
    while (one->written < TURNS / 10 && write_one(one->store, &one->err) == PR_OK)
        one->written++;
    return NULL;
}

/* The wait of each is shorter than the busy time only because they take turns. */
static void test_clones_write_at_once(void **state)
{
    (void)state;
    sqlite_world at;
    pr_error err = PR_ERROR_INIT;
    pr_store *store = NULL;
    writer writers[THREADS];
    pthread_t threads[THREADS];
    check_ok(sqlite_world_open(&at, &err), &err, "world");
    check_ok(sqlite_world_store(&at, 20000, 0, &store, &err), &err, "store");
    for (int i = 0; i < THREADS; i++) {
        writers[i] = (writer){.err = PR_ERROR_INIT};
        check_ok(pr_store_clone(store, &writers[i].store, &err), &err, "clone");
    }
    pr_store_free(store); /* the line stays with the clones */
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_many, &writers[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        check_ok(writers[i].err.status, &writers[i].err, "write");
        assert_int_equal(writers[i].written, TURNS / 10);
        pr_store_free(writers[i].store);
    }
    assert_int_equal(sqlite_world_number(&at, "SELECT count(*) FROM postroom_outbox", NULL),
                     THREADS * (TURNS / 10));
    sqlite_world_close(&at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_time_is_up),
        cmocka_unit_test(test_one_at_a_time),
        cmocka_unit_test(test_who_waited_has_it),
        cmocka_unit_test(test_no_one_starves),
        cmocka_unit_test(test_forked),
        cmocka_unit_test(test_second_unit_is_busy),
        cmocka_unit_test(test_each_end_gives_it_up),
        cmocka_unit_test(test_other_process_holds_it),
        cmocka_unit_test(test_joined_takes_no_turn),
        cmocka_unit_test(test_clones_write_at_once),
    };
    return RUN_TESTS(tests);
}
