/*
 * A page of a list, as a table or as JSON: shared by `outbox list` and `dead list`.
 */
#ifndef PR_CLI_LIST_H
#define PR_CLI_LIST_H

#include <postroom/operations.h>

#include "cli/cli.h"
#include "cli/record.h"

pr__exit pr__list_print(pr__cli *cli, const pr__common *common, const pr_list_options *opt,
                        pr__record_view view);

#endif
