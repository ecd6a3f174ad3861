/*
 * Known exchanges.
 *
 * Keeps: that one exists is remembered, that one is missing is not: it may be made any moment.
 * Must not know: messages.
 */
#include "transport/amqp/exchanges.h"

#include <string.h>

#include "base/error.h"
#include "base/text.h"

void pr__exchanges_forget(pr__exchanges *exchanges, bool new_connection)
{
    exchanges->count = 0;
    exchanges->last = 0;
    if (new_connection)
        exchanges->channel_open = false;
}

static bool known(pr__exchanges *exchanges, const char *name)
{
    for (size_t i = 0; i < exchanges->count; i++) {
        size_t at = (exchanges->last + i) % exchanges->count;
        if (strcmp(exchanges->names[at], name) == 0) {
            exchanges->last = at;
            return true;
        }
    }
    return false;
}

static void remember(pr__exchanges *exchanges, const char *name)
{
    if (exchanges->count == PR__EXCHANGES_MAX)
        exchanges->count = 0;
    exchanges->last = exchanges->count;
    pr__format(exchanges->names[exchanges->count++], PR__AMQP_NAME_SIZE, "%s", name);
}

pr_status pr__exchanges_ask(pr__exchanges *exchanges, pr__amqp_connection *connection,
                            const char *name, bool *ret_exists, pr_error *err)
{
    *ret_exists = name[0] == '\0' || known(exchanges, name);
    if (*ret_exists)
        return PR_OK;
    if (!exchanges->channel_open)
        TRY(pr__amqp_channel_open(connection, PR__EXCHANGES_CHANNEL, false, err));
    exchanges->channel_open = true;
    char what[PR__AMQP_NAME_SIZE + 40];
    pr__format(what, sizeof(what), "exchange.declare '%s', passive", name);
    amqp_exchange_declare(connection->state, PR__EXCHANGES_CHANNEL, amqp_cstring_bytes(name),
                          amqp_cstring_bytes("topic"), /* passive= */ 1, /* durable= */ 1,
                          /* auto_delete= */ 0, /* internal= */ 0, amqp_empty_table);
    pr_error local = PR_ERROR_INIT;
    pr_status status = pr__amqp_check_rpc(connection, what, &local);
    if (status == PR_OK) {
        *ret_exists = true;
        remember(exchanges, name);
        return PR_OK;
    }
    if (status != PR_E_NOT_FOUND) {
        if (!connection->broken && status == PR_E_BACKEND) {
            /* no right to ask (403): the publish itself will tell */
            *ret_exists = true;
            return pr__amqp_channel_open(connection, PR__EXCHANGES_CHANNEL, true, err);
        }
        pr__error_copy(err, &local);
        return status;
    }
    return pr__amqp_channel_open(connection, PR__EXCHANGES_CHANNEL, true, err);
}
