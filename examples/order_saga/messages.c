/*
 * The contracts of the messages, and how one is sent.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "order_saga.h"

static const pr_field fields[] = {
    {.name = "order", .kind = PR_FIELD_INT64, .offset = offsetof(order_message, order)},
    {.name = "cents", .kind = PR_FIELD_INT64, .offset = offsetof(order_message, cents)},
    {.name = NULL},
};

#define CONTRACT(urn, of_kind)                                                                     \
    {                                                                                              \
        .size = (uint32_t)sizeof(pr_contract), .type_version = 1, .type = (urn),                   \
        .kind = (of_kind), .fields = fields, .object_size = sizeof(order_message)                  \
    }
#define EVENT(urn)   CONTRACT(urn, PR_CONTRACT_INTEGRATION_EVENT)
#define COMMAND(urn) CONTRACT(urn, PR_CONTRACT_COMMAND)

static const pr_contract list[] = {
    EVENT(ORDER_PLACED), COMMAND(RESERVE), EVENT(RESERVED), COMMAND(RELEASE), EVENT(RELEASED),
    COMMAND(CHARGE),     EVENT(CHARGED),   EVENT(REFUSED),  COMMAND(SHIP),    EVENT(SHIPPED),
};
#define COUNT (sizeof(list) / sizeof(list[0]))

pr_status order_contracts(pr_contracts *contracts, pr_error *err)
{
    for (size_t i = 0; i < COUNT; i++) {
        pr_status status = pr_contracts_register(contracts, &list[i], err);
        if (status != PR_OK)
            return status;
    }
    return PR_OK;
}

pr_status order_send(pr_unit *unit, const char *type, const order_message *body, pr_error *err)
{
    char key[32];
    void *bytes = NULL;
    size_t size = 0, i = 0;
    while (strcmp(list[i].type, type) != 0)
        i++;
    pr_status status = pr_contract_encode(&list[i], body, &bytes, &size, err);
    if (status != PR_OK)
        return status;
    snprintf(key, sizeof(key), "order-%lld", (long long)body->order);
    pr_message message =
        PR_MESSAGE(.type = type, .key = key, .body = bytes, .body_size_bytes = size);
    status = pr_unit_enqueue(unit, &message, NULL, err);
    pr_free(bytes);
    return status;
}
