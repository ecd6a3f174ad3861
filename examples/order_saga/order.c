/*
 * The saga: what is done next, and what is undone when a step is refused. Its state is a row that
 * moves in the transaction of each message, together with the commands that follow.
 */
#include <stddef.h>
#include <stdio.h>

#include "order_saga.h"

enum { RESERVING = 1, CHARGING, SHIPPING, RELEASING, DONE, CANCELLED };

typedef struct order_state {
    order_message order;
    int64_t step;
} order_state;

static const pr_field state_fields[] = {
    {.name = "order", .kind = PR_FIELD_INT64, .offset = offsetof(order_state, order.order)},
    {.name = "cents", .kind = PR_FIELD_INT64, .offset = offsetof(order_state, order.cents)},
    {.name = "step", .kind = PR_FIELD_INT64, .offset = offsetof(order_state, step)},
    {.name = NULL},
};
static const pr_contract state_contract =
    PR_CONTRACT(.type_version = 1, .type = "urn:message:shop:order-state",
                .kind = PR_CONTRACT_DOMAIN_EVENT, .fields = state_fields,
                .object_size = sizeof(order_state));

/* Go to a step and send its command. */
static pr_handled go(pr_saga_step *at, order_state *state, int64_t step, const char *command)
{
    pr_error err = PR_ERROR_INIT;
    state->step = step;
    if (order_send(pr_saga_step_unit(at), command, &state->order, &err) == PR_OK)
        return PR_HANDLED_OK;
    pr_scope_fail(pr_saga_step_scope(at), err.message, -1);
    return PR_HANDLED_RETRY;
}

static pr_handled on_placed(void *user, pr_saga_step *at, void *object)
{
    order_state *state = object;
    (void)user;
    if (state->step != 0) /* placed twice: it runs already */
        return PR_HANDLED_OK;
    state->order = *(const order_message *)pr_scope_object(pr_saga_step_scope(at));
    return go(at, state, RESERVING, RESERVE);
}

static pr_handled on_reserved(void *user, pr_saga_step *at, void *object)
{
    pr_error err = PR_ERROR_INIT;
    (void)user;
    if (pr_saga_timeout_set(at, "payment", 30000, &err) != PR_OK)
        return PR_HANDLED_RETRY;
    return go(at, object, CHARGING, CHARGE);
}

/* Payment does not answer: ask again, it charges an order once whatever is asked. */
static pr_handled on_silence(void *user, pr_saga_step *at, void *object)
{
    return on_reserved(user, at, object);
}

static pr_handled on_charged(void *user, pr_saga_step *at, void *object)
{
    (void)user;
    (void)pr_saga_timeout_cancel(at, "payment");
    return go(at, object, SHIPPING, SHIP);
}

/* Compensation: the only thing that was done so far is undone. */
static pr_handled on_refused(void *user, pr_saga_step *at, void *object)
{
    (void)user;
    (void)pr_saga_timeout_cancel(at, "payment");
    return go(at, object, RELEASING, RELEASE);
}

static pr_handled on_end(void *user, pr_saga_step *at, void *object)
{
    order_state *state = object;
    (void)user;
    state->step = state->step == SHIPPING ? DONE : CANCELLED;
    printf("order %s: %s after %lld steps\n", pr_saga_step_key(at),
           state->step == DONE ? "shipped" : "cancelled", (long long)pr_saga_step_version(at) + 1);
    return PR_HANDLED_OK;
}

static bool is_complete(void *user, const void *object)
{
    (void)user;
    return ((const order_state *)object)->step >= DONE;
}

pr_status order_saga(pr_contracts *contracts, pr_saga **ret_saga, pr_error *err)
{
    static const pr_saga_state states[] = {{&state_contract, NULL}};
    static const pr_saga_timeout timeouts[] = {{"payment", on_silence}};
    static const pr_saga_message messages[] = {
        {ORDER_PLACED, on_placed, "order", NULL, PR_SAGA_STARTS, PR_SAGA_MISSING_DEFAULT},
        {RESERVED, on_reserved, "order", NULL, 0, PR_SAGA_MISSING_DEFAULT},
        {CHARGED, on_charged, "order", NULL, 0, PR_SAGA_MISSING_DEFAULT},
        {REFUSED, on_refused, "order", NULL, 0, PR_SAGA_MISSING_DEFAULT},
        {SHIPPED, on_end, "order", NULL, 0, PR_SAGA_MISSING_DEFAULT},
        {RELEASED, on_end, "order", NULL, 0, PR_SAGA_MISSING_DEFAULT},
    };
    pr_saga_type type =
        PR_SAGA_TYPE(.name = "order", .states = states, .state_count = 1, .messages = messages,
                     .message_count = 6, .timeouts = timeouts, .timeout_count = 1,
                     .timeout_type = ORDER_TIMEOUT, .complete = is_complete);
    return pr_saga_new(&type, contracts, ret_saga, err);
}
