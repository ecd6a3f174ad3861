/*
 * A contract with every kind of field, for the tests of registry and codec.
 */
#ifndef PR_TESTS_UNIT_ORDER_CONTRACT_H
#define PR_TESTS_UNIT_ORDER_CONTRACT_H

#include <postroom/contract.h>

#define TYPE "urn:message:shop:order-placed"
#define ID   "0190b8f5-7d0c-7000-8000-00000000000a"
#define AT   1769860800000001 /* 2026-01-31T12:00:00.000001Z */

typedef struct line {
    const char *article;
    int64_t amount;
    bool has_price;
    double price;
} line;

typedef struct customer {
    const char *name;
    char reference[37];
} customer;

typedef struct order {
    char id[37];
    int64_t placed_at;
    customer who;
    pr_list lines; /* of line */
    pr_list tags;  /* of const char * */
    pr_bytes signature;
    bool gift;
    bool has_note;
    const char *note;
    bool has_second;
    customer second;
} order;

static const pr_field line_fields[] = {
    {.name = "article", .kind = PR_FIELD_TEXT, .offset = offsetof(line, article)},
    {.name = "amount", .kind = PR_FIELD_INT64, .offset = offsetof(line, amount)},
    {.name = "price",
     .kind = PR_FIELD_DOUBLE,
     .flags = PR_FIELD_OPTIONAL,
     .offset = offsetof(line, price),
     .presence_offset = offsetof(line, has_price)},
    {.name = NULL},
};

static const pr_field customer_fields[] = {
    {.name = "name", .kind = PR_FIELD_TEXT, .offset = offsetof(customer, name)},
    {.name = "reference", .kind = PR_FIELD_UUID, .offset = offsetof(customer, reference)},
    {.name = NULL},
};

static const pr_field order_fields[] = {
    {.name = "id",
     .kind = PR_FIELD_UUID,
     .flags = PR_FIELD_MESSAGE_ID,
     .offset = offsetof(order, id)},
    {.name = "placedAt",
     .kind = PR_FIELD_INSTANT,
     .flags = PR_FIELD_OCCURRED_AT,
     .offset = offsetof(order, placed_at)},
    {.name = "customer",
     .kind = PR_FIELD_NESTED,
     .offset = offsetof(order, who),
     .element_size = sizeof(customer),
     .nested = customer_fields},
    {.name = "lines",
     .kind = PR_FIELD_LIST,
     .element_kind = PR_FIELD_NESTED,
     .offset = offsetof(order, lines),
     .element_size = sizeof(line),
     .nested = line_fields},
    {.name = "tags",
     .kind = PR_FIELD_LIST,
     .element_kind = PR_FIELD_TEXT,
     .offset = offsetof(order, tags)},
    {.name = "signature", .kind = PR_FIELD_BYTES, .offset = offsetof(order, signature)},
    {.name = "gift", .kind = PR_FIELD_BOOL, .offset = offsetof(order, gift)},
    {.name = "note",
     .kind = PR_FIELD_TEXT,
     .flags = PR_FIELD_OPTIONAL,
     .offset = offsetof(order, note),
     .presence_offset = offsetof(order, has_note)},
    {.name = "second",
     .kind = PR_FIELD_NESTED,
     .flags = PR_FIELD_OPTIONAL,
     .offset = offsetof(order, second),
     .presence_offset = offsetof(order, has_second),
     .element_size = sizeof(customer),
     .nested = customer_fields},
    {.name = NULL},
};

static const pr_contract order_contract = {
    .size = sizeof(pr_contract),
    .type_version = 2,
    .type = TYPE,
    .kind = PR_CONTRACT_DOMAIN_EVENT,
    .fields = order_fields,
    .object_size = sizeof(order),
};

static const pr_contract raw_contract = {
    .size = sizeof(pr_contract),
    .type_version = 1,
    .type = "urn:message:shop:picture",
    .kind = PR_CONTRACT_INTEGRATION_EVENT,
    .flags = PR_CONTRACT_RAW,
};

#endif
