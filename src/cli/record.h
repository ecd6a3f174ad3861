/*
 * How a message and where it stands are written: as a row of a table, or in full.
 */
#ifndef PR_CLI_RECORD_H
#define PR_CLI_RECORD_H

#include <postroom/operations.h>

#include "cli/cli.h"
#include "cli/output.h"

/* A table of records, and one row of it. */
typedef enum pr__record_view { PR__VIEW_OUTBOX = 1, PR__VIEW_INBOX, PR__VIEW_DEAD } pr__record_view;
pr__table *pr__record_table(pr__record_view view);
void pr__record_row(pr__table *table, pr__record_view view, const pr_record *record);

/* Everything about one record, a line a field, the body last. */
void pr__record_print(pr__cli *cli, const pr_record *record);

#endif
