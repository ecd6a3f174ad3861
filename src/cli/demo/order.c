/*
 * The message of the demo: an order, by its contract.
 */
#include <stddef.h>

#include "base/error.h"
#include "cli/demo/demo.h"

static const pr_field order_fields[] = {
    {.name = "order",
     .kind = PR_FIELD_INT64,
     .offset = offsetof(pr__order, number),
     .description = "the number of the order"},
    {.name = "customer", .kind = PR_FIELD_TEXT, .offset = offsetof(pr__order, customer)},
    {.name = "seq",
     .kind = PR_FIELD_INT64,
     .offset = offsetof(pr__order, seq),
     .description = "of the customer's orders, from 1"},
    {.name = "amount_cents", .kind = PR_FIELD_INT64, .offset = offsetof(pr__order, amount_cents)},
    {.name = NULL},
};

static const pr_contract order_contract = {
    .size = (uint32_t)sizeof(pr_contract),
    .type_version = 1,
    .type = PR__DEMO_TYPE,
    .kind = PR_CONTRACT_INTEGRATION_EVENT,
    .fields = order_fields,
    .object_size = sizeof(pr__order),
};

const pr_contract *const *pr__demo_contract_list(void)
{
    static const pr_contract *const list[] = {&order_contract, NULL};
    return list;
}

pr_status pr__demo_contracts(pr_contracts **ret_contracts, pr_error *err)
{
    pr_contracts *contracts = NULL;
    TRY(pr_contracts_new(&contracts, err));
    pr_status status = pr_contracts_register(contracts, &order_contract, err);
    if (status != PR_OK) {
        pr_contracts_free(contracts);
        return status;
    }
    *ret_contracts = contracts;
    return PR_OK;
}
