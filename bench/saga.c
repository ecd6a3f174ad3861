/*
 * Steps of a saga against the bare loop that a careful application would write: select for update,
 * update, insert the mark, commit; and what a hot key costs the others.
 */
#include <stddef.h>
#include <string.h>

#include <postroom/postroom.h>

#include "bench.h"
#include "crew.h"
#include "database.h"
#include "postgres.h"

#include "base/hash.h"
#include "base/memory.h"
#include "base/text.h"
#include "core/inbox.h"
#include "core/saga_ride.h"
#include "core/scope.h"

#define KEYS         1000
#define TYPE         "urn:message:bench:stepped"
#define STARTED      "urn:message:bench:started"
#define CLIENTS      4
#define HOT_OTHERS   2 /* clients that move other keys, and as many on the hot one */
#define OPEN_SAGAS   10000
#define ID_SIZE      37
#define SHARE(steps) ((steps) / CLIENTS)

typedef struct bench_stepper {
    pr_store *store;
    pr_saga *saga;
    uint64_t next;     /* number of the next message; apart from those of others */
    uint64_t first;    /* of its keys */
    uint64_t keys;     /* how many it moves, in turn */
    uint64_t steps;    /* to do */
    uint64_t done;     /* so far */
    const bool *ended; /* not NULL: go on until it is set, whatever steps says */
} bench_stepper;

/* ---- the saga ---- */

typedef struct counter {
    int64_t count;
    const char *note;
} counter;

static const pr_field fields[] = {
    {.name = "count", .kind = PR_FIELD_INT64, .offset = offsetof(counter, count)},
    {.name = "note", .kind = PR_FIELD_TEXT, .offset = offsetof(counter, note)},
    {.name = NULL},
};
static const pr_contract contract = {.size = (uint32_t)sizeof(pr_contract),
                                     .type_version = 1,
                                     .type = "urn:message:bench:counter",
                                     .kind = PR_CONTRACT_DOMAIN_EVENT,
                                     .fields = fields,
                                     .object_size = sizeof(counter)};

static const char *note(void)
{
    static const char text[] = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
                               "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
    return text;
}

static pr_handled count_one(void *user, pr_saga_step *step, void *object)
{
    counter *state = object;
    (void)user;
    (void)step;
    state->count++;
    state->note = note();
    return PR_HANDLED_OK;
}

static pr_saga *make_saga(void)
{
    static const pr_saga_state states[] = {{&contract, NULL}};
    static const pr_saga_message messages[] = {
        {.type = TYPE, .handler = count_one, .missing = PR_SAGA_MISSING_DEAD},
        {.type = STARTED, .handler = count_one, .flags = PR_SAGA_STARTS}};
    pr_saga_type type = PR_SAGA_TYPE(.name = "bench", .states = states, .state_count = 1,
                                     .messages = messages, .message_count = 2);
    pr_saga *saga = NULL;
    pr_error err = PR_ERROR_INIT;
    bench_check(pr_saga_new(&type, NULL, &saga, &err), &err, "saga");
    return saga;
}

static void state_of(int64_t count, char out[256])
{
    pr__format(out, 256, "{\"count\":%lld,\"note\":\"%s\"}", (long long)count, note());
}

static void message_id(uint64_t number, char out[ID_SIZE])
{
    pr__format(out, ID_SIZE, "0198c5f2-7d3e-7a10-8b2c-%012llx", (unsigned long long)number);
}

/* ---- our side ---- */

/* The way of an endpoint: in with the mark, the step, and out with the commit. */
static void handle(bench_stepper *self, pr__inbox_work *work)
{
    pr__inbox_entry entry = 0;
    pr_outcome outcome = 0;
    pr_error err = PR_ERROR_INIT;
    pr_scope *scope = pr__alloc(sizeof *scope);
    if (!scope)
        bench_fail("a step", "out of memory");
    scope->store = self->store;
    scope->inbox = work;
    scope->message = work->message;
    pr__saga_ride_ask(self->saga, scope, /* may_decode= */ true);
    bench_check(pr__inbox_enter(self->store, work, &scope->unit, &entry, &err), &err, "enter");
    if (entry != PR__INBOX_RUN)
        bench_fail("a step", "its message was let in before");
    scope->unit_state = PR__UNIT_OPEN;
    scope->in_inbox = true;
    if (pr_saga_handle(self->saga, scope) != PR_HANDLED_OK)
        bench_fail("a step", scope->reason);
    bench_check(pr__inbox_complete(scope->unit, work, &entry, &outcome, &err), &err, "complete");
    if (entry != PR__INBOX_HANDLED)
        bench_fail("a step", "it was not committed");
    pr__saga_ride_done(scope);
    pr_unit_free(scope->unit);
    pr__free(scope);
}

static void step(bench_stepper *self)
{
    char id[ID_SIZE], key[32];
    message_id(self->next, id);
    pr__format(key, sizeof key, "key-%llu",
               (unsigned long long)self->first + self->next % self->keys);
    self->next++;
    pr_message message = PR_MESSAGE(.id = id, .type = TYPE, .type_version = 1, .key = key);
    pr__inbox_work work = {.message = &message,
                           .key = {.tenant = "", .consumer = "bench", .message_id = id},
                           .token = "",
                           .order = PR_ORDER_HOLD};
    pr__content_hash(TYPE, 1, NULL, 0, work.hash);
    handle(self, &work);
    __atomic_add_fetch(&self->done, 1, __ATOMIC_RELAXED);
}

static void run_steps(void *item)
{
    bench_stepper *self = item;
    for (uint64_t i = 0;
         self->ended ? !__atomic_load_n(self->ended, __ATOMIC_RELAXED) : i < self->steps; i++)
        step(self);
}

/* Instances that stand: what is measured are steps. */
#define START_COLUMNS                                                                              \
    "(tenant, saga_type, correlation_key, instance_id, version, state, state_version, "            \
    "started_at, updated_at) "

/* ---- SQLite ---- */

static const char bare_table[] =
    "CREATE TABLE bare (key TEXT PRIMARY KEY, version INTEGER NOT NULL, state BLOB NOT NULL) "
    "STRICT; CREATE TABLE bare_mark (id TEXT PRIMARY KEY, at INTEGER NOT NULL) STRICT, WITHOUT "
    "ROWID";

static void start_all(sqlite3 *db)
{
    char sql[800], state[256];
    state_of(1, state);
    pr__format(sql, sizeof sql,
               "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < %d) "
               "INSERT INTO postroom_saga " START_COLUMNS
               "SELECT '', 'bench', 'key-' || i, printf('0198c5f2-7d3e-7a10-8b2c-%%012x', i), 1, "
               "CAST('%s' AS BLOB), 1, 1, 1 FROM n",
               OPEN_SAGAS - 1, state);
    bench_exec(db, sql);
}

typedef struct bare_sqlite {
    sqlite3 *db;
    sqlite3_stmt *load, *save, *mark;
    uint64_t next;
} bare_sqlite;

static bare_sqlite bare_open(const char *path)
{
    bare_sqlite bare = {.db = bench_connection_open(path)};
    char sql[400], state[256];
    bench_exec(bare.db, bare_table);
    state_of(1, state);
    pr__format(sql, sizeof sql,
               "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < %d) "
               "INSERT INTO bare SELECT 'key-' || i, 1, CAST('%s' AS BLOB) FROM n",
               KEYS - 1, state);
    bench_exec(bare.db, sql);
    bare.load = bench_prepare(bare.db, "SELECT version, state FROM bare WHERE key = ?1");
    bare.save = bench_prepare(bare.db, "UPDATE bare SET version = version + 1, state = ?3 WHERE "
                                       "key = ?1 AND version = ?2");
    bare.mark = bench_prepare(bare.db, "INSERT INTO bare_mark VALUES (?1, ?2)");
    return bare;
}

static double bare_steps(bare_sqlite *bare, uint64_t steps)
{
    double begun = bench_seconds();
    for (uint64_t i = 0; i < steps; i++) {
        char id[ID_SIZE], key[32], state[256];
        message_id(bare->next, id);
        pr__format(key, sizeof key, "key-%llu", (unsigned long long)(bare->next++ % KEYS));
        bench_exec(bare->db, "BEGIN IMMEDIATE");
        sqlite3_bind_text(bare->mark, 1, id, -1, SQLITE_STATIC);
        sqlite3_bind_int64(bare->mark, 2, 1);
        bench_check_sqlite(sqlite3_step(bare->mark), bare->db, "mark");
        sqlite3_bind_text(bare->load, 1, key, -1, SQLITE_STATIC);
        bench_check_sqlite(sqlite3_step(bare->load), bare->db, "load");
        int64_t version = sqlite3_column_int64(bare->load, 0);
        state_of(version + 1, state);
        sqlite3_reset(bare->load);
        sqlite3_bind_text(bare->save, 1, key, -1, SQLITE_STATIC);
        sqlite3_bind_int64(bare->save, 2, version);
        sqlite3_bind_blob(bare->save, 3, state, (int)strlen(state), SQLITE_STATIC);
        bench_check_sqlite(sqlite3_step(bare->save), bare->db, "save");
        sqlite3_reset(bare->save);
        sqlite3_reset(bare->mark);
        bench_exec(bare->db, "COMMIT");
    }
    return bench_seconds() - begun;
}

static void bare_close(bare_sqlite *bare)
{
    sqlite3_finalize(bare->load);
    sqlite3_finalize(bare->save);
    sqlite3_finalize(bare->mark);
    sqlite3_close(bare->db);
}

static double our_steps(bench_stepper *self, uint64_t steps)
{
    double begun = bench_seconds();
    self->steps = steps;
    run_steps(self);
    return bench_seconds() - begun;
}

/* ---- PostgreSQL ---- */

typedef struct bare_client {
    PGconn *db;
    uint64_t next;
    uint64_t steps;
} bare_client;

static PGconn *bare_pg_open(const bench_database *database)
{
    PGconn *db = bench_pg_open(database->address);
    static const char *const statements[][2] = {
        {"mark", "INSERT INTO bare_mark VALUES ($1::uuid, clock_timestamp())"},
        {"load", "SELECT version, state FROM bare WHERE key = $1 FOR UPDATE"},
        {"save", "UPDATE bare SET version = version + 1, state = $3::bytea, updated_at = "
                 "clock_timestamp() WHERE key = $1 AND version = $2::bigint"},
    };
    for (size_t i = 0; i < 3; i++)
        PQclear(bench_pg_checked(db, PQprepare(db, statements[i][0], statements[i][1], 0, NULL),
                                 statements[i][0]));
    return db;
}

static PGresult *bare_run(PGconn *db, const char *name, int count, const char *const *values)
{
    return bench_pg_checked(db, PQexecPrepared(db, name, count, values, NULL, NULL, 0), name);
}

static void bare_pg_steps(void *item)
{
    bare_client *self = item;
    for (uint64_t i = 0; i < self->steps; i++) {
        char id[ID_SIZE], key[32], state[256], version[24];
        message_id(self->next, id);
        pr__format(key, sizeof key, "key-%llu", (unsigned long long)(self->next++ % KEYS));
        const char *values[] = {id};
        bench_pg_run(self->db, "BEGIN");
        PQclear(bare_run(self->db, "mark", 1, values));
        values[0] = key;
        PGresult *row = bare_run(self->db, "load", 1, values);
        pr__format(version, sizeof version, "%s", PQgetvalue(row, 0, 0));
        PQclear(row);
        state_of((int64_t)i, state);
        const char *saved[] = {key, version, state};
        PQclear(bare_run(self->db, "save", 3, saved));
        bench_pg_run(self->db, "COMMIT");
    }
}

static void make_bare(PGconn *db)
{
    char sql[400], state[256];
    state_of(1, state);
    bench_pg_run(db,
                 "CREATE TABLE bare (key text PRIMARY KEY, version bigint NOT NULL, state bytea "
                 "NOT NULL, updated_at timestamptz); CREATE TABLE bare_mark (id uuid PRIMARY "
                 "KEY, at timestamptz NOT NULL)");
    pr__format(sql, sizeof sql,
               "INSERT INTO bare SELECT 'key-' || i, 1, convert_to('%s', 'UTF8'), now() FROM "
               "generate_series(0, %d) AS i",
               state, KEYS - 1);
    bench_pg_run(db, sql);
}

static double pg_rate(void (*work)(void *), void *clients, size_t size, uint64_t steps)
{
    return (double)(SHARE(steps) * CLIENTS) / bench_crew_run(work, clients, size, CLIENTS);
}

static void measure_steps(const bench_options *opt, const bench_database *database, PGconn *db,
                          bench_stepper steppers[CLIENTS], bench_report *report)
{
    double ours[BENCH_ROUNDS_MAX], bare[BENCH_ROUNDS_MAX];
    bare_client clients[CLIENTS];
    uint64_t steps = opt->transactions * 20;
    make_bare(db);
    for (uint64_t i = 0; i < CLIENTS; i++) {
        clients[i] = (bare_client){.db = bare_pg_open(database), .next = i << 32};
        clients[i].steps = SHARE(steps);
        steppers[i].next = (i << 32) + i * 250; /* each begins elsewhere */
        clients[i].next = steppers[i].next;
        steppers[i].keys = KEYS;
        steppers[i].steps = SHARE(steps);
    }
    bench_pg_settle(db);
    for (int round = 0; round < opt->rounds; round++) {
        if (round % 2 == 0)
            ours[round] = pg_rate(run_steps, steppers, sizeof *steppers, steps);
        bare[round] = pg_rate(bare_pg_steps, clients, sizeof *clients, steps);
        if (round % 2 == 1)
            ours[round] = pg_rate(run_steps, steppers, sizeof *steppers, steps);
    }
    for (int i = 0; i < CLIENTS; i++)
        PQfinish(clients[i].db);
    bench_report_add(report, "saga steps, 4 clients", "steps/s", "bare loop", ours, bare,
                     opt->rounds, BENCH_AT_LEAST, 0.75);
}

/* ---- the hot key ---- */

typedef struct hot_work {
    bench_stepper stepper;
    bool *ended; /* set by the one that keeps the time; NULL = not its business */
    double seconds;
} hot_work;

static void run_hot(void *item)
{
    hot_work *work = item;
    if (work->ended) {
        double until = bench_seconds() + work->seconds;
        while (bench_seconds() < until)
            step(&work->stepper);
        __atomic_store_n(work->ended, true, __ATOMIC_RELAXED);
        return;
    }
    run_steps(&work->stepper);
}

/* Steps a second of the others; hot: as many clients as they are move one key, else many. */
static double others_rate(bench_stepper steppers[CLIENTS], bool hot, double seconds)
{
    hot_work work[CLIENTS];
    bool ended = false;
    uint64_t before = 0, after = 0;
    for (uint64_t i = 0; i < CLIENTS; i++) {
        bool other = i < HOT_OTHERS;
        uint64_t share = OPEN_SAGAS / CLIENTS;
        work[i] = (hot_work){.stepper = steppers[i], .seconds = seconds};
        work[i].stepper.first = other || !hot ? i * share : OPEN_SAGAS - 1;
        work[i].stepper.keys = other || !hot ? share - 1 : 1;
        work[i].stepper.ended = &ended;
        if (i == 0)
            work[i].ended = &ended;
    }
    for (int i = 0; i < HOT_OTHERS; i++)
        before += work[i].stepper.done;
    double took = bench_crew_run(run_hot, work, sizeof *work, CLIENTS);
    for (int i = 0; i < CLIENTS; i++) {
        steppers[i].next = work[i].stepper.next;
        if (i < HOT_OTHERS)
            after += work[i].stepper.done;
    }
    return (double)(after - before) / took;
}

static void measure_hot(const bench_options *opt, bench_stepper steppers[CLIENTS], const char *name,
                        bench_report *report)
{
    double hot[BENCH_ROUNDS_MAX], spread[BENCH_ROUNDS_MAX];
    double seconds = opt->transactions >= 100 ? 3 : 0.5;
    for (int round = 0; round < opt->rounds; round++) {
        if (round % 2 == 0)
            hot[round] = others_rate(steppers, true, seconds);
        spread[round] = others_rate(steppers, false, seconds);
        if (round % 2 == 1)
            hot[round] = others_rate(steppers, true, seconds);
    }
    bench_report_add(report, name, "steps/s", "the same without a hot key", hot, spread,
                     opt->rounds, BENCH_AT_LEAST, 0.9);
}

static void measure_hot_sqlite(const bench_options *opt, bench_report *report)
{
    bench_stepper steppers[CLIENTS];
    bench_folder folder = bench_folder_make();
    char path[300];
    pr__format(path, sizeof path, "%s/saga.db", folder.path);
    for (uint64_t i = 0; i < CLIENTS; i++)
        steppers[i] =
            (bench_stepper){.store = bench_store_open(path), .saga = make_saga(), .next = i << 32};
    sqlite3 *db = bench_connection_open(path);
    start_all(db);
    sqlite3_close(db);
    measure_hot(opt, steppers, "steps of others beside a hot saga, of 10,000", report);
    for (int i = 0; i < CLIENTS; i++) {
        pr_store_free(steppers[i].store);
        pr_saga_free(steppers[i].saga);
    }
    bench_folder_remove(&folder);
}

void bench_saga(const bench_options *opt, bench_report *report)
{
    double ours[BENCH_ROUNDS_MAX], bare[BENCH_ROUNDS_MAX];
    double steps = (double)opt->transactions;
    for (int round = 0; round < opt->rounds; round++) {
        bench_folder folder = bench_folder_make();
        char path[300];
        pr__format(path, sizeof path, "%s/saga.db", folder.path);
        bench_stepper stepper = {
            .store = bench_store_open(path), .saga = make_saga(), .keys = KEYS};
        bare_sqlite loop = bare_open(path);
        start_all(loop.db);
        if (round % 2 == 0)
            ours[round] = steps / our_steps(&stepper, opt->transactions);
        bare[round] = steps / bare_steps(&loop, opt->transactions);
        if (round % 2 == 1)
            ours[round] = steps / our_steps(&stepper, opt->transactions);
        bare_close(&loop);
        pr_saga_free(stepper.saga);
        pr_store_free(stepper.store);
        bench_folder_remove(&folder);
    }
    bench_report_add(report, "saga steps", "steps/s", "bare loop", ours, bare, opt->rounds,
                     BENCH_AT_LEAST, 0.75);
    measure_hot_sqlite(opt, report);
}

void bench_postgres_saga(const bench_options *opt, bench_report *report)
{
    bench_stepper steppers[CLIENTS];
    char sql[800], state[256];
    bench_database database = bench_database_make(opt->server, "saga");
    PGconn *db = bench_pg_open(database.address);
    for (int i = 0; i < CLIENTS; i++)
        steppers[i] = (bench_stepper){.store = bench_pg_store(&database), .saga = make_saga()};
    state_of(1, state);
    pr__format(sql, sizeof sql,
               "INSERT INTO postroom.saga " START_COLUMNS
               "SELECT '', 'bench', 'key-' || i, gen_random_uuid(), 1, convert_to('%s', 'UTF8'), "
               "1, now(), now() FROM generate_series(0, %d) AS i",
               state, OPEN_SAGAS - 1);
    bench_pg_run(db, sql);
    measure_steps(opt, &database, db, steppers, report);
    measure_hot(opt, steppers, "steps of others beside a hot saga, of 10,000", report);
    for (int i = 0; i < CLIENTS; i++) {
        pr_store_free(steppers[i].store);
        pr_saga_free(steppers[i].saga);
    }
    PQfinish(db);
    bench_database_drop(&database);
}
