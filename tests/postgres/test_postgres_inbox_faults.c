/*
 * An endpoint whose way to PostgreSQL is cut, whose answers are swallowed or late, whose backend is
 * terminated or whose server crashes, at whichever request: one effect a message, no row beside a
 * mark, order per key, and no attempt charged but where a handler really failed.
 */
#include "postgres/shop.h"
#include "support/postgres_proxy.h"

#define STEPS_MAX 200
#define EFFECTS   3 /* of one round: the plain one, the head that fails once, the one behind it */
#define DONE_MS   40000
#define STEP_US   5000

static postgres_databases databases;
static postgres_proxy *proxy;

static const struct {
    const char *label;
    proxy_harm harm;
    int stride; /* in the short form: every so many steps */
} harms[] = {
    {"the request is cut", PROXY_CUT_REQUEST, 3},
    {"the reply is swallowed", PROXY_CUT_REPLY, 3},
    {"all but its Sync comes", PROXY_CUT_SYNC, 5},
    {"the reply breaks off", PROXY_CUT_INSIDE, 3},
    {"the reply is late", PROXY_DELAY, 17},
    {"the backend is terminated", PROXY_TERMINATE, 9},
    {"the server crashes", PROXY_CRASH, 19},
};

static int stride_of(size_t harm)
{
    const char *soak = getenv("POSTROOM_SOAK");
    return soak && soak[0] == '1' ? 1 : harms[harm].stride;
}

typedef struct scene {
    shop shop;
    char uri[POSTGRES_CONNINFO_SIZE];
    PGconn *db; /* other hands */
    int rounds;
    char what[120];
} scene;

static int64_t ask(const scene *of, const char *sql)
{
    PGresult *alive = PQexec(of->db, "SELECT 1");
    if (PQresultStatus(alive) != PGRES_TUPLES_OK)
        PQreset(of->db); /* the server was crashed on purpose */
    PQclear(alive);
    return db_number(of->db, sql);
}

static void scene_begin(scene *of)
{
    char name[64], through[POSTGRES_CONNINFO_SIZE];
    *of = (scene){.rounds = 0};
    postgres_database_make(&databases, of->uri);
    ground_migrate(of->uri, NULL);
    shop_prepare(of->uri);
    snprintf(name, sizeof name, "%.*s", (int)strcspn(of->uri + 14, "?"), of->uri + 14);
    postgres_proxy_uri(proxy, name, through);
    shop_open(&of->shop, of->uri, through);
    of->db = db_open(of->uri);
}

static void scene_end(scene *of)
{
    PQfinish(of->db);
    shop_close(&of->shop);
}

/* One that is handled, a key whose head fails once and whose second waits, and the first one's id
   again with other content. */
static void deliver_round(scene *of)
{
    char id[32], key[32];
    int n = ++of->rounds;
    snprintf(key, sizeof key, "key-%d", n);
    snprintf(id, sizeof id, "plain-%d", n);
    shop_deliver(&of->shop, id, NULL, "1");
    shop_deliver(&of->shop, id, NULL, "other content");
    snprintf(id, sizeof id, "head-%d", n);
    shop_deliver(&of->shop, id, key, "once-bad");
    snprintf(id, sizeof id, "next-%d", n);
    shop_deliver(&of->shop, id, key, "1");
}

static bool is_done(const scene *of)
{
    return ask(of, "SELECT count(*) FROM effects") >= EFFECTS * of->rounds &&
           ask(of, "SELECT count(*) FROM postroom.inbox_parked") == of->rounds &&
           ask(of, "SELECT count(*) FROM postroom.inbox_parked WHERE state <> 'dead'") == 0;
}

static void expect(const scene *of, const char *what, int64_t value, int64_t wanted)
{
    if (value != wanted)
        fail_msg("%s: %s is %lld, wanted %lld", of->what, what, (long long)value,
                 (long long)wanted);
}

static void check(const scene *of)
{
    expect(of, "effects", ask(of, "SELECT count(*) FROM effects"), EFFECTS * of->rounds);
    expect(of, "effects of distinct ids", ask(of, "SELECT count(DISTINCT id) FROM effects"),
           EFFECTS * of->rounds);
    expect(of, "marks", ask(of, "SELECT count(*) FROM postroom.inbox"), EFFECTS * of->rounds);
    expect(of, "parked beside a mark",
           ask(of, "SELECT count(*) FROM postroom.inbox_parked AS p JOIN postroom.inbox AS i "
                   "USING (tenant, consumer, message_id)"),
           0);
    expect(of, "the dead ones that are no conflicts",
           ask(of, "SELECT count(*) FROM postroom.inbox_parked WHERE message_id NOT LIKE "
                   "'conflict:%'"),
           0);
    expect(of, "keys out of order",
           ask(of, "SELECT count(*) FROM effects AS a JOIN effects AS b USING (key) WHERE a.id "
                   "LIKE 'next%' AND b.id LIKE 'head%' AND a.n < b.n"),
           0);
    /* the head's first attempt, and what the database refused to the handler itself */
    pr_endpoint_snapshot now = shop_endpoint_snapshot(&of->shop);
    expect(of, "charged beyond the handlers' own failures",
           (int64_t)now.failed > of->rounds + of->shop.refused ? (int64_t)now.failed : 0, 0);
}

/* True when the harm was done: there is a request with that number. */
static bool one_round(scene *of, size_t harm, int step)
{
    snprintf(of->what, sizeof of->what, "%s, request %d", harms[harm].label, step);
    deliver_round(of);
    postgres_proxy_arm(proxy, harms[harm].harm, step);
    int64_t until = now_ms() + DONE_MS;
    for (int n = 1; now_ms() < until && (n % 8 > 0 || !is_done(of)); n++) {
        of->shop.skipped_us += STEP_US; /* an idle endpoint waits for its broker, not here */
        shop_step_endpoint(&of->shop);
    }
    check(of);
    return postgres_proxy_disarm(proxy);
}

static void at_each_request(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(harms); i++) {
        scene at;
        int step = 1, requests = 0;
        scene_begin(&at);
        for (bool done = true; done && step < STEPS_MAX; step += stride_of(i)) {
            done = one_round(&at, i, step);
            requests = done ? step : requests;
        }
        print_message("# %s: at %d requests and more\n", harms[i].label, requests);
        assert_true(requests > 20 && step < STEPS_MAX);
        scene_end(&at);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_each_request),
    };
    databases.server = postgres_server_start(NULL);
    proxy = postgres_proxy_start(databases.server);
    int failed = RUN_TESTS(tests);
    postgres_proxy_free(proxy);
    postgres_server_free(databases.server);
    return failed;
}
