/*
 * What a contract's table says, for the test of schemas.
 *
 *   contract_probe schema|example NAME     prints it
 *   contract_probe decode NAME             reads bodies, one a line; prints "ok", or the error
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <postroom/contract.h>

#include "core/contract.h"
#include "unit/order_contract.h"
#include "unit/tree_contract.h"

#define LINE_MAX_SIZE 65536

static int fail(const pr_error *err)
{
    fprintf(stderr, "%s (%s)\n", err->message, pr_status_text(err->status));
    return EXIT_FAILURE;
}

static void decode_line(const pr_contract *contract, const char *body, size_t size)
{
    pr_error err = PR_ERROR_INIT;
    AUTO(pr_decoded) decoded = NULL;
    pr_message message = PR_MESSAGE(.type = contract->type, .type_version = contract->type_version,
                                    .body = body, .body_size_bytes = size);
    pr_status status = pr_contract_decode(contract, &message, &decoded, &err);
    printf("%s\n", status == PR_OK ? "ok" : err.message);
}

int main(int argc, char **argv)
{
    static char text_line[LINE_MAX_SIZE];
    pr_error err = PR_ERROR_INIT;
    AUTO(char) text = NULL;
    if (argc != 3)
        return 2;
    pr_contract order_strict = order_contract;
    order_strict.flags = PR_CONTRACT_REFUSE_UNKNOWN;
    const pr_contract *contract = strcmp(argv[2], "tree") == 0     ? &tree_contract
                                  : strcmp(argv[2], "order") == 0  ? &order_contract
                                  : strcmp(argv[2], "strict") == 0 ? &order_strict
                                                                   : &raw_contract;
    if (strcmp(argv[1], "decode") == 0) {
        while (fgets(text_line, sizeof(text_line), stdin))
            decode_line(contract, text_line, strcspn(text_line, "\n"));
        return EXIT_SUCCESS;
    }
    pr_status status = strcmp(argv[1], "schema") == 0 ? pr_contract_schema(contract, &text, &err)
                                                      : pr_contract_example(contract, &text, &err);
    if (status != PR_OK)
        return fail(&err);
    puts(text);
    return EXIT_SUCCESS;
}
