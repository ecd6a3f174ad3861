/*
 * Bodies of contracts: anything is read or refused; what is read is written and read again, and
 * then written the same; errors tell nothing of the content.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <postroom/contract.h>
#include <postroom/memory.h>

#include "unit/order_contract.h"
#include "unit/tree_contract.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int condition)
{
    if (!condition)
        abort();
}

static pr_status read_body(const pr_contract *contract, const void *body, size_t size,
                           pr_decoded **ret_decoded)
{
    pr_error err = PR_ERROR_INIT;
    const pr_message message =
        PR_MESSAGE(.type = contract->type, .type_version = contract->type_version, .body = body,
                   .body_size_bytes = size);
    pr_status status = pr_contract_decode(contract, &message, ret_decoded, &err);
    if (status != PR_OK) {
        must(!*ret_decoded && (status == PR_E_CONTENT || status == PR_E_LIMIT));
        must(err.message[0] != '\0' && !strchr(err.message, '\n'));
        must(!strstr(err.message, "s3cr3t"));
    }
    return status;
}

static void *write_body(const pr_contract *contract, const pr_decoded *decoded, size_t *ret_size)
{
    void *body = NULL;
    must(pr_contract_encode(contract, pr_decoded_object(decoded), &body, ret_size, NULL) == PR_OK);
    return body;
}

static void run(const pr_contract *contract, const uint8_t *data, size_t size)
{
    pr_decoded *first = NULL, *second = NULL;
    size_t first_size = 0, second_size = 0;
    if (read_body(contract, data, size, &first) != PR_OK)
        return;
    void *body = write_body(contract, first, &first_size);
    must(read_body(contract, body, first_size, &second) == PR_OK);
    void *again = write_body(contract, second, &second_size);
    must(first_size == second_size && memcmp(body, again, first_size) == 0);
    pr_decoded_free(first);
    pr_decoded_free(second);
    pr_free(body);
    pr_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pr_contract strict = order_contract;
    strict.flags = PR_CONTRACT_REFUSE_UNKNOWN;
    run(&tree_contract, data, size);
    run(&order_contract, data, size);
    run(&strict, data, size);
    return 0;
}
