/*
 * A contract that nests itself, with enums, defaults, limits and members that are kept.
 */
#ifndef PR_TESTS_UNIT_TREE_CONTRACT_H
#define PR_TESTS_UNIT_TREE_CONTRACT_H

#include <postroom/contract.h>

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

#endif
