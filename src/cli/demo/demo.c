/*
 * `postroom demo`: messages cross two databases while the relay between them is killed, again and
 * again, at the worst moment; then both databases are reconciled.
 *
 * It leaves a folder with both databases behind, and no process.
 */
#include "cli/demo/demo.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <postroom/random.h>

#include "base/error.h"
#include "base/text.h"
#include "base/time.h"
#include "cli/cli.h"
#include "cli/demo/saga.h"
#include "cli/output.h"
#include "cli/wiring.h"

#define ORIGIN         "demo"
#define ORDERS_DEFAULT 1000
#define ORDERS_QUICK   200
#define ORDERS_SAGA    500
#define KILLS_SAGA     12
#define ORDERS_MIN     100
#define KILLS          4
#define KILLS_QUICK    3
#define DEADLINE_US    60000000
#define LOOK_US        10000 /* between two looks at the progress */
#define DARK_PART      20    /* so many parts of the orders are placed while no relay runs */
#define BAR_WIDTH      40

typedef struct demo_values {
    pr__common common;
    int64_t orders;
    const char *dir;
    bool quick;
    const char *postgres;
    const char *rabbitmq;
    const char *check;
    bool saga;
} demo_values;

static const pr__option options[] = {
    {"orders", PR__OPTION_COUNT, "N", "orders to place (default 1000)",
     offsetof(demo_values, orders), ORDERS_MIN, 1000000, NULL},
    {"dir", PR__OPTION_TEXT, "FOLDER",
     "put the databases there; it must be empty or not there yet (default: a new one here)",
     offsetof(demo_values, dir), 0, 0, NULL},
    {"quick", PR__OPTION_FLAG, NULL, "200 orders and 3 kills", offsetof(demo_values, quick), 0, 0,
     NULL},
    {"postgres", PR__OPTION_TEXT, "ADDRESS",
     "on PostgreSQL: the server, by the address of any database of it; the demo makes the "
     "databases "
     "postroom_orders and postroom_billing there. ./dev demo --postgres starts one of its own",
     offsetof(demo_values, postgres), 0, 0, NULL},
    {"saga", PR__OPTION_FLAG, NULL,
     "500 orders through stock, payment and shipping by a saga, a third of them refused and "
     "compensated, while its workers are killed at random",
     offsetof(demo_values, saga), 0, 0, NULL},
    {"rabbitmq", PR__OPTION_TEXT, "URI",
     "with a RabbitMQ broker between the two: amqp://…, or amqp: for what the environment's "
     "POSTROOM_AMQP says; what the demo makes there begins with postroom-demo- and is deleted. "
     "./dev demo --rabbitmq starts one of its own",
     offsetof(demo_values, rabbitmq), 0, 0, NULL},
    {"check", PR__OPTION_TEXT, "FOLDER", "only reconcile the databases of an earlier demo",
     offsetof(demo_values, check), 0, 0, NULL},
    {NULL, 0, NULL, NULL, 0, 0, 0, NULL},
};

typedef struct demo {
    pr__cli *cli;
    bool bar; /* on a terminal */
    bool postgres;
    bool has_broker;
    pr__demo_broker broker;
    char folder[PR__DEMO_PATH_SIZE - 64];
    char orders_store[PR__DEMO_PATH_SIZE]; /* their names as stores */
    char billing_store[PR__DEMO_PATH_SIZE];
    char log_path[PR__DEMO_PATH_SIZE];
    char sample_id[PR_UUID_TEXT_SIZE]; /* one that was in flight when the relay was killed */
    uint64_t orders;
    uint32_t kills;
    int64_t started_us;
    int64_t elapsed_us;
    uint64_t handled;
    pr__shop shop;
    pr__billing billing;
    pr__demo_relay relay;
} demo;

/* Set by the handler only. */
static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    (void)number;
    stopped = 1;
}

bool pr__demo_stopped(void)
{
    return stopped != 0;
}

static void watch_signals(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_handler = on_signal;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

/* ---- telling ---- */

static void clear_bar(const demo *of)
{
    if (of->bar) {
        fprintf(stdout, "\r%*s\r", BAR_WIDTH + 38, "");
        fflush(stdout);
    }
}

static void draw_bar(const demo *of)
{
    if (!of->bar)
        return;
    uint64_t of_orders = of->orders > 0 ? of->orders : 1;
    size_t full = (size_t)(of->handled * BAR_WIDTH / of_orders);
    char bar[BAR_WIDTH + 1];
    for (size_t i = 0; i < BAR_WIDTH; i++)
        bar[i] = i < full ? '#' : '.';
    bar[BAR_WIDTH] = '\0';
    fprintf(stdout, "\r[%s] %llu placed, %llu billed", bar, (unsigned long long)of->shop.placed,
            (unsigned long long)of->handled);
    fflush(stdout);
}

static void tell(demo *of, const char *format, ...) PR_PRINTF(2, 3);
static void tell(demo *of, const char *format, ...)
{
    char text[1024 + PR__DEMO_PATH_SIZE * 2];
    va_list arguments;
    if (of->cli->json)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    clear_bar(of);
    pr__print(of->cli, "%s", text);
    fflush(stdout);
}

/* ---- the folder ---- */

static bool is_empty_folder(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    bool empty = folder != NULL;
    if (!folder)
        return false;
    while (empty && (entry = readdir(folder)) != NULL)
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    closedir(folder);
    return empty;
}

static pr_status make_folder(demo *of, const char *wanted, pr_error *err)
{
    const char *temporary = getenv("TMPDIR");
    if (pr__text_empty(temporary))
        temporary = "/tmp";
    if (wanted) {
        if (strlen(wanted) >= sizeof(of->folder))
            return pr__fail(err, PR_E_INVALID, ORIGIN, "the name of the folder is too long");
        pr__format(of->folder, sizeof(of->folder), "%s", wanted);
        int failed = mkdir(wanted, 0777) == 0 ? 0 : errno;
        if (failed == 0 || (failed == EEXIST && is_empty_folder(wanted)))
            return PR_OK;
        if (failed == EEXIST)
            return pr__fail(err, PR_E_STATE, ORIGIN,
                            "'%s' is there and is no empty folder; name another one", wanted);
        return pr__fail(err, PR_E_BACKEND, ORIGIN, "cannot make the folder '%s': %s", wanted,
                        strerror(failed));
    }
    pr__format(of->folder, sizeof(of->folder), "postroom-demo-XXXXXX");
    if (mkdtemp(of->folder))
        return PR_OK;
    pr__format(of->folder, sizeof(of->folder), "%s/postroom-demo-XXXXXX", temporary);
    if (mkdtemp(of->folder))
        return PR_OK;
    return pr__fail(err, PR_E_BACKEND, ORIGIN, "cannot make a folder here or in '%s': %s",
                    temporary, strerror(errno));
}

static void name_files(demo *of)
{
    pr__format(of->orders_store, sizeof(of->orders_store), "%s/orders.db", of->folder);
    pr__format(of->billing_store, sizeof(of->billing_store), "%s/billing.db", of->folder);
    pr__format(of->log_path, sizeof(of->log_path), "%s/relay.log", of->folder);
}

static pr_status make_databases(demo *of, const char *server, pr_error *err)
{
    static const char *const names[] = {"postroom_orders", "postroom_billing"};
    char *const stores[] = {of->orders_store, of->billing_store};
    return pr__demo_make_databases(server, names, stores, PR__DEMO_PATH_SIZE, err);
}

/* The URI goes to the relay in the environment: a command line can be read by everybody. */
static pr_status set_broker(demo *of, const char *uri, pr_error *err)
{
    uint32_t random;
    if (!pr__wiring_is_amqp(uri))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "--rabbitmq begins neither with amqp:// nor with amqps://");
    if (strcmp(uri, "amqp:") != 0 && setenv(PR__AMQP_ENVIRONMENT, uri, 1) != 0)
        return pr__fail_nomem(err, ORIGIN);
    pr_random_system()->fill(pr_random_system()->user, &random, sizeof(random));
    pr__format(of->broker.prefix, sizeof(of->broker.prefix), "postroom-demo-%08x.", random);
    of->has_broker = true;
    return PR_OK;
}

/* ---- the show ---- */

/* After Ctrl-C, too late, or when billing has ended by itself. */
static pr_status check_going(const demo *of, pr_error *err)
{
    if (pr__demo_stopped())
        return pr__fail(err, PR_E_CANCELLED, ORIGIN, "stopped; the databases stay in %s",
                        of->folder);
    if (pr__monotonic_us() - of->started_us > DEADLINE_US + (int64_t)of->orders * 10000)
        return pr__fail(
            err, PR_E_BACKEND, ORIGIN, "it takes too long: %llu of %llu orders are billed; see %s",
            (unsigned long long)of->handled, (unsigned long long)of->shop.committed, of->log_path);
    if (atomic_load(&of->billing.ended))
        return pr__fail(err, PR_E_BACKEND, ORIGIN, "billing ended by itself: %s",
                        of->billing.err.message);
    return PR_OK;
}

static pr_status look(demo *of, bool *ret_drained, pr_error *err)
{
    TRY(check_going(of, err));
    TRY(pr__demo_drained(&of->relay, of->shop.committed, &of->handled, ret_drained, err));
    if (*ret_drained)
        TRY(pr__billing_quiet(&of->billing, ret_drained, err));
    draw_bar(of);
    return PR_OK;
}

static pr_status place_until(demo *of, uint64_t number, pr_error *err)
{
    bool drained;
    while (of->shop.placed < number && of->shop.placed < of->orders) {
        TRY(pr__shop_place(&of->shop, err));
        if (of->shop.placed % 25 == 0)
            TRY(look(of, &drained, err));
    }
    return PR_OK;
}

/* What was in flight at the last kill is to be settled by the next relay, before it is killed. */
static pr_status wait_recovered(demo *of, pr_error *err)
{
    bool recovered = false, drained;
    TRY(pr__demo_relay_recovered(&of->relay, &recovered, err));
    while (!recovered) {
        pr__sleep_us(LOOK_US);
        TRY(look(of, &drained, err));
        TRY(pr__demo_relay_recovered(&of->relay, &recovered, err));
    }
    return PR_OK;
}

/* Kill it in the middle of a slice; orders go on being placed so that there is one. */
static pr_status kill_relay(demo *of, pr_error *err)
{
    pid_t pid = of->relay.pid;
    bool killed = false, drained;
    while (!killed) {
        TRY(pr__demo_relay_kill(&of->relay, &killed, err));
        if (!killed && of->shop.placed == of->orders)
            return pr__fail(err, PR_E_BACKEND, ORIGIN,
                            "the relay could not be caught with a message in flight");
        if (!killed)
            TRY(place_until(of, of->shop.placed + 5, err));
        TRY(look(of, &drained, err));
    }
    memcpy(of->sample_id, of->relay.caught[0], PR_UUID_TEXT_SIZE);
    tell(of,
         "  kill -9 of relay %d: %zu messages stood in billing's database, none of them settled in "
         "the shop's",
         (int)pid, of->relay.arrived_count);
    return PR_OK;
}

static pr_status perform(demo *of, pr_error *err)
{
    bool drained = false;
    uint64_t part = of->orders / (of->kills + 1);
    TRY(pr__demo_relay_start(&of->relay, err));
    tell(of, "  relay %d runs, with a lease of 1 s", (int)of->relay.pid);
    for (uint32_t i = 1; i <= of->kills; i++) {
        TRY(place_until(of, part * i, err));
        TRY(wait_recovered(of, err));
        TRY(kill_relay(of, err));
        uint64_t placed = of->shop.placed;
        TRY(place_until(of, placed + of->orders / DARK_PART, err));
        TRY(pr__demo_relay_start(&of->relay, err));
        tell(of, "  the shop placed %llu orders meanwhile; relay %d takes over",
             (unsigned long long)(of->shop.placed - placed), (int)of->relay.pid);
    }
    TRY(place_until(of, of->orders, err));
    tell(of, "  all %llu orders are placed; waiting until the last one is billed",
         (unsigned long long)of->shop.placed);
    while (!drained) {
        TRY(look(of, &drained, err));
        if (!drained)
            pr__sleep_us(LOOK_US);
    }
    TRY(pr__demo_relay_stop(&of->relay, err));
    return pr__billing_close(&of->billing, err);
}

static pr_status open_all(demo *of, pr_error *err)
{
    TRY(pr__shop_open(of->orders_store, of->orders, &of->shop, err));
    const pr__demo_broker *broker = of->has_broker ? &of->broker : NULL;
    TRY(pr__billing_start(of->billing_store, broker, &of->billing, err));
    of->relay.broker = broker;
    of->relay.orders_store = of->orders_store;
    of->relay.billing_store = of->billing_store;
    of->relay.log_path = of->log_path;
    return pr__demo_relay_open(&of->relay, err);
}

/* ---- the end ---- */

/* How this program is called again; a word that a shell takes as it is. */
static void shell_word(pr__buffer *out, const char *word)
{
    if (word[0] != '\0' && word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                             "0123456789_./+-")] == '\0') {
        pr__buffer_append_text(out, word);
        return;
    }
    pr__buffer_append_char(out, '\'');
    for (; *word; word++) {
        if (*word == '\'')
            pr__buffer_append_text(out, "'\\''");
        else
            pr__buffer_append_char(out, *word);
    }
    pr__buffer_append_char(out, '\'');
}

static void tell_next(demo *of)
{
    AUTO_BUFFER program = PR_BUFFER_INIT;
    AUTO_BUFFER orders = PR_BUFFER_INIT;
    AUTO_BUFFER billing = PR_BUFFER_INIT;
    shell_word(&program, strchr(of->cli->program, '/') ? of->cli->program : "postroom");
    shell_word(&orders, of->orders_store);
    shell_word(&billing, of->billing_store);
    const char *name = pr__buffer_text(&program), *from = pr__buffer_text(&orders);
    const char *to = pr__buffer_text(&billing);
    if (!name || !from || !to)
        return;
    tell(of, "%s", "");
    tell(of, "Three things to try next:");
    tell(of, "  what stands where            %s status --store %s", name, to);
    tell(of, "  where a message went         %s explain %s --store %s", name, of->sample_id, from);
    tell(of,
         "  write one, ask where it is   %s explain $(%s send urn:message:shop:order-cancelled "
         "'{\"order\": 1}' --store %s) --store %s",
         name, name, from, from);
}

static void check_json(pr__json *json, const pr__check *check)
{
    pr__json_member_bool(json, "ok", check->ok);
    for (size_t i = 0; pr__check_key(i); i++)
        pr__json_member_int(json, pr__check_key(i), check->values[i]);
}

static void print_json(const demo *of, const pr__check *check)
{
    AUTO_BUFFER out = PR_BUFFER_INIT;
    pr__json json;
    pr__json_init(&json, &out);
    pr__json_object_begin(&json);
    pr__json_member_text(&json, "folder", of->folder);
    if (of->elapsed_us > 0) {
        pr__json_member_double(&json, "seconds", (double)of->elapsed_us / 1e6);
        pr__json_member_uint(&json, "relay_kills", of->relay.kills);
    }
    check_json(&json, check);
    pr__json_object_end(&json);
    pr__print_buffer(of->cli, &out);
}

static void print_check(demo *of, const pr__check *check)
{
    tell(of, "%s", "");
    tell(of, "Reconciliation, read from both databases by plain SQL:");
    for (size_t i = 0; pr__check_text(i); i++)
        tell(of, "  %-42s %8lld%s", pr__check_text(i), (long long)check->values[i],
             check->right[i] ? "" : "   WRONG");
}

/* Reconcile and say so. */
static pr__exit reconcile(demo *of)
{
    pr_error err = PR_ERROR_INIT;
    pr__check check;
    if (pr__check_run(of->orders_store, of->billing_store, &check, &err) != PR_OK)
        return pr__report_error(of->cli, &err);
    if (of->cli->json)
        print_json(of, &check);
    else
        print_check(of, &check);
    if (!check.ok)
        return pr__report(of->cli, PR__EXIT_FAILED, "wrong",
                          "the reconciliation is wrong; the databases are in %s", of->folder);
    return PR__EXIT_OK;
}

static pr__exit show(demo *of)
{
    pr_error err = PR_ERROR_INIT;
    tell(of, "Postroom demo in %s", of->folder);
    tell(of, "  %s a shop: each order and its message commit in one transaction",
         of->postgres ? "postroom_orders  " : "orders.db  ");
    tell(of, "  %s billing: one invoice an order, whatever comes twice",
         of->postgres ? "postroom_billing " : "billing.db ");
    if (of->has_broker)
        tell(of, "  RabbitMQ    between them: %s%s, and its dead queue", of->broker.prefix,
             PR__DEMO_ENDPOINT);
    tell(of, "%s", "");
    of->started_us = pr__monotonic_us();
    watch_signals();
    pr_status status = open_all(of, &err);
    if (status == PR_OK)
        status = perform(of, &err);
    clear_bar(of);
    pr__demo_relay_done(&of->relay);
    if (status != PR_OK && of->billing.endpoint) {
        pr_status ignored = pr__billing_close(&of->billing, NULL); /* leave nothing at the broker */
        (void)ignored;
    }
    pr__billing_done(&of->billing);
    pr__shop_done(&of->shop);
    of->elapsed_us = pr__monotonic_us() - of->started_us;
    if (status != PR_OK) {
        pr__report(of->cli, PR__EXIT_FAILED, pr_status_text(status), "%s", err.message);
        return PR__EXIT_FAILED;
    }
    pr__exit code = reconcile(of);
    if (code == PR__EXIT_OK) {
        tell(of, "%s", "");
        tell(of, "Nothing lost, nothing twice, in order, through %u kills, in %.1f s.",
             of->relay.kills, (double)of->elapsed_us / 1e6);
        tell_next(of);
    }
    return code;
}

static pr__exit check_saga(demo *of)
{
    pr__saga_demo saga = {.cli = of->cli, .store = of->orders_store, .place = of->folder};
    return pr__saga_demo_check(&saga);
}

/* The other show: one database, four services. */
static pr__exit show_saga(demo *of, const demo_values *values)
{
    pr_error err = PR_ERROR_INIT;
    bool quick = values->quick;
    pr__saga_demo saga = {
        .cli = of->cli,
        .store = of->orders_store,
        .place = of->postgres ? of->orders_store : of->folder,
        .orders = (uint64_t)pr__option_or(values->orders, quick ? ORDERS_MIN : ORDERS_SAGA),
        .kills = quick ? KILLS_QUICK : KILLS_SAGA};
    if (make_folder(of, values->dir, &err) != PR_OK)
        return pr__report_error(of->cli, &err);
    name_files(of);
    if (of->postgres && make_databases(of, values->postgres, &err) != PR_OK)
        return pr__report_error(of->cli, &err);
    watch_signals();
    return pr__saga_demo_run(&saga);
}

static pr__exit run(pr__cli *cli, const void *v)
{
    const demo_values *values = v;
    pr_error err = PR_ERROR_INIT;
    demo of = {.cli = cli, .bar = !cli->json && isatty(STDOUT_FILENO)};
    of.postgres = values->postgres != NULL;
    if (values->saga && values->rabbitmq)
        return pr__report_usage(cli, "--saga is a show of one database: it takes no --rabbitmq");
    if (values->saga && !values->check)
        return show_saga(&of, values);
    if (values->check && (values->dir || values->orders != PR__UNSET || values->quick ||
                          values->postgres || values->rabbitmq))
        return pr__report_usage(cli, "--check takes no other option of the demo");
    if (values->check) {
        if (strlen(values->check) >= sizeof(of.folder))
            return pr__report_usage(cli, "the name of the folder is too long");
        pr__format(of.folder, sizeof(of.folder), "%s", values->check);
        name_files(&of);
        return values->saga ? check_saga(&of) : reconcile(&of);
    }
    if (values->rabbitmq && set_broker(&of, values->rabbitmq, &err) != PR_OK)
        return pr__report_error(cli, &err);
    of.orders =
        (uint64_t)pr__option_or(values->orders, values->quick ? ORDERS_QUICK : ORDERS_DEFAULT);
    of.kills = values->quick ? KILLS_QUICK : KILLS;
    if (make_folder(&of, values->dir, &err) != PR_OK)
        return pr__report_error(cli, &err);
    name_files(&of);
    if (of.postgres && make_databases(&of, values->postgres, &err) != PR_OK)
        return pr__report_error(cli, &err);
    return show(&of);
}

const pr__command pr__command_demo = {
    .name = "demo",
    .arguments = "",
    .summary = "show messages crossing two databases while the relay is killed",
    .details =
        "A shop commits orders with their messages in orders.db; a relay in a process of its own "
        "carries them to billing.db; billing writes one invoice an order. The relay is killed with "
        "SIGKILL between the receiver's commit and its own settle, several times. At the end both "
        "databases are reconciled; exit 1 if anything is lost, twice, out of order or dead. The "
        "folder is kept.",
    .options = options,
    .values_size = sizeof(demo_values),
    .run = run,
};
