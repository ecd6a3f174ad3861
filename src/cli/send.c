/*
 * `postroom send`: writes messages into the outbox from a shell; the relay carries them on.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <postroom/clock.h>
#include <postroom/headers.h>
#include <postroom/unit.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/time.h"
#include "cli/line.h"
#include "cli/line_reader.h"
#include "cli/output.h"
#include "cli/send_lines.h"
#include "cli/wiring.h"

#define ORIGIN        "cli.send"
#define BATCH_DEFAULT 1000
#define BATCH_MAX     100000

typedef struct send_values {
    pr__common common;
    const char *file;
    bool lines;
    int64_t batch;
    int64_t from_line;
    int64_t body_max;
    int64_t version;
    const char *id;
    const char *content_type;
    const char *destination;
    const char *source;
    const char *key;
    const char *tenant;
    const char *correlation_id;
    const char *causation_id;
    const char *traceparent;
    const char *tracestate;
    pr__texts headers;
    int64_t occurred_at_us;
    int64_t deliver_at_us;
    int64_t delay_ms;
    int64_t expires_at_us;
    int64_t expires_in_ms;
} send_values;

#define TEXT_OPTION(name, argument, help, member)                                                  \
    {                                                                                              \
        name, PR__OPTION_TEXT, argument, help, offsetof(send_values, member), 0, 0, NULL           \
    }

static const pr__option options[] = {
    TEXT_OPTION("file", "FILE", "the body, or the lines, from a file; - is standard input", file),
    {"lines", PR__OPTION_FLAG, NULL, "send JSON lines, one message each (see above)",
     offsetof(send_values, lines), 0, 0, NULL},
    {"batch", PR__OPTION_COUNT, "N", "lines: messages a transaction (default 1000)",
     offsetof(send_values, batch), 1, BATCH_MAX, NULL},
    {"from-line", PR__OPTION_COUNT, "N", "lines: pass over the lines before this one",
     offsetof(send_values, from_line), 1, 0, NULL},
    TEXT_OPTION("key", "KEY", "messages of one key stay in order", key),
    {"version", PR__OPTION_COUNT, "N", "schema version of the type (default 1)",
     offsetof(send_values, version), 1, INT32_MAX, NULL},
    TEXT_OPTION("destination", "ADDRESS",
                "such as database://in/billing (default: the type's topic on the store's default "
                "transport)",
                destination),
    TEXT_OPTION("content-type", "TYPE",
                "default: application/json when the body is JSON, text/plain when it is text (but "
                "what begins with '{' must be JSON), else "
                "application/octet-stream",
                content_type),
    {"header", PR__OPTION_LIST, "NAME=VALUE", "a header; may be given several times",
     offsetof(send_values, headers), 0, 0, NULL},
    TEXT_OPTION("id", "UUID", "the message's id (default: a new UUIDv7)", id),
    TEXT_OPTION("tenant", "NAME", "the tenant", tenant),
    TEXT_OPTION("source", "NAME", "who sends it", source),
    TEXT_OPTION("correlation-id", "ID", "what it belongs to", correlation_id),
    TEXT_OPTION("causation-id", "ID", "what caused it", causation_id),
    TEXT_OPTION("traceparent", "TEXT", "W3C trace context", traceparent),
    TEXT_OPTION("tracestate", "TEXT", "W3C trace context", tracestate),
    {"delay", PR__OPTION_DURATION, "TIME", "send it so much later, such as 30s, 15m, 2h",
     offsetof(send_values, delay_ms), 0, 0, NULL},
    {"deliver-at", PR__OPTION_INSTANT, "INSTANT", "send it then, such as 2026-01-31T12:00:00Z",
     offsetof(send_values, deliver_at_us), 0, 0, NULL},
    {"expires-in", PR__OPTION_DURATION, "TIME", "do not send it when so much time has passed",
     offsetof(send_values, expires_in_ms), 1, 0, NULL},
    {"expires-at", PR__OPTION_INSTANT, "INSTANT", "do not send it afterwards",
     offsetof(send_values, expires_at_us), 0, 0, NULL},
    {"occurred-at", PR__OPTION_INSTANT, "INSTANT", "when it happened (default: now)",
     offsetof(send_values, occurred_at_us), 0, 0, NULL},
    {"body-max", PR__OPTION_SIZE, "SIZE", "refuse larger bodies (default 1MiB, at most 64MiB)",
     offsetof(send_values, body_max), 1, PR_BODY_SIZE_MAX, NULL},
    {NULL, 0, NULL, NULL, 0, 0, 0, NULL},
};

/* An instant from "at" or "in"; both at once are refused. */
static pr_status choose_instant(const char *at_name, int64_t at_us, const char *in_name,
                                int64_t in_ms, int64_t *ret_us, pr_error *err)
{
    int64_t now_us = pr_clock_system()->wall_us(pr_clock_system()->user);
    if (at_us != PR__UNSET && in_ms != PR__UNSET)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "--%s and --%s together; give one of them",
                        at_name, in_name);
    if (in_ms != PR__UNSET && in_ms > (PR_INSTANT_MAX_US - now_us) / 1000)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "--%s is beyond the year 9999", in_name);
    if (in_ms != PR__UNSET)
        *ret_us = in_ms == 0 ? 0 : now_us + in_ms * 1000;
    else
        *ret_us = pr__option_or(at_us, 0);
    return PR_OK;
}

static pr_status read_headers(const send_values *values, pr_headers **ret_headers,
                              const char **ret_json, pr_error *err)
{
    TRY(pr_headers_parse(NULL, ret_headers, err));
    for (size_t i = 0; i < values->headers.count; i++) {
        char name[PR_ID_SIZE_MAX + 1];
        const char *text = values->headers.items[i];
        const char *equals = strchr(text, '=');
        size_t size = equals ? (size_t)(equals - text) : 0;
        if (size == 0 || size >= sizeof(name))
            return pr__fail(err, PR_E_INVALID, ORIGIN, "--header must be NAME=VALUE");
        pr__format(name, sizeof(name), "%.*s", (int)size, text);
        pr_header header = {.kind = PR_HEADER_TEXT, .name = name, .text = equals + 1};
        TRY(pr_headers_set(*ret_headers, &header, err));
    }
    return pr_headers_json(*ret_headers, ret_json, err);
}

/* Everything but the body, from the options. */
static pr_status read_envelope(const send_values *values, pr_message *ret_message, pr_error *err)
{
    pr_message message =
        PR_MESSAGE(.type_version = (uint32_t)pr__option_or(values->version, 0), .id = values->id,
                   .content_type = values->content_type, .destination = values->destination,
                   .source = values->source, .key = values->key, .tenant = values->tenant,
                   .correlation_id = values->correlation_id, .causation_id = values->causation_id,
                   .traceparent = values->traceparent, .tracestate = values->tracestate,
                   .headers = ret_message->headers,
                   .occurred_at_us = pr__option_or(values->occurred_at_us, 0));
    TRY(choose_instant("deliver-at", values->deliver_at_us, "delay", values->delay_ms,
                       &message.deliver_at_us, err));
    TRY(choose_instant("expires-at", values->expires_at_us, "expires-in", values->expires_in_ms,
                       &message.expires_at_us, err));
    *ret_message = message;
    return PR_OK;
}

/* --file, or standard input. *ret_fd is to be closed unless it is 0. */
static pr_status open_input(const send_values *values, int *ret_fd, pr_error *err)
{
    *ret_fd = STDIN_FILENO;
    if (!values->file || strcmp(values->file, "-") == 0)
        return PR_OK;
    *ret_fd = open(values->file, O_RDONLY | O_CLOEXEC);
    if (*ret_fd < 0)
        return pr__fail(err, errno == ENOENT ? PR_E_NOT_FOUND : PR_E_BACKEND, ORIGIN,
                        "cannot open '%s': %s", values->file, strerror(errno));
    return PR_OK;
}

static void print_sent(pr__cli *cli, const char *id)
{
    AUTO_BUFFER out = PR_BUFFER_INIT;
    pr__json json;
    if (!cli->json) {
        pr__print(cli, "%s", id);
        return;
    }
    pr__json_init(&json, &out);
    pr__json_object_begin(&json);
    pr__json_member_text(&json, "message_id", id);
    pr__json_object_end(&json);
    pr__print_buffer(cli, &out);
}

/* A shell's quotes were lost, or a brace is missing: an object that nobody could decode. */
static bool is_broken_object(const pr_message *message)
{
    const char *body = message->body ? message->body : "";
    return message->body_size_bytes > 0 && body[0] == '{' &&
           !pr__text_equal(message->content_type, PR_CONTENT_TYPE_JSON);
}

static pr__exit send_one(pr__cli *cli, pr_store *store, pr_message *message)
{
    pr_error err = PR_ERROR_INIT;
    pr_enqueued sent;
    pr_unit *unit = NULL;
    pr_outcome outcome = PR_OUTCOME_NOT_COMMITTED;
    if (!message->content_type) {
        message->content_type =
            pr__content_type_of(message->body, (size_t)message->body_size_bytes);
        if (is_broken_object(message))
            return pr__report(cli, PR__EXIT_FAILED, pr_status_text(PR_E_CONTENT),
                              "the body begins with '{' but is no JSON; mend it, or say what it is "
                              "with --content-type, such as text/plain");
    }
    pr_status status = pr_unit_begin(store, &unit, &err);
    if (status == PR_OK)
        status = pr_unit_enqueue(unit, message, &sent, &err);
    if (status == PR_OK) {
        status = pr_unit_commit(unit, &outcome, &err);
        if (status != PR_OK && outcome == PR_OUTCOME_UNKNOWN)
            pr__error_context(&err, "whether message '%s' was committed is not known", sent.id);
    }
    pr_unit_free(unit);
    if (status == PR_E_INVALID) /* a message that is refused failed; the options were fine */
        return pr__report(cli, PR__EXIT_FAILED, pr_status_text(status), "%s", err.message);
    if (status != PR_OK)
        return pr__report_error(cli, &err);
    print_sent(cli, sent.id);
    return PR__EXIT_OK;
}

static pr__exit send_body(pr__cli *cli, const send_values *values, pr_store *store,
                          pr_message *message, uint64_t body_size_max)
{
    pr_error err = PR_ERROR_INIT;
    AUTO(char) data = NULL;
    size_t size = 0;
    int fd = -1;
    message->type = cli->arguments.items[0];
    if (cli->arguments.count > 1) {
        message->body = cli->arguments.items[1];
        message->body_size_bytes = strlen(cli->arguments.items[1]);
        return send_one(cli, store, message);
    }
    if (open_input(values, &fd, &err) != PR_OK)
        return pr__report_error(cli, &err);
    if (fd == STDIN_FILENO && isatty(fd))
        fprintf(stderr, "the body is read from the terminal; end it with Ctrl-D\n");
    pr_status status = pr__read_all(fd, (size_t)body_size_max, &data, &size, &err);
    if (fd != STDIN_FILENO)
        close(fd);
    if (status != PR_OK)
        return pr__report_error(cli, &err);
    message->body = data;
    message->body_size_bytes = size;
    return send_one(cli, store, message);
}

static pr__exit send_lines(pr__cli *cli, const send_values *values, pr_store *store,
                           pr_message *defaults, uint64_t body_size_max)
{
    pr_error err = PR_ERROR_INIT;
    int fd = -1;
    bool standard = !values->file || strcmp(values->file, "-") == 0;
    if (cli->arguments.count > 0)
        defaults->type = cli->arguments.items[0];
    if (open_input(values, &fd, &err) != PR_OK)
        return pr__report_error(cli, &err);
    pr__send_lines opt = {.fd = fd,
                          .file = standard ? "standard input" : values->file,
                          .defaults = defaults,
                          .batch = (uint64_t)pr__option_or(values->batch, BATCH_DEFAULT),
                          .from_line = (uint64_t)pr__option_or(values->from_line, 1),
                          .body_size_max = body_size_max};
    pr__exit code = pr__send_lines_run(cli, store, &opt);
    if (fd != STDIN_FILENO)
        close(fd);
    return code;
}

static pr_status check_usage(const pr__cli *cli, const send_values *values, pr_error *err)
{
    if (!values->lines && cli->arguments.count == 0)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "a type is missing: postroom send TYPE [BODY], or --lines");
    if (values->lines && cli->arguments.count > 1)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "--lines takes no BODY");
    if (values->lines && values->id)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "--id is of one message; with --lines each line "
                        "gives its own \"id\"");
    if (!values->lines && (values->batch != PR__UNSET || values->from_line != PR__UNSET))
        return pr__fail(err, PR_E_INVALID, ORIGIN, "--batch and --from-line are for --lines");
    if (values->file && cli->arguments.count > 1)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "BODY and --file together; give one of them");
    return PR_OK;
}

static pr__exit run(pr__cli *cli, const void *v)
{
    const send_values *values = v;
    pr_error err = PR_ERROR_INIT;
    AUTO(pr_store) store = NULL;
    pr_headers *headers = NULL;
    pr_message message = PR_MESSAGE(.type_version = 0);
    uint64_t body_size_max = (uint64_t)pr__option_or(values->body_max, PR_BODY_SIZE_DEFAULT);
    pr__store_request request = {.common = &values->common, .body_size_max = body_size_max};
    pr_status status = check_usage(cli, values, &err);
    if (status == PR_OK)
        status = read_headers(values, &headers, &message.headers, &err);
    if (status == PR_OK)
        status = read_envelope(values, &message, &err);
    if (status == PR_OK)
        status = pr__wiring_store(&request, &store, &err);
    pr__exit code;
    if (status != PR_OK)
        code = pr__report_error(cli, &err);
    else if (values->lines)
        code = send_lines(cli, values, store, &message, body_size_max);
    else
        code = send_body(cli, values, store, &message, body_size_max);
    pr_headers_free(headers);
    return code;
}

const pr__command pr__command_send = {
    .name = "send",
    .arguments = "[TYPE] [BODY]",
    .summary = "write messages into the outbox",
    .details =
        "One message: its type, and its body as an argument, from --file, or from standard input. "
        "Prints the id.\n\n"
        "With --lines: JSON lines from --file or standard input, each an object with \"type\" and "
        "one "
        "of \"body\" (any JSON), \"body_text\", \"body_base64\", and if wanted version, key, "
        "destination, headers, id, content_type, tenant, source, correlation_id, causation_id, "
        "traceparent, tracestate, occurred_at, deliver_at, delay, expires_at, expires_in. What a "
        "line "
        "does not say is taken from the options and TYPE. \"body\" is stored in compact form; "
        "body_text and body_base64 keep the very bytes. Lines are committed in order, --batch a "
        "transaction; a bad line stops it: exit 5 when some were committed before, else 1.",
    .options = options,
    .values_size = sizeof(send_values),
    .arguments_max = 2,
    .uses_store = true,
    .run = run,
};
