/*
 * The message of the demo: an order, by its contract.
 */
#include <stddef.h>

#include "base/error.h"
#include "cli/demo.h"

static const pr_field order_fields[] = {
    {"order", PR_FIELD_INT64, 0, 0, offsetof(pr__order, number), 0, 0, NULL},
    {"customer", PR_FIELD_TEXT, 0, 0, offsetof(pr__order, customer), 0, 0, NULL},
    {"seq", PR_FIELD_INT64, 0, 0, offsetof(pr__order, seq), 0, 0, NULL},
    {"amount_cents", PR_FIELD_INT64, 0, 0, offsetof(pr__order, amount_cents), 0, 0, NULL},
    {NULL, 0, 0, 0, 0, 0, 0, NULL},
};

static const pr_contract order_contract = {
    .size = (uint32_t)sizeof(pr_contract),
    .type_version = 1,
    .type = PR__DEMO_TYPE,
    .kind = PR_CONTRACT_INTEGRATION_EVENT,
    .fields = order_fields,
    .object_size = sizeof(pr__order),
};

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
