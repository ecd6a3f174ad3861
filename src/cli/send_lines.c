/*
 * `postroom send --lines`: a stream of JSON lines into the outbox.
 *
 * Invariants: lines are committed in order and from the front, so that the number of the first
 * line that is not committed says everything; no transaction is open while input is waited for;
 * memory is bounded by one batch and one line.
 */
#include "cli/send_lines.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <postroom/clock.h>
#include <postroom/unit.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/time.h"
#include "cli/line.h"
#include "cli/line_reader.h"
#include "cli/output.h"
#include "cli/stop.h"

#define ORIGIN          "cli.send"
#define BATCH_BYTES_MAX ((size_t)8 * 1024 * 1024)
#define LINE_FACTOR     6 /* a byte of body is at most \u00XX in JSON */
#define LINE_EXTRA      ((size_t)64 * 1024)

typedef struct batch {
    pr__arena *arena;
    pr_message *messages; /* max */
    uint64_t *lines;      /* the line of each */
    size_t count;
    size_t max;
    size_t bytes;
} batch;

typedef struct sender {
    pr__cli *cli;
    pr_store *store;
    const pr__send_lines *opt;
    batch batch;
    uint64_t committed;
    uint64_t next_line; /* the first line that is not committed */
    uint64_t bad_line;  /* 0 = the failure is of no line */
} sender;

/* Set by the handler only; read between lines. A signal handler can reach nothing else. */
static volatile sig_atomic_t stop_asked;

static void on_signal(int number)
{
    (void)number;
    stop_asked = 1;
}

static pr_status batch_reset(batch *of, pr_error *err)
{
    of->arena = pr__arena_free(of->arena);
    of->arena = pr__arena_new(0);
    of->count = 0;
    of->bytes = 0;
    return of->arena ? PR_OK : pr__fail_nomem(err, ORIGIN);
}

static void batch_done(batch *of)
{
    pr__arena_free(of->arena);
    pr__free(of->messages);
    pr__free(of->lines);
}

/* A message that the store refuses harms no other: those before it are committed. */
static bool is_refusal(pr_status status)
{
    return status == PR_E_INVALID || status == PR_E_LIMIT || status == PR_E_CONTENT ||
           status == PR_E_CONFLICT;
}

/* Enqueue the batch in the unit; *ret_count of it, from the front, may be committed. */
static pr_status enqueue(sender *to, pr_unit *unit, size_t *ret_count, pr_error *err)
{
    const batch *of = &to->batch;
    pr_error first = PR_ERROR_INIT;
    *ret_count = of->count;
    pr_status status = pr_unit_enqueue_many(unit, of->messages, of->count, NULL, &first);
    if (status == PR_OK)
        return PR_OK;
    *ret_count = 0;
    if (!is_refusal(status)) {
        pr__error_copy(err, &first);
        return status;
    }
    /* all or none it was: now one by one, to keep those before the refused one */
    for (size_t i = 0; i < of->count; i++) {
        status = pr_unit_enqueue(unit, &of->messages[i], NULL, err);
        if (status != PR_OK) {
            to->bad_line = is_refusal(status) ? of->lines[i] : 0;
            *ret_count = is_refusal(status) ? i : 0;
            return status;
        }
        *ret_count = i + 1;
    }
    return PR_OK;
}

/* Commit what is in the batch. After a failure next_line and committed still tell the truth. */
static pr_status commit(sender *to, pr_error *err)
{
    batch *of = &to->batch;
    pr_error refused = PR_ERROR_INIT;
    pr_unit *unit = NULL;
    size_t count = 0;
    if (of->count == 0)
        return PR_OK;
    TRY(pr_unit_begin(to->store, &unit, err));
    pr_status enqueued = enqueue(to, unit, &count, &refused);
    pr_status status = PR_OK;
    if (count > 0) {
        pr_outcome outcome = PR_OUTCOME_NOT_COMMITTED;
        status = pr_unit_commit(unit, &outcome, err);
        if (status != PR_OK && outcome == PR_OUTCOME_UNKNOWN)
            pr__error_context(err, "whether lines %llu to %llu were committed is not known",
                              (unsigned long long)of->lines[0],
                              (unsigned long long)of->lines[count - 1]);
    }
    pr_unit_free(unit);
    if (status != PR_OK) {
        to->bad_line = 0;
        return status;
    }
    to->committed += count;
    to->next_line = count < of->count ? of->lines[count] : of->lines[count - 1] + 1;
    if (enqueued != PR_OK) {
        pr__error_copy(err, &refused);
        return enqueued;
    }
    return batch_reset(of, err);
}

static bool is_blank(const char *line, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (line[i] != ' ' && line[i] != '\t')
            return false;
    }
    return true;
}

static pr_status add_line(sender *to, const char *line, size_t size, uint64_t number, pr_error *err)
{
    batch *of = &to->batch;
    int64_t now_us = pr_clock_system()->wall_us(pr_clock_system()->user);
    if (number == 1 && size >= 3 && memcmp(line, "\xEF\xBB\xBF", 3) == 0) {
        line += 3; /* a byte order mark */
        size -= 3;
    }
    if (is_blank(line, size))
        return PR_OK;
    TRY(pr__line_parse(line, size, to->opt->defaults, now_us, to->opt->body_size_max, of->arena,
                       &of->messages[of->count], err));
    of->lines[of->count++] = number;
    of->bytes += size;
    return PR_OK;
}

static bool batch_full(const sender *to, const pr__line_reader *reader)
{
    const batch *of = &to->batch;
    if (of->count == 0)
        return false;
    return of->count == of->max || of->bytes >= BATCH_BYTES_MAX || !pr__line_reader_ready(reader);
}

/* Read and commit until the end, a bad line, a failure or a signal. */
static pr_status pump(sender *to, pr__line_reader *reader, pr_error *err)
{
    for (;;) {
        const char *line = NULL;
        size_t size = 0;
        if (batch_full(to, reader))
            TRY(commit(to, err));
        pr_status status = stop_asked ? pr__fail(err, PR_E_CANCELLED, ORIGIN, "stopped by a signal")
                                      : pr__line_reader_next(reader, &line, &size, err);
        if (status == PR_OK && line && reader->number >= to->opt->from_line)
            status = add_line(to, line, size, reader->number, err);
        if (status == PR_OK && line)
            continue;
        if (status == PR_E_LIMIT || status == PR_E_CONTENT || status == PR_E_INVALID)
            to->bad_line = reader->number;
        /* what came before the failure is good and stays */
        pr_error last = PR_ERROR_INIT;
        pr_status committed = commit(to, &last);
        if (committed != PR_OK) {
            pr_error_clear(err);
            pr__error_copy(err, &last);
            return committed;
        }
        if (to->bad_line > 0)
            to->next_line = to->bad_line;
        return status;
    }
}

static void print_summary(const sender *to, int64_t elapsed_us)
{
    double seconds = (double)elapsed_us / 1e6;
    double rate = seconds > 0 ? (double)to->committed / seconds : 0;
    if (!to->cli->json) {
        pr__print(to->cli, "%llu message%s committed in %.2f s (%.0f a second)",
                  (unsigned long long)to->committed, to->committed == 1 ? "" : "s", seconds, rate);
        return;
    }
    AUTO_BUFFER out = PR_BUFFER_INIT;
    pr__json json;
    pr__json_init(&json, &out);
    pr__json_object_begin(&json);
    pr__json_member_uint(&json, "committed", to->committed);
    pr__json_member_double(&json, "seconds", seconds);
    pr__json_member_double(&json, "per_second", rate);
    pr__json_object_end(&json);
    pr__print_buffer(to->cli, &out);
}

static pr__exit report_stop(const sender *to, const pr_error *err)
{
    pr__exit code = to->committed > 0 ? PR__EXIT_PARTIAL : PR__EXIT_FAILED;
    const char *status = pr_status_text(err->status);
    unsigned long long committed = to->committed, next = to->next_line;
    const char *were = committed == 1 ? "message was" : "messages were";
    if (to->bad_line > 0)
        return pr__report(to->cli, code, status,
                          "%s, line %llu: %s; %llu %s committed before it; mend the line "
                          "and go on with --from-line %llu",
                          to->opt->file, (unsigned long long)to->bad_line, err->message, committed,
                          were, next);
    return pr__report(to->cli, code, status,
                      "%s: %s; %llu %s committed; go on with --from-line %llu", to->opt->file,
                      err->message, committed, were, next);
}

pr__exit pr__send_lines_run(pr__cli *cli, pr_store *store, const pr__send_lines *opt)
{
    pr_error err = PR_ERROR_INIT;
    pr__line_reader reader;
    sender to = {.cli = cli, .store = store, .opt = opt, .next_line = opt->from_line};
    int64_t started_us = pr__monotonic_us();
    to.batch.max = (size_t)opt->batch;
    to.batch.messages = pr__alloc_array(to.batch.max, sizeof(pr_message));
    to.batch.lines = pr__alloc_array(to.batch.max, sizeof(uint64_t));
    if (!to.batch.messages || !to.batch.lines) {
        batch_done(&to.batch);
        return pr__report(cli, PR__EXIT_FAILED, "no-memory", "out of memory; lower --batch");
    }
    pr_status status = batch_reset(&to.batch, &err);
    pr__line_reader_init(&reader, opt->fd, (size_t)opt->body_size_max * LINE_FACTOR + LINE_EXTRA);
    pr__stop_watch(on_signal);
    if (status == PR_OK)
        status = pump(&to, &reader, &err);
    pr__line_reader_done(&reader);
    batch_done(&to.batch);
    if (status != PR_OK)
        return report_stop(&to, &err);
    print_summary(&to, pr__monotonic_us() - started_us);
    return PR__EXIT_OK;
}
