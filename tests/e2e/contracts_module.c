/*
 * What `postroom contract --load` loads in the test: contracts of a program, as a shared object.
 */
#include <stddef.h>

#include <postroom/contract.h>

typedef struct paid {
    const char *order;
    int64_t cents;
} paid;

static const pr_field paid_fields[] = {
    {.name = "order", .kind = PR_FIELD_TEXT, .offset = offsetof(paid, order)},
    {.name = "cents", .kind = PR_FIELD_INT64, .offset = offsetof(paid, cents)},
    {.name = NULL},
};

static const pr_contract paid_1 = {
    .size = (uint32_t)sizeof(pr_contract),
    .type = "urn:message:shop:paid",
    .kind = PR_CONTRACT_COMMAND,
    .fields = paid_fields + 1,
    .object_size = sizeof(paid),
};

static const pr_contract paid_2 = {
    .size = (uint32_t)sizeof(pr_contract),
    .type_version = 2,
    .type = "urn:message:shop:paid",
    .kind = PR_CONTRACT_COMMAND,
    .fields = paid_fields,
    .object_size = sizeof(paid),
};

static const pr_contract picture = {
    .size = (uint32_t)sizeof(pr_contract),
    .type = "urn:message:shop:picture",
    .kind = PR_CONTRACT_REPLY,
    .flags = PR_CONTRACT_RAW,
    .content_type = "image/png",
};

typedef struct placed {
    char id[37];
    int64_t at;
} placed;

static const pr_field placed_fields[] = {
    {.name = "orderId",
     .kind = PR_FIELD_UUID,
     .flags = PR_FIELD_MESSAGE_ID,
     .offset = offsetof(placed, id)},
    {.name = "placedAt",
     .kind = PR_FIELD_INSTANT,
     .flags = PR_FIELD_OCCURRED_AT,
     .offset = offsetof(placed, at)},
    {.name = NULL},
};

static const pr_contract placed_1 = {
    .size = (uint32_t)sizeof(pr_contract),
    .type = "urn:message:shop:placed",
    .kind = PR_CONTRACT_DOMAIN_EVENT,
    .fields = placed_fields,
    .object_size = sizeof(placed),
};

extern const pr_contract *const postroom_contracts[];

#ifdef BAD_TABLE
static const pr_contract bad = {
    .size = (uint32_t)sizeof(pr_contract),
    .type = "urn:message:shop:bad",
    .kind = PR_CONTRACT_REPLY,
    .fields = paid_fields,
    .object_size = 1,
};
const pr_contract *const postroom_contracts[] = {&paid_2, &picture, &paid_1, &placed_1, &bad, NULL};
#else
const pr_contract *const postroom_contracts[] = {&paid_2, &picture, &paid_1, &placed_1, NULL};
#endif
