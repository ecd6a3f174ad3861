/*
 * Decoding and encoding a contract of ten fields against jansson alone: the same body, read into
 * the same struct and written from it, with a type check for each field. The baseline takes the
 * UUID and the instant as they stand, ours checks and converts them.
 */
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include <postroom/contract.h>

#include "bench.h"
#include "database.h"

#define CALLS 200000

typedef struct order {
    char id[37];
    int64_t placed_at_us;
    const char *customer;
    const char *city;
    const char *currency;
    int64_t number;
    int64_t amount_cents;
    int64_t items;
    double weight;
    bool gift;
} order;

#define FIELD(member, json, field_kind)                                                            \
    {                                                                                              \
        .name = json, .kind = field_kind, .offset = offsetof(order, member)                        \
    }
static const pr_field order_fields[] = {
    FIELD(id, "id", PR_FIELD_UUID),
    FIELD(placed_at_us, "placedAt", PR_FIELD_INSTANT),
    FIELD(customer, "customer", PR_FIELD_TEXT),
    FIELD(city, "city", PR_FIELD_TEXT),
    FIELD(currency, "currency", PR_FIELD_TEXT),
    FIELD(number, "number", PR_FIELD_INT64),
    FIELD(amount_cents, "amountCents", PR_FIELD_INT64),
    FIELD(items, "items", PR_FIELD_INT64),
    FIELD(weight, "weight", PR_FIELD_DOUBLE),
    FIELD(gift, "gift", PR_FIELD_BOOL),
    {.name = NULL},
};

static const pr_contract order_contract = {
    .size = (uint32_t)sizeof(pr_contract),
    .type = "urn:message:shop:order-placed",
    .type_version = 1,
    .kind = PR_CONTRACT_INTEGRATION_EVENT,
    .fields = order_fields,
    .object_size = sizeof(order),
};

static const order example = {.id = "0190b8f5-7d0c-7000-8000-00000000000a",
                              .placed_at_us = INT64_C(1767225600123456),
                              .customer = "Ada Lovelace",
                              .city = "London",
                              .currency = "GBP",
                              .number = 4711,
                              .amount_cents = 129900,
                              .items = 3,
                              .weight = 12.75,
                              .gift = true};

static void broken(const char *what)
{
    pr_error err = PR_ERROR_INIT;
    bench_check(pr_error_set(&err, PR_E_CONTENT, PR_RETRY_NEVER, "bench", "%s", what), &err, what);
}

/* What the calls of a round add up to, so that none of them can be left out. */
static double decode_ours(const void *body, size_t size, uint64_t calls, uint64_t *sum)
{
    pr_message message = PR_MESSAGE(.type = order_contract.type, .type_version = 1, .body = body,
                                    .body_size_bytes = size);
    pr_error err = PR_ERROR_INIT;
    double start = bench_seconds();
    for (uint64_t i = 0; i < calls; i++) {
        pr_decoded *decoded = NULL;
        bench_check(pr_contract_decode(&order_contract, &message, &decoded, &err), &err, "decode");
        const order *object = pr_decoded_object(decoded);
        *sum += strlen(object->customer) + (uint64_t)object->items;
        pr_decoded_free(decoded);
    }
    return bench_seconds() - start;
}

static const char *text_of(json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);
    if (!json_is_string(value))
        broken("a text is missing");
    return json_string_value(value);
}

static int64_t integer_of(json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);
    if (!json_is_integer(value))
        broken("an integer is missing");
    return json_integer_value(value);
}

static double decode_bare(const void *body, size_t size, uint64_t calls, uint64_t *sum)
{
    double start = bench_seconds();
    for (uint64_t i = 0; i < calls; i++) {
        json_t *value = json_loadb(body, size, 0, NULL);
        order object;
        if (!json_is_object(value))
            broken("no object");
        memcpy(object.id, text_of(value, "id"), 36);
        (void)text_of(value, "placedAt");
        object.customer = text_of(value, "customer");
        object.city = text_of(value, "city");
        object.currency = text_of(value, "currency");
        object.number = integer_of(value, "number");
        object.amount_cents = integer_of(value, "amountCents");
        object.items = integer_of(value, "items");
        object.weight = json_number_value(json_object_get(value, "weight"));
        object.gift = json_is_true(json_object_get(value, "gift"));
        *sum += strlen(object.customer) + (uint64_t)object.items + (object.weight < 0) +
                (uint64_t)object.gift - 1 + (object.number < 0) + (object.amount_cents < 0);
        json_decref(value);
    }
    return bench_seconds() - start;
}

static double encode_ours(uint64_t calls, uint64_t *sum)
{
    pr_error err = PR_ERROR_INIT;
    double start = bench_seconds();
    for (uint64_t i = 0; i < calls; i++) {
        void *body = NULL;
        size_t size = 0;
        bench_check(pr_contract_encode(&order_contract, &example, &body, &size, &err), &err,
                    "encode");
        *sum += size;
        pr_free(body);
    }
    return bench_seconds() - start;
}

static double encode_bare(uint64_t calls, uint64_t *sum)
{
    double start = bench_seconds();
    for (uint64_t i = 0; i < calls; i++) {
        json_t *value = json_object();
        json_object_set_new(value, "id", json_string(example.id));
        json_object_set_new(value, "placedAt", json_string("2026-01-01T00:00:00.123456Z"));
        json_object_set_new(value, "customer", json_string(example.customer));
        json_object_set_new(value, "city", json_string(example.city));
        json_object_set_new(value, "currency", json_string(example.currency));
        json_object_set_new(value, "number", json_integer(example.number));
        json_object_set_new(value, "amountCents", json_integer(example.amount_cents));
        json_object_set_new(value, "items", json_integer(example.items));
        json_object_set_new(value, "weight", json_real(example.weight));
        json_object_set_new(value, "gift", json_boolean(example.gift));
        char *body = json_dumps(value, JSON_COMPACT);
        if (!body)
            broken("no text");
        else
            *sum += strlen(body);
        pr_free(body); /* the same allocator */
        json_decref(value);
    }
    return bench_seconds() - start;
}

void bench_contract(const bench_options *opt, bench_report *report)
{
    double ours[2][BENCH_ROUNDS_MAX], bare[2][BENCH_ROUNDS_MAX];
    uint64_t calls = opt->messages < CALLS ? opt->messages : CALLS;
    double scale = 1e9 / (double)calls;
    void *body = NULL;
    size_t size = 0;
    pr_error err = PR_ERROR_INIT;
    bench_check(pr_contract_encode(&order_contract, &example, &body, &size, &err), &err, "encode");
    for (int round = -1; round < opt->rounds; round++) {
        uint64_t sums[4] = {0, 0, 0, 0};
        int at = round < 0 ? 0 : round; /* the first round is not counted */
        bool ours_first = round % 2 == 0;
        for (int turn = 0; turn < 2; turn++) {
            if ((turn == 0) == ours_first) {
                ours[0][at] = decode_ours(body, size, calls, &sums[0]) * scale;
                ours[1][at] = encode_ours(calls, &sums[1]) * scale;
            } else {
                bare[0][at] = decode_bare(body, size, calls, &sums[2]) * scale;
                bare[1][at] = encode_bare(calls, &sums[3]) * scale;
            }
        }
        if (sums[0] != sums[2] || sums[1] != sums[3])
            broken("the sides did not do the same");
    }
    pr_free(body);
    bench_report_add(report, "decode a contract of 10 fields", "ns/message", "jansson alone",
                     ours[0], bare[0], opt->rounds, BENCH_AT_MOST, 1.5);
    bench_report_add(report, "encode a contract of 10 fields", "ns/message", "jansson alone",
                     ours[1], bare[1], opt->rounds, BENCH_AT_MOST, 1.5);
}
