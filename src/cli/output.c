/*
 * Standard output and standard error of the command.
 *
 * libsmartcols lays tables out; cells come from databases and are untrusted, so control characters
 * never reach a terminal. Nothing here depends on the locale.
 */
#include "cli/output.h"

#include <errno.h>
#include <libsmartcols/libsmartcols.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <postroom/limits.h>

#include "base/error.h"
#include "base/text.h"
#include "base/time.h"

#define CELL_SIZE   1024
#define COLUMNS_MAX 16

struct pr__table {
    struct libscols_table *scols;
    size_t column_count;
    bool failed;
};

static void remember(pr__cli *cli)
{
    if (cli->output_errno == 0)
        cli->output_errno = errno != 0 ? errno : EIO;
}

void pr__print(pr__cli *cli, const char *format, ...)
{
    AUTO_BUFFER line = PR_BUFFER_INIT;
    va_list arguments;
    char text[4096];
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    pr__buffer_append_text(&line, text);
    pr__print_buffer(cli, &line);
}

void pr__print_buffer(pr__cli *cli, pr__buffer *buffer)
{
    const char *text = pr__buffer_text(buffer);
    if (!text) {
        errno = ENOMEM;
        remember(cli);
        return;
    }
    if (cli->output_errno != 0)
        return;
    if (fwrite(text, 1, buffer->size, stdout) != buffer->size || fputc('\n', stdout) == EOF)
        remember(cli);
}

bool pr__output_failed(const pr__cli *cli)
{
    return cli->output_errno != 0;
}

pr__exit pr__output_finish(pr__cli *cli, pr__exit code)
{
    if (cli->output_errno == 0 && fflush(stdout) != 0)
        remember(cli);
    if (cli->output_errno == 0)
        return code;
    if (cli->output_errno == EPIPE)
        return PR__EXIT_FAILED; /* whoever read it has seen enough */
    return pr__report(cli, PR__EXIT_FAILED, "output", "cannot write the output: %s",
                      strerror(cli->output_errno));
}

void pr__print_field(pr__cli *cli, const char *name, const char *text)
{
    char safe[PR_ERROR_TEXT_SIZE_MAX + 1];
    if (!text || text[0] == '\0')
        return;
    pr__one_line(safe, sizeof(safe), text, strlen(text));
    pr__print(cli, "%-16s %s", name, safe);
}

void pr__print_instant(pr__cli *cli, const char *name, int64_t instant_us)
{
    char text[PR_INSTANT_TEXT_SIZE];
    if (instant_us == 0)
        return;
    pr__instant_text(instant_us, text);
    pr__print(cli, "%-16s %s", name, text);
}

void pr__print_data(pr__cli *cli, const char *name, const char *data, size_t size,
                    const char *allowed)
{
    AUTO_BUFFER text = PR_BUFFER_INIT;
    if (!data || size == 0)
        return;
    bool plain = pr__utf8_valid(data, size);
    for (size_t i = 0; plain && i < size; i++)
        plain = (unsigned char)data[i] >= ' ' || (data[i] && strchr(allowed, data[i]));
    if (plain) {
        pr__print(cli, "%s", "");
        pr__buffer_append(&text, data, size);
    } else {
        pr__json json;
        pr__print(cli, "\n%s in base64:", name);
        pr__json_init(&json, &text);
        pr__json_base64(&json, data, size);
    }
    pr__print_buffer(cli, &text);
}

static pr__exit exit_of(pr_status status)
{
    switch (status) {
    case PR_OK:
        return PR__EXIT_OK;
    case PR_E_INVALID:
    case PR_E_UNSUPPORTED:
        return PR__EXIT_USAGE;
    case PR_E_NOT_FOUND:
        return PR__EXIT_NOT_FOUND;
    case PR_E_STATE:
    case PR_E_CONFLICT:
    case PR_E_SCHEMA:
        return PR__EXIT_STATE;
    case PR_E_LIMIT:
    case PR_E_CONTENT:
    case PR_E_BUSY:
    case PR_E_FENCED:
    case PR_E_BACKEND:
    case PR_E_CANCELLED:
    case PR_E_NOMEM:
        return PR__EXIT_FAILED;
    }
    return PR__EXIT_FAILED;
}

static pr__exit report_text(const pr__cli *cli, pr__exit code, const char *status,
                            const char *message)
{
    AUTO_BUFFER out = PR_BUFFER_INIT;
    char line[PR_ERROR_MESSAGE_SIZE * 2];
    const char *command = cli->command ? cli->command->name : "";
    pr__one_line(line, sizeof(line), message, strlen(message));
    if (cli->json) {
        pr__json json;
        pr__json_init(&json, &out);
        pr__json_object_begin(&json);
        pr__json_key(&json, "error");
        pr__json_object_begin(&json);
        pr__json_member_text(&json, "command", command);
        pr__json_member_text(&json, "status", status);
        pr__json_member_text(&json, "message", line);
        pr__json_member_int(&json, "exit", (int64_t)code);
        pr__json_object_end(&json);
        pr__json_object_end(&json);
    } else {
        pr__buffer_printf(&out, "postroom%s%s: %s", command[0] ? " " : "", command, line);
    }
    pr__buffer_append_char(&out, '\n');
    fflush(stdout);
    if (pr__buffer_text(&out))
        fputs(pr__buffer_text(&out), stderr);
    return code;
}

pr__exit pr__report(const pr__cli *cli, pr__exit code, const char *status, const char *format, ...)
{
    char message[PR_ERROR_MESSAGE_SIZE * 2];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    return report_text(cli, code, status, message);
}

pr__exit pr__report_usage(const pr__cli *cli, const char *format, ...)
{
    char message[PR_ERROR_MESSAGE_SIZE * 2];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    return report_text(cli, PR__EXIT_USAGE, "invalid", message);
}

pr__exit pr__report_error(const pr__cli *cli, const pr_error *err)
{
    return report_text(cli, exit_of(err->status), pr_status_text(err->status), err->message);
}

/* ---- tables ---- */

pr__table *pr__table_new(const pr__column *columns, size_t count)
{
    pr__table *table = pr__alloc(sizeof(*table));
    if (!table)
        return NULL;
    table->scols = scols_new_table();
    table->column_count = count;
    if (!table->scols || count > COLUMNS_MAX) {
        pr__table_free(table);
        return NULL;
    }
    scols_table_enable_noencoding(table->scols, 1); /* cells are made safe here */
    for (size_t i = 0; i < count; i++) {
        bool cut = columns[i].share > 0;
        int flags = (columns[i].right ? SCOLS_FL_RIGHT : 0) | (cut ? SCOLS_FL_TRUNC : 0);
        if (!scols_table_new_column(table->scols, columns[i].name, columns[i].share, flags))
            table->failed = true;
    }
    return table;
}

void *pr__table_free(pr__table *table)
{
    if (table) {
        scols_unref_table(table->scols);
        pr__free(table);
    }
    return NULL;
}

void pr__table_row(pr__table *table, const char *const *cells)
{
    char safe[CELL_SIZE];
    struct libscols_line *line = scols_table_new_line(table->scols, NULL);
    if (!line) {
        table->failed = true;
        return;
    }
    for (size_t i = 0; i < table->column_count; i++) {
        const char *cell = cells[i] ? cells[i] : "";
        pr__one_line(safe, sizeof(safe), cell, strlen(cell));
        if (scols_line_set_data(line, i, safe) != 0)
            table->failed = true;
    }
}

void pr__table_print(pr__cli *cli, pr__table *table)
{
    if (table->failed) {
        errno = ENOMEM;
        remember(cli);
        return;
    }
    if (cli->output_errno != 0)
        return;
    errno = 0;
    if (fflush(stdout) != 0 || scols_print_table(table->scols) != 0 || fflush(stdout) != 0 ||
        ferror(stdout))
        remember(cli);
}
