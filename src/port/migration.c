/*
 * Text of migrations.
 *
 * Invariant: only known placeholders are replaced; other braces (an empty array, JSON) stay as they
 * are.
 */
#include "port/migration.h"

#include <string.h>

#include "base/error.h"
#include "port/route.h"
#include "port/state.h"

pr__migration_values pr__migration_values_of(const pr_migrate_options *opt)
{
    return (pr__migration_values){
        .default_transport = opt && opt->default_transport ? opt->default_transport : "database",
        .order = pr__order_text(opt ? opt->relay_order : PR_ORDER_DEFAULT),
        .lanes = opt && opt->lanes ? opt->lanes : PR_LANES_DEFAULT};
}

static bool is_name(const char *name, size_t size, const char *known)
{
    return strlen(known) == size && memcmp(name, known, size) == 0;
}

static bool append_value(const pr__migration_values *values, const char *name, size_t size,
                         pr__buffer *text)
{
    if (is_name(name, size, "lanes"))
        pr__buffer_printf(text, "%u", values->lanes);
    else if (is_name(name, size, "mask"))
        pr__buffer_printf(text, "%u", values->lanes - 1);
    else if (is_name(name, size, "default_transport"))
        pr__buffer_append_text(text, values->default_transport);
    else if (is_name(name, size, "order"))
        pr__buffer_append_text(text, values->order);
    else
        return false;
    return true;
}

char *pr__migration_render(const char *sql, const pr__migration_values *values,
                           pr__migration_own own, const void *user)
{
    AUTO_BUFFER text = PR_BUFFER_INIT;
    for (const char *at = sql;;) {
        const char *open = strchr(at, '{');
        const char *close = open ? strchr(open, '}') : NULL;
        if (!close) {
            pr__buffer_append_text(&text, at);
            return pr__buffer_take(&text);
        }
        pr__buffer_append(&text, at, (size_t)(open - at));
        size_t size = (size_t)(close - open - 1);
        if (append_value(values, open + 1, size, &text) || own(user, open + 1, size, &text)) {
            at = close + 1;
        } else {
            pr__buffer_append_char(&text, '{');
            at = open + 1;
        }
    }
}

char *pr__migration_changes(const pr_migrate_options *opt, const char *qualifier)
{
    AUTO_BUFFER sql = PR_BUFFER_INIT;
    if (opt && opt->default_transport)
        pr__buffer_printf(&sql,
                          "UPDATE %ssetting SET value = '%s' WHERE name = 'default_transport' AND "
                          "value <> '%s';\n",
                          qualifier, opt->default_transport, opt->default_transport);
    if (opt && opt->relay_order != PR_ORDER_DEFAULT) {
        const char *order = pr__order_text(opt->relay_order);
        pr__buffer_printf(&sql,
                          "UPDATE %ssubscription SET order_policy = '%s' WHERE reader = 1 AND "
                          "order_policy <> '%s';\n",
                          qualifier, order, order);
    }
    return pr__buffer_take(&sql);
}

pr_status pr__migration_check(const pr_migrate_options *opt, const char *origin, pr_error *err)
{
    const char *transport = opt ? opt->default_transport : NULL;
    if (!transport || pr__scheme_valid(transport))
        return PR_OK;
    return pr__fail(err, PR_E_INVALID, origin,
                    "default_transport '%s' is no transport: [a-z][a-z0-9+.-]*, at most %d bytes",
                    transport, PR__SCHEME_SIZE_MAX);
}

pr_status pr__migration_check_lanes(const pr_migrate_options *opt, uint32_t lanes,
                                    const char *origin, pr_error *err)
{
    if (!opt || opt->lanes == 0 || opt->lanes == lanes)
        return PR_OK;
    return pr__fail(err, PR_E_INVALID, origin,
                    "lanes is %u, but the store was created with %u: it is fixed at creation",
                    opt->lanes, lanes);
}
