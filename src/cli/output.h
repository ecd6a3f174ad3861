/*
 * What the command writes: lines, tables, JSON on standard output; errors on standard error.
 *
 * A write that fails is never lost: it is remembered and turns the exit code into 1 at the end.
 */
#ifndef PR_CLI_OUTPUT_H
#define PR_CLI_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#include <postroom/error.h>

#include "base/buffer.h"
#include "base/json_writer.h"
#include "base/memory.h"
#include "cli/cli.h"

/* A line of output; adds the newline. */
void pr__print(pr__cli *cli, const char *format, ...) PR_PRINTF(2, 3);
/* The buffer as it is, then a newline; a buffer that failed is an error of its own. */
void pr__print_buffer(pr__cli *cli, pr__buffer *buffer);
/* Flush and look whether all of it was written; returns code, or FAILED and says why. */
pr__exit pr__output_finish(pr__cli *cli, pr__exit code);
/* Nothing more needs to be written: the reader went away, or the disk is full. */
bool pr__output_failed(const pr__cli *cli);

/* "name   value", the text made safe for a terminal; nothing when it is empty or 0. */
void pr__print_field(pr__cli *cli, const char *name, const char *text);
void pr__print_instant(pr__cli *cli, const char *name, int64_t instant_us);
/* An empty line and the bytes as they are, when they are UTF-8 without control characters but those
   in `allowed`; else "NAME in base64:" and a JSON string of it. Nothing when there are none. */
void pr__print_data(pr__cli *cli, const char *name, const char *data, size_t size,
                    const char *allowed);

/* One line on standard error, "postroom CMD: …"; with --json an object. Both return the code. */
pr__exit pr__report(const pr__cli *cli, pr__exit code, const char *status, const char *format, ...)
    PR_PRINTF(4, 5);
pr__exit pr__report_error(const pr__cli *cli, const pr_error *err);
pr__exit pr__report_usage(const pr__cli *cli, const char *format, ...) PR_PRINTF(2, 3);

/* A table with a head; text cells are made safe for a terminal and cut to its width. */
typedef struct pr__column {
    const char *name;
    bool right;   /* numbers */
    double share; /* of a narrow terminal, beyond which it is cut; 0 = never cut */
} pr__column;

typedef struct pr__table pr__table;
pr__table *pr__table_new(const pr__column *columns, size_t count); /* NULL when out of memory */
void *pr__table_free(pr__table *table);
DEFINE_AUTO(pr__table, pr__table_free);
/* cells[0..count of columns), copied; NULL is empty. */
void pr__table_row(pr__table *table, const char *const *cells);
void pr__table_print(pr__cli *cli, pr__table *table);

#endif
