/*
 * Many writers and several relays at once. Whatever writers do with their transactions, every row
 * that was committed is claimed exactly once while nobody crashes; and per aggregate in the order
 * of their commits, though its writers take their transaction ids long before its row lock.
 *
 * The short form runs with the other tests; with POSTROOM_SOAK=1 it is the campaign at full length.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "postgres/ground.h"

#define WRITERS       10
#define LONG_WRITERS  2
#define CLAIMERS      3
#define IDS_MAX       2000000
#define AGGREGATES    40
#define ORDER_WRITERS 14
#define DEADLINE_MS   420000
#define LONG_MS       7000
#define TWICE_MAX     100 /* then it need not go on */

typedef struct campaign {
    ground on;
    int64_t rows_wanted;
    atomic_llong rows; /* tried so far */
    atomic_bool ended; /* of the writers */
    atomic_int order_violations;
    atomic_int twice;
    atomic_llong claimed;
    atomic_int last_seq[AGGREGATES];
    atomic_uchar seen[IDS_MAX]; /* by id in the log */
} campaign;

static postgres_databases databases;

static int64_t scaled(int64_t full)
{
    const char *soak = getenv("POSTROOM_SOAK");
    return soak && soak[0] == '1' ? full : full / 5;
}

static campaign *campaign_start(uint32_t lanes)
{
    pr_migrate_options opt = {.size = (uint32_t)sizeof opt, .lanes = lanes};
    campaign *of = shared_memory(sizeof *of);
    ground_make(&databases, &opt, &of->on);
    return of;
}

/* ---- writers of every kind ---- */

#define INSERT "INSERT INTO postroom.outbox (type, key, destination, body) "
#define VALUES "VALUES ('" TYPE_PLACED "', %s, '" TO_BROKER "', 'x')"

static void insert_row(PGconn *db, const char *key)
{
    char sql[320];
    snprintf(sql, sizeof sql, INSERT VALUES, key);
    db_run(db, sql);
}

static void insert_select(PGconn *db, int count)
{
    char sql[400];
    snprintf(sql, sizeof sql,
             INSERT "SELECT '" TYPE_PLACED
                    "', CASE WHEN n %% 3 > 0 THEN 'k' || n %% 50 END, '" TO_BROKER
                    "', 'x' FROM generate_series(1, %d) AS n",
             count);
    db_run(db, sql);
}

static void copy_rows(PGconn *db, int count)
{
    PGresult *result = PQexec(db, "COPY postroom.outbox (type, key, destination, body) FROM STDIN");
    assert_int_equal(PQresultStatus(result), PGRES_COPY_IN);
    PQclear(result);
    for (int i = 0; i < count; i++) {
        char line[200];
        int size =
            snprintf(line, sizeof line, TYPE_PLACED "\tc%d\t" TO_BROKER "\t\\\\x78\n", i % 9);
        assert_int_equal(PQputCopyData(db, line, size), 1);
    }
    assert_int_equal(PQputCopyEnd(db, NULL), 1);
    result = PQgetResult(db);
    assert_int_equal(PQresultStatus(result), PGRES_COMMAND_OK);
    PQclear(result);
    while ((result = PQgetResult(db)) != NULL)
        PQclear(result);
}

static int with_savepoints(PGconn *db)
{
    char state[6];
    insert_row(db, "'s'");
    db_run(db, "SAVEPOINT a");
    insert_row(db, "'s'");
    insert_row(db, "NULL");
    db_run(db, "ROLLBACK TO SAVEPOINT a");
    insert_row(db, "'s'");
    db_run(db, "SAVEPOINT b");
    insert_row(db, "NULL");
    db_run(db, "SAVEPOINT c");
    assert_false(db_try(db, "SELECT 1 / 0", state));
    assert_string_equal(state, "22012");
    db_run(db, "ROLLBACK TO SAVEPOINT c");
    db_run(db, "RELEASE SAVEPOINT b");
    return 3;
}

/* The end of a transaction: sometimes at once, sometimes late, sometimes none of it. */
static void end_transaction(PGconn *db, uint64_t *random, int writer, int number)
{
    char sql[120];
    uint32_t dice = random_of(random, 100);
    if (dice < 60)
        sleep_ms(random_of(random, 30));
    if (dice < 12) {
        db_run(db, "ROLLBACK");
    } else if (dice < 24) { /* somebody else ends it, later */
        snprintf(sql, sizeof sql, "PREPARE TRANSACTION 'w%d_%d'", writer, number);
        db_run(db, sql);
        sleep_ms(random_of(random, 60));
        snprintf(sql, sizeof sql, "%s PREPARED 'w%d_%d'", dice < 15 ? "ROLLBACK" : "COMMIT", writer,
                 number);
        db_run(db, sql);
    } else {
        db_run(db, "COMMIT");
    }
}

static int write_rows(void *user, int n)
{
    campaign *of = user;
    PGconn *db = db_open(of->on.uri);
    uint64_t random = 77 + (uint64_t)n;
    for (int number = 0; atomic_load(&of->rows) < of->rows_wanted; number++) {
        int rows = 1;
        db_run(db, "BEGIN");
        switch (random_of(&random, 6)) {
        case 0:
            rows = with_savepoints(db);
            break;
        case 1:
            rows = 20 + (int)random_of(&random, 80);
            insert_select(db, rows);
            break;
        case 2:
            rows = 10 + (int)random_of(&random, 60);
            copy_rows(db, rows);
            break;
        case 3:
            db_run(db, "SELECT postroom.enqueue('" TYPE_PLACED
                       "', 'x'::text, destination => '" TO_BROKER "')");
            break;
        default:
            insert_row(db, "NULL");
            sleep_ms(random_of(&random, 20));
            insert_row(db, "'late'");
            rows = 2;
        }
        end_transaction(db, &random, n, number);
        atomic_fetch_add(&of->rows, rows);
    }
    PQfinish(db);
    return 0;
}

/* A transaction that is open for seconds, with rows at both of its ends. */
static int write_long(void *user, int n)
{
    campaign *of = user;
    PGconn *db = db_open(of->on.uri);
    sleep_ms(200 * n);
    do {
        db_run(db, "BEGIN");
        insert_row(db, "'long'");
        insert_select(db, 30);
        sleep_ms(LONG_MS);
        insert_select(db, 30);
        db_run(db, "COMMIT");
        atomic_fetch_add(&of->rows, 61);
    } while (atomic_load(&of->rows) < of->rows_wanted);
    PQfinish(db);
    return 0;
}

/* ---- relays ---- */

static void look(campaign *of, const pr__item *item)
{
    assert_true(item->log_id > 0 && item->log_id < IDS_MAX);
    if (atomic_fetch_add(&of->seen[item->log_id], 1) > 0)
        atomic_fetch_add(&of->twice, 1);
    atomic_fetch_add(&of->claimed, 1);
    if (item->message.key && strncmp(item->message.key, "aggregate-", 10) == 0) {
        char text[16] = "";
        int which = (int)strtol(item->message.key + 10, NULL, 10);
        snprintf(text, sizeof text, "%.*s", (int)item->message.body_size_bytes,
                 (const char *)item->message.body);
        int seq = (int)strtol(text, NULL, 10);
        if (seq <= atomic_exchange(&of->last_seq[which], seq))
            atomic_fetch_add(&of->order_violations, 1);
    }
}

/* Claims, settles and claims in one commit, as a relay does, until the writers have ended and
   nothing is left. */
static int claim_rows(void *user, int n)
{
    campaign *of = user;
    pr_store *store = ground_store(of->on.uri);
    pr__batch *batch = NULL;
    uint64_t random = 5 + (uint64_t)n;
    for (int idle = 0; idle < 40 && atomic_load(&of->twice) < TWICE_MAX;) {
        pr_error err = PR_ERROR_INIT;
        pr__claim_options opt = {.reader = PR_READER_RELAY,
                                 .lease_ms = 120000,
                                 .batch_max = 1 + random_of(&random, 400),
                                 .bytes_max = 8 * 1024 * 1024,
                                 .lanes_max = 1 + random_of(&random, 8),
                                 .owner = "campaign"};
        bool ended = atomic_load(&of->ended);
        if (!batch)
            check_ok(pr__store_claim(store, &opt, &batch, &err), &err, "claim");
        if (!batch) {
            sleep_ms(5);
            idle = ended ? idle + 1 : 0;
            continue;
        }
        idle = 0;
        for (uint32_t i = 0; i < batch->item_count; i++) {
            look(of, &batch->items[i]);
            batch->items[i].result = PR__RESULT_PUBLISHED;
        }
        pr__settle_report report = {0};
        pr__batch *next = NULL;
        bool both = random_of(&random, 4) > 0;
        pr__batch_close(batch);
        check_ok(
            pr__store_settle(store, batch, both ? &opt : NULL, &report, both ? &next : NULL, &err),
            &err, "settle");
        assert_int_equal(report.fenced_slices, 0);
        assert_int_equal(report.published, batch->item_count);
        pr__batch_free(batch);
        batch = next;
    }
    pr_store_free(store);
    return 0;
}

static void run_all(campaign *of, child_work writer, int writers, int long_writers)
{
    int pids[32];
    int count = 0;
    for (int i = 0; i < CLAIMERS; i++)
        pids[count++] = child_start(claim_rows, of, i);
    for (int i = 0; i < long_writers; i++)
        pids[count++] = child_start(write_long, of, i);
    for (int i = 0; i < writers; i++)
        pids[count++] = child_start(writer, of, i);
    for (int i = CLAIMERS; i < count; i++)
        child_wait(pids[i], 0, DEADLINE_MS);
    atomic_store(&of->ended, true);
    for (int i = 0; i < CLAIMERS; i++)
        child_wait(pids[i], 0, DEADLINE_MS);
}

/* Committed and claimed once, or rolled back and never claimed. */
static void check_once(campaign *of, int64_t rows_min)
{
    static unsigned char committed[IDS_MAX];
    PGresult *result = PQexec(of->on.db, "SELECT id FROM postroom.outbox");
    int64_t count = PQntuples(result), lost = 0, twice = 0, ghosts = 0;
    memset(committed, 0, sizeof committed);
    for (int i = 0; i < PQntuples(result); i++)
        committed[strtoll(PQgetvalue(result, i, 0), NULL, 10)] = 1;
    PQclear(result);
    for (int i = 0; i < IDS_MAX; i++) {
        int seen = atomic_load(&of->seen[i]);
        lost += committed[i] && seen == 0;
        twice += seen > 1;
        ghosts += !committed[i] && seen > 0;
    }
    print_message("# %lld committed, %lld claimed\n", (long long)count,
                  (long long)atomic_load(&of->claimed));
    if (lost || twice || ghosts)
        fail_msg("lost %lld, twice %lld, ghosts %lld of %lld", (long long)lost, (long long)twice,
                 (long long)ghosts, (long long)count);
    assert_true(count >= rows_min);
    assert_int_equal(db_number(of->on.db, "SELECT count(*) FROM postroom.outbox_state WHERE "
                                          "state <> 'published'"),
                     0);
}

static void every_row_once(void **state)
{
    (void)state;
    campaign *of = campaign_start(16);
    of->rows_wanted = scaled(50000);
    run_all(of, write_rows, WRITERS, LONG_WRITERS);
    check_once(of, scaled(40000));
    ground_done(&of->on);
}

/* The id is taken first, the lock of the aggregate waited for, its number counted up, the message
   written: so the numbers are in the order of the commits. */
static int write_ordered(void *user, int n)
{
    campaign *of = user;
    PGconn *db = db_open(of->on.uri);
    uint64_t random = 900 + (uint64_t)n;
    while (atomic_fetch_add(&of->rows, 1) < of->rows_wanted) {
        char sql[500];
        int which = (int)random_of(&random, AGGREGATES);
        db_run(db, "BEGIN; SELECT pg_current_xact_id()");
        if (random_of(&random, 3) == 0)
            sleep_ms(random_of(&random, 15));
        snprintf(
            sql, sizeof sql,
            "WITH a AS (UPDATE aggregates SET seq = seq + 1 WHERE id = %d RETURNING seq) " INSERT
            "SELECT '" TYPE_PLACED "', 'aggregate-%d', '" TO_BROKER
            "', convert_to(seq::text, 'UTF8') FROM a",
            which, which);
        db_run(db, sql);
        if (random_of(&random, 4) == 0)
            sleep_ms(random_of(&random, 10));
        db_run(db, random_of(&random, 12) == 0 ? "ROLLBACK" : "COMMIT");
    }
    PQfinish(db);
    return 0;
}

static void aggregates_in_order(void **state)
{
    (void)state;
    campaign *of = campaign_start(8);
    db_run(of->on.db, "CREATE TABLE aggregates (id integer PRIMARY KEY, seq integer NOT NULL);"
                      "INSERT INTO aggregates SELECT n, 0 FROM generate_series(0, 39) AS n");
    of->rows_wanted = scaled(17000);
    run_all(of, write_ordered, ORDER_WRITERS, 0);
    check_once(of, scaled(15000));
    assert_int_equal(atomic_load(&of->order_violations), 0);
    /* each aggregate has every number, and the last was delivered last */
    for (int i = 0; i < AGGREGATES; i++) {
        char sql[80];
        snprintf(sql, sizeof sql, "SELECT seq FROM aggregates WHERE id = %d", i);
        assert_int_equal(atomic_load(&of->last_seq[i]), db_number(of->on.db, sql));
    }
    ground_done(&of->on);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_once),
        cmocka_unit_test(aggregates_in_order),
    };
    databases.server = postgres_server_start(NULL);
    int failed = RUN_TESTS(tests);
    postgres_server_free(databases.server);
    return failed;
}
