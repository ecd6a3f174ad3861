/*
 * Prints one page and says how to get the next.
 */
#include "cli/list.h"

#include <stdio.h>

#include "base/memory.h"
#include "cli/output.h"
#include "cli/wiring.h"
#include "ops/render.h"

typedef struct lister {
    pr__cli *cli;
    pr__json *json;
    pr__table *table;
    pr__record_view view;
} lister;

static bool list_record(void *user, const pr_record *record)
{
    lister *to = user;
    if (to->cli->json)
        pr__render_record(to->json, record, false);
    else
        pr__record_row(to->table, to->view, record);
    return true;
}

void pr__page_begin(pr__json *json, pr__buffer *out, const char *what)
{
    pr__json_init(json, out);
    pr__json_object_begin(json);
    pr__json_key(json, what);
    pr__json_array_begin(json);
}

void pr__page_end(pr__cli *cli, pr__json *json, pr__table *table, const char *what, uint64_t count,
                  const char *next)
{
    if (cli->json) {
        pr__json_array_end(json);
        pr__json_member_text(json, "next", next[0] ? next : NULL);
        pr__json_object_end(json);
        pr__print_buffer(cli, json->buffer);
        return;
    }
    if (count == 0) {
        pr__print(cli, "no %s", what);
        return;
    }
    pr__table_print(cli, table);
    if (next[0])
        pr__print(cli, "\nmore: repeat with --after '%s'", next);
}

pr__exit pr__list_print(pr__cli *cli, const pr__common *common, const pr_list_options *opt,
                        pr__record_view view)
{
    AUTO_BUFFER out = PR_BUFFER_INIT;
    AUTO(pr_store) store = NULL;
    AUTO(pr__table) table = pr__record_table(view);
    pr_error err = PR_ERROR_INIT;
    pr_list_page page = {.size = (uint32_t)sizeof(page)};
    pr__json json;
    lister to = {.cli = cli, .json = &json, .table = table, .view = view};
    pr__store_request request = {.common = common};
    if (!table)
        return pr__report(cli, PR__EXIT_FAILED, "no-memory", "out of memory");
    pr__page_begin(&json, &out, "messages");
    pr_status status = pr__wiring_store(&request, &store, &err);
    if (status == PR_OK)
        status = pr_operations_list(store, opt, &page, list_record, &to, &err);
    if (status != PR_OK)
        return pr__report_error(cli, &err);
    pr__page_end(cli, &json, table, "messages", page.count, page.next);
    return PR__EXIT_OK;
}
