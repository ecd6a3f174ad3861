/*
 * A page of a list, as a table or as JSON: shared by `outbox list`, `inbox list` and `dead list`.
 */
#ifndef PR_CLI_LIST_H
#define PR_CLI_LIST_H

#include <postroom/operations.h>

#include "cli/cli.h"
#include "cli/record.h"

/* One page of anything: begin, then an object (or a row of the table) for each, and end. `what` is
   "messages": the member of the JSON, and "no messages". */
void pr__page_begin(pr__json *json, pr__buffer *out, const char *what);
void pr__page_end(pr__cli *cli, pr__json *json, pr__table *table, const char *what, uint64_t count,
                  const char *next);

pr__exit pr__list_print(pr__cli *cli, const pr__common *common, const pr_list_options *opt,
                        pr__record_view view);

#endif
