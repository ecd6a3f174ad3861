/*
 * What the tests of the PostgreSQL store share.
 */
#include "postgres/ground.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/enqueue.h"

#define CHILD_FAILED 99

void ground_migrate(const char *uri, const pr_migrate_options *opt)
{
    pr_error err = PR_ERROR_INIT;
    pr_postgres_options options = PR_POSTGRES_OPTIONS(.conninfo = uri, .schema_check_off = true);
    pr_store *store = NULL;
    check_ok(pr_postgres_store_open(&options, &store, &err), &err, "open");
    check_ok(pr_store_migrate(store, opt, NULL, &err), &err, "migrate");
    pr_store_free(store);
}

/* To copy a database is cheaper than to migrate one. */
static void copy_migrated(postgres_databases *on, char ret_uri[POSTGRES_CONNINFO_SIZE])
{
    if (!on->migrated[0]) {
        postgres_database_make(on, ret_uri);
        ground_migrate(ret_uri, NULL);
        PGconn *db = db_open(ret_uri);
        db_text(db, "SELECT current_database()", on->migrated, sizeof on->migrated);
        PQfinish(db);
    }
    postgres_database_copy(on, on->migrated, ret_uri);
}

void ground_make(postgres_databases *on, const pr_migrate_options *opt, ground *ret_ground)
{
    if (opt) {
        postgres_database_make(on, ret_ground->uri);
        ground_migrate(ret_ground->uri, opt);
    } else {
        copy_migrated(on, ret_ground->uri);
    }
    ret_ground->db = db_open(ret_ground->uri);
}

void ground_done(ground *of)
{
    PQfinish(of->db);
    of->db = NULL;
}

pr_store *ground_store(const char *uri)
{
    pr_error err = PR_ERROR_INIT;
    pr_postgres_options options = PR_POSTGRES_OPTIONS(.conninfo = uri);
    pr_store *store = NULL;
    check_ok(pr_postgres_store_open(&options, &store, &err), &err, "open");
    assert_string_equal(store->ops->name, "postgres");
    return store;
}

void ground_post(pr_store *store, const char *key, const char *body)
{
    pr_message message = PR_MESSAGE(.type = TYPE_PLACED, .key = key, .destination = TO_BROKER,
                                    .body = body, .body_size_bytes = strlen(body));
    enqueue_and_commit(store, &message);
}

size_t ground_drain(pr_store *store, int64_t lease_ms, ground_see see, void *user)
{
    size_t total = 0;
    for (;;) {
        pr_error err = PR_ERROR_INIT;
        pr__claim_options opt = {.reader = PR_READER_RELAY,
                                 .lease_ms = lease_ms,
                                 .batch_max = 500,
                                 .bytes_max = 8 * 1024 * 1024,
                                 .owner = "drain"};
        pr__settle_report report = {0};
        pr__batch *batch = NULL;
        check_ok(pr__store_claim(store, &opt, &batch, &err), &err, "claim");
        if (!batch)
            return total;
        for (uint32_t i = 0; i < batch->item_count; i++) {
            batch->items[i].result = PR__RESULT_PUBLISHED;
            if (see)
                see(user, &batch->items[i]);
        }
        pr__batch_close(batch);
        check_ok(pr__store_settle(store, batch, NULL, &report, NULL, &err), &err, "settle");
        total += report.published;
        pr__batch_free(batch);
    }
}

pr__claim_options ground_claim_options(uint32_t batch_max)
{
    return (pr__claim_options){.reader = PR_READER_RELAY,
                               .lease_ms = 1000,
                               .batch_max = batch_max,
                               .bytes_max = 1024 * 1024,
                               .owner = "ground"};
}

pr__batch *ground_claim(pr_store *store, uint32_t batch_max)
{
    pr_error err = PR_ERROR_INIT;
    pr__claim_options opt = ground_claim_options(batch_max);
    pr__batch *batch = NULL;
    check_ok(pr__store_claim(store, &opt, &batch, &err), &err, "claim");
    return batch;
}

void *shared_memory(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        fail_msg("mmap: %s", strerror(errno));
    return memory;
}

/* A failed assertion in a child must not run the rest of the parent's tests. */
static void die(int number)
{
    (void)number;
    _exit(CHILD_FAILED);
}

int child_start(child_work work, void *user, int n)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0)
        fail_msg("fork: %s", strerror(errno));
    if (pid == 0) {
        signal(SIGABRT, die);
        signal(SIGSEGV, SIG_DFL);
        setenv("CMOCKA_TEST_ABORT", "1", 1);
        _exit(work(user, n));
    }
    return (int)pid;
}

void child_wait(int pid, int wanted, int64_t ms)
{
    int status = 0;
    int64_t until = now_ms() + ms;
    pid_t ended;
    while ((ended = waitpid(pid, &status, WNOHANG)) == 0 && now_ms() < until)
        sleep_ms(10);
    if (ended == 0) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        fail_msg("a child does not end in %lld ms", (long long)ms);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != wanted)
        fail_msg("a child ended with status 0x%x, wanted exit %d", (unsigned)status, wanted);
}

void sleep_ms(int64_t ms)
{
    struct timespec left = {ms / 1000, (ms % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
}

int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
