/*
 * The saga of the demo: reserve, charge, ship; and when payment refuses, give the stock back.
 *
 * It keeps no money and no goods: it only says what is to be done next, and in its state what was
 * done. Each step and its commands commit with the mark of the message that caused it.
 */
#include <stddef.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/demo/saga.h"

#define PAYMENT_MS 2000 /* after that the charge is sent again */

typedef enum step {
    STEP_RESERVING = 1,
    STEP_CHARGING,
    STEP_SHIPPING,
    STEP_RELEASING, /* compensation: payment refused */
    STEP_SHIPPED,
    STEP_CANCELLED
} step;

typedef struct order_state {
    pr__saga_order order;
    int64_t step;
    int64_t timeouts; /* how often payment did not answer in time */
} order_state;

#define ORDER_FIELDS(object, member)                                                               \
    {.name = "order", .kind = PR_FIELD_INT64, .offset = offsetof(object, member number)},          \
        {.name = "customer", .kind = PR_FIELD_TEXT, .offset = offsetof(object, member customer)},  \
        {.name = "article", .kind = PR_FIELD_TEXT, .offset = offsetof(object, member article)},    \
        {.name = "quantity", .kind = PR_FIELD_INT64, .offset = offsetof(object, member quantity)}, \
        {.name = "amount_cents",                                                                   \
         .kind = PR_FIELD_INT64,                                                                   \
         .offset = offsetof(object, member amount_cents)},                                         \
    {                                                                                              \
        .name = "attempt", .kind = PR_FIELD_INT64, .offset = offsetof(object, member attempt)      \
    }

static const pr_field message_fields[] = {ORDER_FIELDS(pr__saga_order, ), {.name = NULL}};
static const pr_field state_fields[] = {
    ORDER_FIELDS(order_state, order.),
    {.name = "step", .kind = PR_FIELD_INT64, .offset = offsetof(order_state, step)},
    {.name = "timeouts", .kind = PR_FIELD_INT64, .offset = offsetof(order_state, timeouts)},
    {.name = NULL},
};

#define CONTRACT(urn, of_kind, table, object)                                                      \
    {                                                                                              \
        .size = (uint32_t)sizeof(pr_contract), .type_version = 1, .type = (urn),                   \
        .kind = (of_kind), .fields = (table), .object_size = sizeof(object)                        \
    }
#define COMMAND(urn) CONTRACT(urn, PR_CONTRACT_COMMAND, message_fields, pr__saga_order)
#define EVENT(urn)   CONTRACT(urn, PR_CONTRACT_INTEGRATION_EVENT, message_fields, pr__saga_order)

static const pr_contract contracts_of_all[] = {
    EVENT(PR__SAGA_PLACED),   COMMAND(PR__SAGA_RESERVE), COMMAND(PR__SAGA_RELEASE),
    COMMAND(PR__SAGA_CHARGE), COMMAND(PR__SAGA_SHIP),    EVENT(PR__SAGA_RESERVED),
    EVENT(PR__SAGA_RELEASED), EVENT(PR__SAGA_CHARGED),   EVENT(PR__SAGA_REFUSED),
    EVENT(PR__SAGA_SHIPPED),
};
static const pr_contract state_contract =
    CONTRACT("urn:message:demo:order-state", PR_CONTRACT_DOMAIN_EVENT, state_fields, order_state);

pr_status pr__saga_contracts(pr_contracts **ret_contracts, pr_error *err)
{
    pr_contracts *contracts = NULL;
    pr_status status = pr_contracts_new(&contracts, err);
    for (size_t i = 0;
         status == PR_OK && i < sizeof(contracts_of_all) / sizeof(contracts_of_all[0]); i++)
        status = pr_contracts_register(contracts, &contracts_of_all[i], err);
    if (status != PR_OK)
        contracts = pr_contracts_free(contracts);
    *ret_contracts = contracts;
    return status;
}

static const pr_contract *contract_of(const char *type)
{
    size_t i = 0;
    while (!pr__text_equal(contracts_of_all[i].type, type))
        i++;
    return &contracts_of_all[i];
}

pr_status pr__saga_tell(pr_unit *unit, const char *type, const pr__saga_order *order, pr_error *err)
{
    void *body = NULL;
    size_t size = 0;
    char key[32];
    pr__format(key, sizeof(key), "order-%lld", (long long)order->number);
    TRY(pr_contract_encode(contract_of(type), order, &body, &size, err));
    pr_message message =
        PR_MESSAGE(.type = type, .key = key, .body = body, .body_size_bytes = size);
    pr_status status = pr_unit_enqueue(unit, &message, NULL, err);
    pr_free(body);
    return status;
}

/* ---- the steps ---- */

static pr_handled retry(pr_saga_step *at, const pr_error *err)
{
    pr_scope_fail(pr_saga_step_scope(at), err->message, -1);
    return PR_HANDLED_RETRY;
}

static pr_handled command(pr_saga_step *at, order_state *state, const char *type, step next)
{
    pr_error err = PR_ERROR_INIT;
    state->step = next;
    if (pr__saga_tell(pr_saga_step_unit(at), type, &state->order, &err) != PR_OK)
        return retry(at, &err);
    return PR_HANDLED_OK;
}

static pr_handled on_placed(void *user, pr_saga_step *at, void *object)
{
    order_state *state = object;
    const pr__saga_order *placed = pr_scope_object(pr_saga_step_scope(at));
    (void)user;
    if (state->step != 0)
        return PR_HANDLED_OK; /* placed twice: it runs already */
    state->order = *placed;
    return command(at, state, PR__SAGA_RESERVE, STEP_RESERVING);
}

static pr_handled charge(pr_saga_step *at, order_state *state)
{
    pr_error err = PR_ERROR_INIT;
    if (pr_saga_timeout_set(at, "payment", PAYMENT_MS, &err) != PR_OK)
        return retry(at, &err);
    state->order.attempt++;
    return command(at, state, PR__SAGA_CHARGE, STEP_CHARGING);
}

static pr_handled on_reserved(void *user, pr_saga_step *at, void *object)
{
    order_state *state = object;
    (void)user;
    return state->step == STEP_RESERVING ? charge(at, state) : PR_HANDLED_OK;
}

static pr_handled on_silence(void *user, pr_saga_step *at, void *object)
{
    order_state *state = object;
    (void)user;
    if (state->step != STEP_CHARGING)
        return PR_HANDLED_OK;
    state->timeouts++;
    return charge(at, state);
}

/* Payment may answer more than once, when it was asked more than once: only the first moves. */
static pr_handled on_charged(void *user, pr_saga_step *at, void *object)
{
    order_state *state = object;
    (void)user;
    if (state->step != STEP_CHARGING)
        return PR_HANDLED_OK;
    (void)pr_saga_timeout_cancel(at, "payment");
    return command(at, state, PR__SAGA_SHIP, STEP_SHIPPING);
}

static pr_handled on_refused(void *user, pr_saga_step *at, void *object)
{
    order_state *state = object;
    (void)user;
    if (state->step != STEP_CHARGING)
        return PR_HANDLED_OK;
    (void)pr_saga_timeout_cancel(at, "payment");
    return command(at, state, PR__SAGA_RELEASE, STEP_RELEASING);
}

static pr_handled on_shipped(void *user, pr_saga_step *at, void *object)
{
    (void)user;
    (void)at;
    ((order_state *)object)->step = STEP_SHIPPED;
    return PR_HANDLED_OK;
}

static pr_handled on_released(void *user, pr_saga_step *at, void *object)
{
    (void)user;
    (void)at;
    ((order_state *)object)->step = STEP_CANCELLED;
    return PR_HANDLED_OK;
}

static bool is_complete(void *user, const void *object)
{
    (void)user;
    return ((const order_state *)object)->step >= STEP_SHIPPED;
}

/* clang-format off */
static const pr_saga_message messages[] = {
    {.type = PR__SAGA_PLACED, .handler = on_placed, .correlation_field = "order",
     .flags = PR_SAGA_STARTS},
    {.type = PR__SAGA_RESERVED, .handler = on_reserved, .correlation_field = "order"},
    {.type = PR__SAGA_CHARGED, .handler = on_charged, .correlation_field = "order"},
    {.type = PR__SAGA_REFUSED, .handler = on_refused, .correlation_field = "order"},
    {.type = PR__SAGA_SHIPPED, .handler = on_shipped, .correlation_field = "order"},
    {.type = PR__SAGA_RELEASED, .handler = on_released, .correlation_field = "order"},
};
/* clang-format on */
static const pr_saga_timeout timeouts[] = {{"payment", on_silence}};
static const pr_saga_state states[] = {{&state_contract, NULL}};

pr_status pr__saga_make(pr_contracts *contracts, pr_saga **ret_saga, pr_error *err)
{
    pr_saga_type type =
        PR_SAGA_TYPE(.name = PR__SAGA_NAME, .states = states, .state_count = 1,
                     .messages = messages, .message_count = sizeof(messages) / sizeof(messages[0]),
                     .timeouts = timeouts, .timeout_count = 1, .timeout_type = PR__SAGA_TIMEOUT,
                     .complete = is_complete, .missing = PR_SAGA_MISSING_DEAD);
    return pr_saga_new(&type, contracts, ret_saga, err);
}
