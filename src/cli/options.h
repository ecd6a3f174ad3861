/*
 * Options of the command line, described by tables: one row is the parser, the help and the
 * documentation of an option.
 *
 * Values land in a struct of the command's own; numbers that were not given are PR__UNSET.
 */
#ifndef PR_CLI_OPTIONS_H
#define PR_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/error.h>

#include "base/buffer.h"

typedef struct pr__command pr__command;

#define PR__UNSET INT64_MIN

typedef enum pr__option_kind {
    PR__OPTION_FLAG = 1, /* bool */
    PR__OPTION_TEXT,     /* const char *; NULL = not given */
    PR__OPTION_COUNT,    /* int64_t, min..max */
    PR__OPTION_RATE,     /* double, >= 0 */
    PR__OPTION_DURATION, /* int64_t, milliseconds, min..max */
    PR__OPTION_SIZE,     /* int64_t, bytes, min..max */
    PR__OPTION_INSTANT,  /* int64_t, microseconds since 1970 */
    PR__OPTION_CHOICE,   /* int64_t, index into choices */
    PR__OPTION_LIST      /* pr__texts: may be given several times */
} pr__option_kind;

typedef struct pr__texts {
    const char **items; /* each borrowed from argv */
    size_t count;
} pr__texts;

typedef struct pr__option {
    const char *name; /* without the dashes; NULL ends a table */
    pr__option_kind kind;
    const char *argument; /* what the help calls its value; NULL for a flag */
    const char *help;
    size_t offset;              /* in the command's values */
    int64_t min;                /* COUNT, DURATION, SIZE */
    int64_t max;                /* 0 = no limit */
    const char *const *choices; /* CHOICE; ended by NULL */
} pr__option;

/* What every command's values begin with. */
typedef struct pr__common {
    bool help;
    bool json;
    const char *store;
    const char *schema;
    const char *prefix;
    bool pooler;
    int64_t busy_ms;
} pr__common;

static inline int64_t pr__option_or(int64_t value, int64_t fallback)
{
    return value == PR__UNSET ? fallback : value;
}

/* A count as options structs of the library take it, where 0 is the default and none has a name. */
static inline uint32_t pr__option_count(int64_t value, uint32_t none)
{
    return value == 0 ? none : (uint32_t)pr__option_or(value, 0);
}

/* Fill values, which must be zero, and the arguments. INVALID: what is wrong, and the nearest name.
   pr__options_done frees what both hold, after a failure too. */
pr_status pr__options_parse(const pr__command *command, int argc, char **argv, void *values,
                            pr__texts *arguments, pr_error *err);
void pr__options_done(const pr__command *command, void *values, pr__texts *arguments);

/* The whole --help of a command. */
void pr__options_help(const pr__command *command, pr__buffer *out);

/* The candidate that is nearest to text, or NULL when none is near. */
const char *pr__nearest(const char *text, const char *const *candidates, size_t count);

#endif
