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

#define LINE_MAX_SIZE 65536

typedef enum colour { RED, GREEN } colour;

typedef struct leaf {
    colour shade;
    bool has_weight;
    double weight;
} leaf;

typedef struct tree {
    const char *name;
    colour shade;
    pr_list leaves;
    pr_list shades;
    pr_list trees;
    int64_t height;
    bool has_birth;
    int64_t birth;
    const char *others;
} tree;

static const pr_enum_name colours[] = {{"red", RED}, {"green", GREEN}, {NULL, 0}};

static const pr_field leaf_fields[] = {
    {.name = "shade", .kind = PR_FIELD_ENUM, .offset = offsetof(leaf, shade), .names = colours},
    {.name = "weight",
     .kind = PR_FIELD_DOUBLE,
     .flags = PR_FIELD_OPTIONAL,
     .offset = offsetof(leaf, weight),
     .presence_offset = offsetof(leaf, has_weight),
     .description = "in grams, \"dry\""},
    {.name = NULL},
};

static const pr_field tree_fields[] = {
    {.name = "name/of it", .kind = PR_FIELD_TEXT, .offset = offsetof(tree, name), .size_max = 8},
    {.name = "shade",
     .kind = PR_FIELD_ENUM,
     .offset = offsetof(tree, shade),
     .names = colours,
     .default_value = &(const colour){GREEN}},
    {.name = "leaf lists", /* no name for a definition */
     .kind = PR_FIELD_LIST,
     .element_kind = PR_FIELD_NESTED,
     .offset = offsetof(tree, leaves),
     .element_size = sizeof(leaf),
     .nested = leaf_fields,
     .size_max = 2},
    {.name = "shades",
     .kind = PR_FIELD_LIST,
     .element_kind = PR_FIELD_ENUM,
     .offset = offsetof(tree, shades),
     .names = colours,
     .default_value = &(const pr_list){NULL, 0}},
    {.name = "table",
     .kind = PR_FIELD_LIST,
     .element_kind = PR_FIELD_NESTED,
     .offset = offsetof(tree, trees),
     .element_size = sizeof(tree),
     .nested = tree_fields},
    {.name = "height",
     .kind = PR_FIELD_INT64,
     .offset = offsetof(tree, height),
     .default_value = &(const int64_t){3}},
    {.name = "birth",
     .kind = PR_FIELD_INSTANT,
     .flags = PR_FIELD_OPTIONAL,
     .offset = offsetof(tree, birth),
     .presence_offset = offsetof(tree, has_birth)},
    {.name = "*", .kind = PR_FIELD_OTHERS, .offset = offsetof(tree, others)},
    {.name = NULL},
};

static const pr_contract tree_contract = {
    .size = sizeof(pr_contract),
    .type = "urn:message:wood:tree-grown",
    .kind = PR_CONTRACT_COMMAND,
    .flags = PR_CONTRACT_REFUSE_UNKNOWN,
    .fields = tree_fields,
    .object_size = sizeof(tree),
};

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
