/*
 * The option parser and the help, both driven by the same tables.
 *
 * Options and arguments may be mixed; "--" ends the options; "--name value" and "--name=value" are
 * the same. Names are never abbreviated: a script must not break when an option is added.
 */
#include "cli/options.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/time.h"
#include "cli/cli.h"

#define DURATION_MS_MAX (36500LL * 24 * 3600 * 1000)
#define ORIGIN          "cli.options"
#define NAME_SIZE_MAX   48 /* longer names have no near one */
#define CANDIDATES_MAX  64
#define HELP_COLUMN     28
#define HELP_WIDTH      84

static const pr__option store_options[] = {
    {"store", PR__OPTION_TEXT, "STORE",
     "the database: sqlite:PATH, a plain path, postgresql://HOST/DATABASE or libpq's key=value "
     "words, or postgresql: for what the PG* variables say; without it the environment's "
     "POSTROOM_STORE",
     offsetof(pr__common, store), 0, 0, NULL},
    {"schema", PR__OPTION_TEXT, "NAME", "PostgreSQL: the schema of the tables (default postroom)",
     offsetof(pr__common, schema), 0, 0, NULL},
    {"prefix", PR__OPTION_TEXT, "NAME",
     "prefix of the table names (default: postroom on SQLite, none on PostgreSQL)",
     offsetof(pr__common, prefix), 0, 0, NULL},
    {"pooler", PR__OPTION_FLAG, NULL,
     "PostgreSQL: no named statements, for PgBouncer in transaction mode",
     offsetof(pr__common, pooler), 0, 0, NULL},
    {"busy", PR__OPTION_DURATION, "TIME", "how long to wait for other writers (default 5s)",
     offsetof(pr__common, busy_ms), 1, 0, NULL},
    {NULL, 0, NULL, NULL, 0, 0, 0, NULL},
};

static const pr__option common_options[] = {
    {"json", PR__OPTION_FLAG, NULL, "write JSON, errors too", offsetof(pr__common, json), 0, 0,
     NULL},
    {"help", PR__OPTION_FLAG, NULL, "show this", offsetof(pr__common, help), 0, 0, NULL},
    {NULL, 0, NULL, NULL, 0, 0, 0, NULL},
};

enum { TABLE_COUNT = 3 };

/* The tables of a command, in the order of the help. */
static const pr__option *table_at(const pr__command *command, size_t index)
{
    if (index == 0)
        return command->options;
    if (index == 1)
        return command->uses_store ? store_options : NULL;
    return common_options;
}

static const pr__option *find(const pr__command *command, const char *name, size_t size)
{
    for (size_t t = 0; t < TABLE_COUNT; t++) {
        const pr__option *option = table_at(command, t);
        for (; option && option->name; option++) {
            if (strlen(option->name) == size && memcmp(option->name, name, size) == 0)
                return option;
        }
    }
    return NULL;
}

/* Levenshtein distance of two names of at most NAME_SIZE_MAX bytes. */
static size_t distance(const char *a, const char *b)
{
    size_t row[NAME_SIZE_MAX + 1];
    size_t a_size = strlen(a), b_size = strlen(b);
    for (size_t j = 0; j <= b_size; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_size; i++) {
        size_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_size; j++) {
            size_t change = corner + (a[i - 1] == b[j - 1] ? 0 : 1);
            corner = row[j];
            size_t other = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = change < other ? change : other;
        }
    }
    return row[b_size];
}

const char *pr__nearest(const char *text, const char *const *candidates, size_t count)
{
    const char *best = NULL;
    size_t best_distance = strlen(text) < 4 ? 2 : 3; /* as far as this is no longer near */
    if (strlen(text) > NAME_SIZE_MAX)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        if (strlen(candidates[i]) > NAME_SIZE_MAX)
            continue;
        size_t d = distance(text, candidates[i]);
        /* what was typed may also be the beginning of a long name */
        if (strlen(text) >= 3 && pr__text_starts_with(candidates[i], text) && d > 2)
            d = 2;
        if (d < best_distance) {
            best = candidates[i];
            best_distance = d;
        }
    }
    return best;
}

static pr_status unknown(const pr__command *command, const char *name, size_t size, pr_error *err)
{
    char typed[NAME_SIZE_MAX + 2];
    const char *candidates[CANDIDATES_MAX];
    size_t count = 0;
    for (size_t t = 0; t < TABLE_COUNT; t++) {
        const pr__option *option = table_at(command, t);
        for (; option && option->name && count < CANDIDATES_MAX; option++)
            candidates[count++] = option->name;
    }
    pr__format(typed, sizeof(typed), "%.*s", (int)(size < 200 ? size : 200), name);
    const char *near = pr__nearest(typed, candidates, count);
    if (near)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "unknown option '--%s'; did you mean '--%s'? see postroom %s --help", typed,
                        near, command->name);
    return pr__fail(err, PR_E_INVALID, ORIGIN, "unknown option '--%s'; see postroom %s --help",
                    typed, command->name);
}

static pr_status append_text(pr__texts *texts, const char *text, pr_error *err)
{
    const char **items = pr__realloc_array(texts->items, texts->count + 1, sizeof(const char *));
    if (!items)
        return pr__fail_nomem(err, ORIGIN);
    texts->items = items;
    texts->items[texts->count++] = text;
    return PR_OK;
}

static pr_status check_range(const pr__option *option, const char *text, int64_t value,
                             pr_error *err)
{
    if (value < option->min || (option->max > 0 && value > option->max)) {
        const char *unit = option->kind == PR__OPTION_DURATION ? "ms" : "";
        if (option->max > 0)
            return pr__fail(err, PR_E_INVALID, ORIGIN, "--%s is '%s'; must be %lld%s to %lld%s",
                            option->name, text, (long long)option->min, unit,
                            (long long)option->max, unit);
        return pr__fail(err, PR_E_INVALID, ORIGIN, "--%s is '%s'; must be at least %lld%s",
                        option->name, text, (long long)option->min, unit);
    }
    return PR_OK;
}

static pr_status set_choice(const pr__option *option, const char *text, int64_t *value,
                            pr_error *err)
{
    AUTO_BUFFER all = PR_BUFFER_INIT;
    for (size_t i = 0; option->choices[i]; i++) {
        if (strcmp(option->choices[i], text) == 0) {
            *value = (int64_t)i;
            return PR_OK;
        }
        pr__buffer_printf(&all, "%s%s", i > 0 ? ", " : "", option->choices[i]);
    }
    return pr__fail(err, PR_E_INVALID, ORIGIN, "--%s is '%s'; must be one of %s", option->name,
                    text, pr__buffer_text(&all));
}

static pr_status set_value(const pr__option *option, const char *text, void *values, pr_error *err)
{
    void *at = (char *)values + option->offset;
    switch (option->kind) {
    case PR__OPTION_FLAG:
        *(bool *)at = true;
        return PR_OK;
    case PR__OPTION_TEXT:
        *(const char **)at = text;
        return PR_OK;
    case PR__OPTION_LIST:
        return append_text(at, text, err);
    case PR__OPTION_CHOICE:
        return set_choice(option, text, at, err);
    case PR__OPTION_COUNT:
        if (!pr__parse_int64(text, INT64_MIN + 1, INT64_MAX, at))
            return pr__fail(err, PR_E_INVALID, ORIGIN, "--%s is '%s'; must be a whole number",
                            option->name, text);
        return check_range(option, text, *(int64_t *)at, err);
    case PR__OPTION_DURATION:
        if (!pr__parse_duration_ms(text, at))
            return pr__fail(err, PR_E_INVALID, ORIGIN,
                            "--%s is '%s'; must be a duration such as 250ms, 30s, 15m, 12h, 7d",
                            option->name, text);
        if (*(int64_t *)at > DURATION_MS_MAX) /* beyond it an instant might not hold it */
            return pr__fail(err, PR_E_INVALID, ORIGIN, "--%s is '%s'; must be at most 36500d",
                            option->name, text);
        return check_range(option, text, *(int64_t *)at, err);
    case PR__OPTION_SIZE:
        if (!pr__parse_size_bytes(text, at))
            return pr__fail(err, PR_E_INVALID, ORIGIN,
                            "--%s is '%s'; must be a size such as 4096, 8KiB, 1MiB", option->name,
                            text);
        return check_range(option, text, *(int64_t *)at, err);
    case PR__OPTION_INSTANT:
        if (!pr__instant_parse(text, strlen(text), at))
            return pr__fail(err, PR_E_INVALID, ORIGIN,
                            "--%s is '%s'; must be an instant such as 2026-01-31T12:00:00Z",
                            option->name, text);
        return PR_OK;
    case PR__OPTION_RATE:
        if (!pr__parse_double(text, strlen(text), at) || *(double *)at < 0)
            return pr__fail(err, PR_E_INVALID, ORIGIN, "--%s is '%s'; must be a number >= 0",
                            option->name, text);
        return PR_OK;
    }
    return PR_OK;
}

/* One "--name", "--name value" or "--name=value"; moves *index over a value of its own. */
static pr_status parse_long(const pr__command *command, int argc, char **argv, int *index,
                            void *values, pr_error *err)
{
    const char *name = argv[*index] + 2;
    const char *equals = strchr(name, '=');
    size_t size = equals ? (size_t)(equals - name) : strlen(name);
    const pr__option *option = find(command, name, size);
    if (!option)
        return unknown(command, name, size, err);
    if (option->kind == PR__OPTION_FLAG) {
        if (equals)
            return pr__fail(err, PR_E_INVALID, ORIGIN, "--%s takes no value", option->name);
        return set_value(option, NULL, values, err);
    }
    if (equals)
        return set_value(option, equals + 1, values, err);
    if (*index + 1 >= argc)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "--%s needs a value: --%s %s", option->name,
                        option->name, option->argument);
    *index += 1;
    return set_value(option, argv[*index], values, err);
}

static void set_unset(const pr__command *command, void *values)
{
    for (size_t t = 0; t < TABLE_COUNT; t++) {
        const pr__option *option = table_at(command, t);
        for (; option && option->name; option++) {
            if (option->kind == PR__OPTION_COUNT || option->kind == PR__OPTION_DURATION ||
                option->kind == PR__OPTION_SIZE || option->kind == PR__OPTION_INSTANT ||
                option->kind == PR__OPTION_CHOICE)
                *(int64_t *)(void *)((char *)values + option->offset) = PR__UNSET;
        }
    }
    ((pr__common *)values)->busy_ms = PR__UNSET;
}

pr_status pr__options_parse(const pr__command *command, int argc, char **argv, void *values,
                            pr__texts *arguments, pr_error *err)
{
    bool ended = false;
    set_unset(command, values);
    for (int i = 0; i < argc; i++) {
        const char *text = argv[i];
        if (ended || text[0] != '-' || text[1] == '\0') {
            TRY(append_text(arguments, text, err));
        } else if (strcmp(text, "--") == 0) {
            ended = true;
        } else if (strcmp(text, "-h") == 0) {
            ((pr__common *)values)->help = true;
        } else if (text[1] != '-') {
            return pr__fail(err, PR_E_INVALID, ORIGIN,
                            "unknown option '%s'; put -- before an argument that begins with '-'",
                            text);
        } else {
            TRY(parse_long(command, argc, argv, &i, values, err));
        }
    }
    if (((pr__common *)values)->help)
        return PR_OK;
    if (arguments->count < command->arguments_min)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "an argument is missing: postroom %s %s",
                        command->name, command->arguments);
    if (arguments->count > command->arguments_max)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "'%s' is an argument too many: postroom %s%s%s",
                        arguments->items[command->arguments_max], command->name,
                        command->arguments[0] ? " " : "", command->arguments);
    return PR_OK;
}

void pr__options_done(const pr__command *command, void *values, pr__texts *arguments)
{
    for (size_t t = 0; t < TABLE_COUNT; t++) {
        const pr__option *option = table_at(command, t);
        for (; option && option->name; option++) {
            if (option->kind == PR__OPTION_LIST) {
                pr__texts *texts = (void *)((char *)values + option->offset);
                pr__free(texts->items);
                *texts = (pr__texts){NULL, 0};
            }
        }
    }
    pr__free(arguments->items);
    *arguments = (pr__texts){NULL, 0};
}

/* Write text wrapped at HELP_WIDTH, each further line indented; *column is where it stands. */
static void wrap(pr__buffer *out, const char *text, size_t indent, size_t column)
{
    while (*text != '\0') {
        size_t word = strcspn(text, " \n");
        if (column > indent && column + 1 + word > HELP_WIDTH) {
            pr__buffer_printf(out, "\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            pr__buffer_append_char(out, ' ');
            column++;
        }
        pr__buffer_append(out, text, word);
        column += word;
        text += word;
        if (*text == '\n') {
            pr__buffer_printf(out, "\n%*s", (int)indent, "");
            column = indent;
        }
        if (*text != '\0')
            text++;
    }
    pr__buffer_append_char(out, '\n');
}

static void help_table(pr__buffer *out, const char *title, const pr__option *option)
{
    if (!option || !option->name)
        return;
    pr__buffer_printf(out, "\n%s:\n", title);
    for (; option->name; option++) {
        char left[64];
        pr__format(left, sizeof(left), "  --%s%s%s", option->name, option->argument ? " " : "",
                   option->argument ? option->argument : "");
        size_t size = strlen(left);
        pr__buffer_append_text(out, left);
        if (size + 2 > HELP_COLUMN)
            pr__buffer_printf(out, "\n%*s", HELP_COLUMN, "");
        else
            pr__buffer_printf(out, "%*s", (int)(HELP_COLUMN - size), "");
        wrap(out, option->help, HELP_COLUMN, HELP_COLUMN);
    }
}

void pr__options_help(const pr__command *command, pr__buffer *out)
{
    pr__buffer_printf(out, "usage: postroom %s%s%s [options]\n\n", command->name,
                      command->arguments[0] ? " " : "", command->arguments);
    wrap(out, command->summary, 0, 0);
    if (command->details) {
        pr__buffer_append_char(out, '\n');
        wrap(out, command->details, 0, 0);
    }
    help_table(out, "options", command->options);
    if (command->uses_store)
        help_table(out, "store", store_options);
    help_table(out, "general", common_options);
}
