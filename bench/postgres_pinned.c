/*
 * 2,000 messages a second, claimed twenty times a second, while nobody and then somebody holds the
 * horizon of dead rows: an idle REPEATABLE READ reader, an idle writer (which has written a message
 * of its own), a writer in another database. How long a claim takes, phase by phase; the ledger
 * first, then the usual table, at the same pace.
 *
 * A producer and a claimer, each a thread with a connection of its own, on a timetable: what takes
 * too long makes the next one late, never rarer. The server vacuums as it likes; between phases
 * everything is vacuumed, so that each begins alike.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "bench.h"
#include "database.h"
#include "postgres.h"
#include "postgres_table.h"

#include "base/memory.h"
#include "base/text.h"
#include "port/store.h"

#define PRODUCE_S     0.01 /* 20 messages each */
#define CLAIM_S       0.05
#define WARM_UP_S     2.0
#define CATCH_UP_S    30.0
#define PHASE_BUCKETS 60 /* points of the plot */
#define PHASES        4
#define BACKLOG_MAX   400 /* messages: two tenths of a second of the stream */

static const char SQL_LEDGER[] =
    "INSERT INTO postroom.outbox (type, key, body) "
    "SELECT '" BENCH_PG_TYPE "', 'order-' || i, " BENCH_PG_BODY " FROM generate_series(1, 20) AS i";
static const char SQL_TABLE[] =
    "INSERT INTO usual (type, key, body) "
    "SELECT '" BENCH_PG_TYPE "', 'order-' || i, " BENCH_PG_BODY " FROM generate_series(1, 20) AS i";
/* What the idle writer has written. */
static const char SQL_LEDGER_ONE[] = "INSERT INTO postroom.outbox (type, key, body) VALUES "
                                     "('" BENCH_PG_TYPE "', 'late', 'x')";
static const char SQL_TABLE_ONE[] = "INSERT INTO usual (type, key, body) VALUES "
                                    "('" BENCH_PG_TYPE "', 'late', 'x')";

typedef enum pin { PIN_NONE, PIN_READER, PIN_WRITER, PIN_OTHER } pin;
static const char *const pin_names[PHASES] = {"unpinned", "idle reader", "idle writer",
                                              "writer in another database"};

typedef struct phase {
    double *samples; /* ms, in the order of time, then sorted */
    double *at_s;    /* since the first phase */
    size_t count, capacity;
    double mean, p99;
    double backlog; /* at its end */
} phase;

/* The ledger or the table. */
typedef struct side {
    const bench_options *opt;
    const char *label;
    bench_database database;
    PGconn *watch;
    pr_store *store; /* NULL: the table */
    bench_table_relay table;
    phase phases[PHASES];
    double begun; /* of the phase in hand */
    double offset_s;
    phase *recorded; /* NULL: nothing is */
    atomic_bool stop;
    atomic_uint_least64_t produced, settled;
} side;

static void sleep_until(double at)
{
    double left = at - bench_seconds();
    if (left <= 0)
        return;
    struct timespec span = {.tv_sec = (time_t)left,
                            .tv_nsec = (long)((left - (double)(time_t)left) * 1e9)};
    (void)nanosleep(&span, NULL);
}

static void *produce(void *argument)
{
    side *self = argument;
    PGconn *db = bench_pg_open(self->database.address);
    PQclear(bench_pg_checked(
        db, PQprepare(db, "produce", self->store ? SQL_LEDGER : SQL_TABLE, 0, NULL), "prepare"));
    for (double next = bench_seconds(); !self->stop; next += PRODUCE_S) {
        sleep_until(next);
        PQclear(
            bench_pg_checked(db, PQexecPrepared(db, "produce", 0, NULL, NULL, NULL, 0), "produce"));
        self->produced += 20;
    }
    PQfinish(db);
    return NULL;
}

/* ---- claims ---- */

static void record(side *self, double started)
{
    phase *of = self->recorded;
    double now = bench_seconds();
    if (!of || of->count == of->capacity)
        return;
    of->samples[of->count] = (now - started) * 1000;
    of->at_s[of->count++] = now - self->begun + self->offset_s;
}

static uint64_t claim_ledger(side *self)
{
    pr_error err = PR_ERROR_INIT;
    pr__batch *batch = NULL;
    pr__settle_report report;
    pr__claim_options opt = {.reader = PR_READER_RELAY,
                             .lease_ms = 30000,
                             .batch_max = 500,
                             .bytes_max = 8 << 20,
                             .owner = "bench"};
    double started = bench_seconds();
    bench_check(pr__store_claim(self->store, &opt, &batch, &err), &err, "claim");
    record(self, started);
    if (!batch)
        return 0;
    uint64_t count = batch->item_count;
    for (uint32_t i = 0; i < batch->item_count; i++)
        batch->items[i].result = PR__RESULT_PUBLISHED;
    pr__batch_close(batch);
    bench_check(pr__store_settle(self->store, batch, NULL, &report, NULL, &err), &err, "settle");
    pr__batch_free(batch);
    if (report.published != count)
        bench_fail("settle", "a claim was taken over");
    return count;
}

static uint64_t claim_table(side *self)
{
    double started = bench_seconds();
    bench_table_claim(&self->table);
    record(self, started);
    uint64_t count = (uint64_t)self->table.held;
    bench_table_publish(&self->table);
    return count;
}

static uint64_t claim(side *self)
{
    uint64_t count = self->store ? claim_ledger(self) : claim_table(self);
    self->settled += count;
    return count;
}

/* ---- phases ---- */

static PGconn *pin_down(const side *self, pin how)
{
    bool elsewhere = how == PIN_OTHER;
    if (how == PIN_NONE)
        return NULL;
    PGconn *db = bench_pg_open(elsewhere ? self->opt->server : self->database.address);
    bench_pg_run(db, how == PIN_READER ? "BEGIN ISOLATION LEVEL REPEATABLE READ" : "BEGIN");
    bench_pg_run(db, how == PIN_READER ? "SELECT count(*) FROM pg_class"
                                       : "SELECT pg_current_xact_id()");
    if (how == PIN_WRITER)
        bench_pg_run(db, self->store ? SQL_LEDGER_ONE : SQL_TABLE_ONE);
    return db;
}

static void let_go(side *self, pin how, PGconn *db)
{
    if (!db)
        return;
    bench_pg_run(db, "COMMIT");
    PQfinish(db);
    if (how == PIN_WRITER)
        self->produced++;
}

static void claim_for(side *self, double seconds)
{
    double start = bench_seconds();
    int claims = (int)(seconds / CLAIM_S);
    for (int i = 0; i < claims; i++) {
        sleep_until(start + i * CLAIM_S);
        (void)claim(self);
    }
}

static void catch_up(side *self)
{
    double until = bench_seconds() + CATCH_UP_S;
    while (self->settled < self->produced && bench_seconds() < until)
        (void)claim(self);
    if (self->settled != self->produced)
        bench_fail(self->label, "what was produced is not what came");
}

/* One phase; kept NULL: the warm-up. */
static void run_phase(side *self, pin how, phase *kept, double seconds)
{
    pthread_t producer;
    PGconn *holder = pin_down(self, how);
    self->stop = false;
    self->begun = bench_seconds();
    self->recorded = kept;
    if (pthread_create(&producer, NULL, produce, self) != 0)
        bench_fail("pinned", "no thread");
    claim_for(self, seconds);
    self->recorded = NULL;
    self->stop = true;
    pthread_join(producer, NULL);
    if (kept)
        kept->backlog = (double)(self->produced - self->settled);
    let_go(self, how, holder);
    catch_up(self);
    bench_pg_run(self->watch, "VACUUM");
}

/* Rows that an UPDATE or a DELETE left dead in the relations of the ledger or the table, vacuumed
   since or not; nothing here rolls back. */
static double dead_rows(const side *self)
{
    return bench_pg_number(self->watch, "SELECT coalesce(sum(n_tup_upd + n_tup_del), 0) FROM "
                                        "pg_stat_user_tables WHERE relname IN ('outbox', "
                                        "'outbox_claim', 'outbox_parked', 'usual')");
}

static void summarize(phase *of)
{
    double sum = 0;
    for (size_t i = 0; i < of->count; i++)
        sum += of->samples[i];
    of->mean = of->count ? sum / (double)of->count : 0;
}

static void open_side(side *self, const bench_options *opt, const char *label, bool ledger)
{
    *self = (side){.opt = opt, .label = label, .database = bench_database_make(opt->server, label)};
    self->watch = bench_pg_open(self->database.address);
    if (ledger) {
        self->store = bench_pg_store(&self->database);
    } else {
        bench_table_create(self->watch);
        bench_table_open(&self->table, self->database.address);
    }
    for (int i = 0; i < PHASES; i++) {
        phase *of = &self->phases[i];
        of->capacity = (size_t)(opt->phase_s / CLAIM_S) + 2;
        of->samples = pr__alloc(of->capacity * sizeof *of->samples);
        of->at_s = pr__alloc(of->capacity * sizeof *of->at_s);
        if (!of->samples || !of->at_s)
            bench_fail("pinned", "out of memory");
    }
}

static void close_side(side *self)
{
    for (int i = 0; i < PHASES; i++) {
        pr__free(self->phases[i].samples);
        pr__free(self->phases[i].at_s);
    }
    if (self->store)
        pr_store_free(self->store);
    else
        bench_table_close(&self->table);
    PQfinish(self->watch);
    bench_database_drop(&self->database);
}

/* The mean of each stretch of time, for the plot. */
static void add_series(const side *self, bench_report *report)
{
    double width = self->opt->phase_s / PHASE_BUCKETS;
    bench_point *points = pr__alloc((size_t)PHASES * PHASE_BUCKETS * sizeof *points);
    size_t count = 0;
    if (!points)
        bench_fail("pinned", "out of memory");
    for (int i = 0; i < PHASES; i++) {
        const phase *of = &self->phases[i];
        for (size_t n = 0; n < of->count && count < (size_t)PHASES * PHASE_BUCKETS;) {
            double sum = 0, from = of->at_s[n];
            size_t first = n;
            for (; n < of->count && of->at_s[n] < from + width; n++)
                sum += of->samples[n];
            points[count++] = (bench_point){from, sum / (double)(n - first)};
        }
    }
    bench_report_series(report, self->label, "ms", points, count);
}

/* Dead rows that the run has left. */
static double run_side(side *self, bench_report *report)
{
    run_phase(self, PIN_NONE, NULL, WARM_UP_S);
    for (int i = 0; i < PHASES; i++) {
        self->offset_s = i * self->opt->phase_s;
        run_phase(self, (pin)i, &self->phases[i], self->opt->phase_s);
    }
    double dead = dead_rows(self);
    add_series(self, report);
    for (int i = 0; i < PHASES; i++) {
        phase *of = &self->phases[i];
        summarize(of);
        bench_sort(of->samples, of->count);
        of->p99 = bench_percentile(of->samples, of->count, 99);
    }
    return dead;
}

static void add_claims(const side *self, bench_report *report, bool has_goal)
{
    char name[80];
    const phase *free_phase = &self->phases[PIN_NONE];
    for (int i = 1; i < PHASES; i++) {
        const phase *of = &self->phases[i];
        bench_goal kind = has_goal ? BENCH_AT_MOST : BENCH_NO_GOAL;
        pr__format(name, sizeof name, "claim, mean, %s, %s", self->label, pin_names[i]);
        bench_report_add(report, name, "ms", "unpinned", &of->mean, &free_phase->mean, 1, kind,
                         1.5);
        pr__format(name, sizeof name, "claim, p99, %s, %s", self->label, pin_names[i]);
        bench_report_add(report, name, "ms", "unpinned", &of->p99, &free_phase->p99, 1, kind, 1.5);
    }
}

static double largest_backlog(const side *self)
{
    double largest = 0;
    for (int i = 0; i < PHASES; i++)
        if (self->phases[i].backlog > largest)
            largest = self->phases[i].backlog;
    return largest;
}

void bench_postgres_pinned(const bench_options *opt, bench_report *report)
{
    side ledger, table;
    open_side(&ledger, opt, "ledger", true);
    double ledger_dead = run_side(&ledger, report);
    open_side(&table, opt, "table", false);
    double table_dead = run_side(&table, report);
    for (int i = 0; i < PHASES; i++)
        bench_report_phase(report, pin_names[i], i * opt->phase_s);
    add_claims(&ledger, report, true);
    add_claims(&table, report, false);
    double ledger_backlog = largest_backlog(&ledger), table_backlog = largest_backlog(&table);
    bench_report_add(report, "backlog at the end of a phase", "messages", "table", &ledger_backlog,
                     &table_backlog, 1, BENCH_OURS_AT_MOST, BACKLOG_MAX);
    bench_report_add(report, "rows left dead", "rows", "table", &ledger_dead, &table_dead, 1,
                     BENCH_OURS_AT_MOST, 0);
    close_side(&ledger);
    close_side(&table);
}
