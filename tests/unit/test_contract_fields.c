/*
 * The comforts of a field table: enums, defaults, members that are kept, sizes; and that an error
 * names the byte.
 */
#include <postroom/contract.h>
#include <postroom/limits.h>

#include "support/test.h"

#include "core/contract.h"

#define TYPE "urn:message:shop:parcel"

typedef enum parcel_size { SMALL = 1, LARGE = -7 } parcel_size;

typedef struct stop {
    const char *town;
    const char *others;
} stop;

typedef struct parcel {
    parcel_size size;
    parcel_size fallback;
    pr_list sizes; /* of parcel_size */
    const char *currency;
    int64_t count;
    stop start;
    pr_list tags;  /* of const char *, at most 3 */
    pr_list stops; /* of stop */
    const char *note;
    bool has_colour;
    int colour;
    pr_bytes label;
    const char *others;
} parcel;

static const pr_enum_name size_names[] = {{"small", SMALL}, {"large", LARGE}, {NULL, 0}};
static const pr_enum_name colour_names[] = {{"red", 0}, {"green", 2147483647}, {NULL, 0}};

static const pr_field stop_fields[] = {
    {.name = "town", .kind = PR_FIELD_TEXT, .offset = offsetof(stop, town)},
    {.name = "*", .kind = PR_FIELD_OTHERS, .offset = offsetof(stop, others)},
    {.name = NULL},
};

static const char *const default_tags[] = {"new", "fragile"};

static const pr_field parcel_fields[] = {
    {.name = "size", .kind = PR_FIELD_ENUM, .offset = offsetof(parcel, size), .names = size_names},
    {.name = "fallback",
     .kind = PR_FIELD_ENUM,
     .offset = offsetof(parcel, fallback),
     .names = size_names,
     .default_value = &(const parcel_size){LARGE}},
    {.name = "sizes",
     .kind = PR_FIELD_LIST,
     .element_kind = PR_FIELD_ENUM,
     .offset = offsetof(parcel, sizes),
     .names = size_names,
     .default_value = &(const pr_list){NULL, 0}},
    {.name = "currency",
     .kind = PR_FIELD_TEXT,
     .offset = offsetof(parcel, currency),
     .default_value = &(const char *const){"EUR"},
     .size_max = 3},
    {.name = "count",
     .kind = PR_FIELD_INT64,
     .offset = offsetof(parcel, count),
     .default_value = &(const int64_t){1}},
    {.name = "start",
     .kind = PR_FIELD_NESTED,
     .offset = offsetof(parcel, start),
     .element_size = sizeof(stop),
     .nested = stop_fields,
     .default_value = &(const stop){"Ulm", NULL}},
    {.name = "tags",
     .kind = PR_FIELD_LIST,
     .element_kind = PR_FIELD_TEXT,
     .offset = offsetof(parcel, tags),
     .default_value = &(const pr_list){(void *)(uintptr_t)default_tags, 2},
     .size_max = 3},
    {.name = "stops",
     .kind = PR_FIELD_LIST,
     .element_kind = PR_FIELD_NESTED,
     .offset = offsetof(parcel, stops),
     .element_size = sizeof(stop),
     .nested = stop_fields,
     .default_value = &(const pr_list){NULL, 0}},
    {.name = "note",
     .kind = PR_FIELD_TEXT,
     .offset = offsetof(parcel, note),
     .default_value = &(const char *const){""}},
    {.name = "colour",
     .kind = PR_FIELD_ENUM,
     .flags = PR_FIELD_OPTIONAL,
     .offset = offsetof(parcel, colour),
     .presence_offset = offsetof(parcel, has_colour),
     .names = colour_names},
    {.name = "label",
     .kind = PR_FIELD_BYTES,
     .offset = offsetof(parcel, label),
     .default_value = &(const pr_bytes){"", 0},
     .size_max = 4},
    {.name = "*", .kind = PR_FIELD_OTHERS, .offset = offsetof(parcel, others)},
    {.name = NULL},
};

static const pr_contract parcel_contract = {
    .size = sizeof(pr_contract),
    .type = TYPE,
    .kind = PR_CONTRACT_COMMAND,
    .flags = PR_CONTRACT_REFUSE_UNKNOWN, /* of no effect where OTHERS keeps them */
    .fields = parcel_fields,
    .object_size = sizeof(parcel),
};

static pr_status decode(const char *body, pr_decoded **ret_decoded, pr_error *err)
{
    pr_message message =
        PR_MESSAGE(.type = TYPE, .body = body, .body_size_bytes = (uint64_t)strlen(body));
    return pr_contract_decode(&parcel_contract, &message, ret_decoded, err);
}

static void encodes_to(const parcel *object, const char *wanted)
{
    pr_error err = PR_ERROR_INIT;
    void *body = NULL;
    size_t size = 0;
    check_ok(pr_contract_encode(&parcel_contract, object, &body, &size, &err), &err, wanted);
    assert_string_equal(body, wanted);
    assert_int_equal(size, strlen(wanted));
    pr_free(body);
}

static void test_a_table_of_comforts_is_taken(void **state)
{
    (void)state;
    pr_error err = PR_ERROR_INIT;
    AUTO(pr_contracts) contracts = NULL;
    check_ok(pr_contracts_new(&contracts, &err), &err, "new");
    check_ok(pr_contracts_register(contracts, &parcel_contract, &err), &err, "register");
}

static void test_defaults_stand_for_what_is_missing(void **state)
{
    (void)state;
    pr_error err = PR_ERROR_INIT;
    AUTO(pr_decoded) decoded = NULL;
    check_ok(decode("{\"size\":\"small\"}", &decoded, &err), &err, "decode");
    const parcel *back = pr_decoded_object(decoded);
    assert_int_equal(back->size, SMALL);
    assert_int_equal(back->fallback, LARGE);
    assert_int_equal(back->sizes.count, 0);
    assert_string_equal(back->currency, "EUR");
    assert_int_equal(back->count, 1);
    assert_string_equal(back->start.town, "Ulm");
    assert_int_equal(back->tags.count, 2);
    assert_string_equal(((const char *const *)back->tags.items)[1], "fragile");
    assert_false(back->has_colour);
    assert_null(back->others);
    assert_null(back->start.others);
    assert_ptr_equal(pr_decoded_contract(decoded), &parcel_contract);
    encodes_to(back, "{\"size\":\"small\",\"fallback\":\"large\",\"sizes\":[],\"currency\":\"EUR\","
                     "\"count\":1,\"start\":{\"town\":\"Ulm\"},\"tags\":[\"new\",\"fragile\"],"
                     "\"stops\":[],\"note\":\"\",\"label\":\"\"}");
}

/* What a newer sender adds is still there when an older receiver sends it on. */
static void test_what_the_table_does_not_name_is_kept(void **state)
{
    (void)state;
    static const char body[] =
        "{\"size\":\"large\",\"fallback\":\"small\",\"sizes\":[\"large\",\"small\"],"
        "\"currency\":\"USD\",\"count\":2,\"start\":{\"town\":\"Bonn\",\"zip\":\"53111\"},"
        "\"tags\":[],\"stops\":[{\"town\":\"Jena\",\"deep\":{\"a\":[1,0.1,null,true,\"x\\ny\"]}},"
        "{\"town\":\"Gera\"}],\"note\":\"n\",\"colour\":\"green\",\"label\":\"AAEC\","
        "\"weight\":7.5,\"*\":{\"note\":[]}}";
    pr_error err = PR_ERROR_INIT;
    AUTO(pr_decoded) decoded = NULL;
    check_ok(decode(body, &decoded, &err), &err, "decode");
    const parcel *back = pr_decoded_object(decoded);
    assert_string_equal(back->others, "{\"weight\":7.5,\"*\":{\"note\":[]}}");
    assert_string_equal(back->start.others, "{\"zip\":\"53111\"}");
    const stop *stops = back->stops.items;
    assert_string_equal(stops[0].others, "{\"deep\":{\"a\":[1,0.1,null,true,\"x\\ny\"]}}");
    assert_null(stops[1].others);
    assert_int_equal(back->colour, 2147483647);
    assert_int_equal(((const parcel_size *)back->sizes.items)[0], LARGE);
    encodes_to(back, body);
}

static void test_bad_bodies_name_field_and_byte(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        pr_status status;
        const char *wanted;
    } cases[] = {
        {"{}", PR_E_CONTENT, "field 'size' is missing in the object at byte 0"},
        {" \n{\"count\":1}", PR_E_CONTENT, "field 'size' is missing in the object at byte 2"},
        {"{\"size\":\"s3cret\"}", PR_E_CONTENT, "field 'size' is not one of its names, at byte 8"},
        {"{\"size\":\"Small\"}", PR_E_CONTENT, "field 'size' is not one of its names, at byte 8"},
        {"{\"size\":1}", PR_E_CONTENT, "field 'size' is not one of its names, at byte 8"},
        {"{\"size\":null}", PR_E_CONTENT, "field 'size' is not one of its names, at byte 8"},
        {"{\"size\":\"small\",\"sizes\":[ \"large\" ,\"s3cret\"]}", PR_E_CONTENT,
         "field 'sizes[1]' is not one of its names, at byte 35"},
        {"{\"size\":\"small\",\"count\":null}", PR_E_CONTENT,
         "field 'count' is not an integer, at byte 24"},
        {"{\"x\":[1,{\"count\":[]}],\"size\":\"small\",\"c\\u006funt\" : -1.5e3}", PR_E_CONTENT,
         "field 'count' is not an integer, at byte 52"},
        {"{\"size\":\"small\",\"stops\":[{\"town\":\"a\"},{\"zip\":[]}]}", PR_E_CONTENT,
         "field 'stops[1].town' is missing in the object at byte 38"},
        {"{\"size\":\"small\",\"stops\":[{\"town\":\"a\"}, 12]}", PR_E_CONTENT,
         "field 'stops[1]' is not an object, at byte 39"},
        {"{\"size\":\"small\",\"start\":{\"zip\":1},\"town\":5}", PR_E_CONTENT,
         "field 'start.town' is missing in the object at byte 24"},
        {"{\"size\":\"small\",\"start\":{\"town\":false}}", PR_E_CONTENT,
         "field 'start.town' is not text, at byte 32"},
        {"{\"size\":\"small\",\"currency\":\"s3cret\"}", PR_E_LIMIT,
         "field 'currency' is larger than its size_max, at byte 27"},
        {"{\"size\":\"small\",\"currency\":\"\xE2\x82\xAC\xE2\x82\xAC\"}", PR_E_LIMIT,
         "field 'currency' is larger than its size_max"},
        {"{\"size\":\"small\",\"tags\":[\"a\",\"b\",\"c\",\"s3cret\"]}", PR_E_LIMIT,
         "field 'tags' is larger than its size_max"},
        {"{\"size\":\"small\",\"label\":\"AAECAwQ=\"}", PR_E_LIMIT,
         "field 'label' is larger than its size_max"},
        {"{\"size\":\"small\",\"deep\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"s3cret\"]]]]]]]]]]]]]]]]]]"
         "]"
         "]]]]]]]]]]]]]}",
         PR_E_CONTENT, "field '*' nests deeper than 32"},
        /* kept in an object that is nested itself: it could not be written again */
        {"{\"size\":\"small\",\"stops\":[{\"town\":\"a\",\"deep\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]"
         "]]]"
         "]]]]]]]]]]]]]]]]]]]]]]]]]}]}",
         PR_E_CONTENT, "field 'stops[0].*' nests deeper than 32"},
        {"{\"size\":\"small\",\"id\":[{\"a\":18446744073709551616}]}", PR_E_CONTENT,
         "field '*' would keep a number that 64 bits do not hold"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        pr_decoded *decoded = NULL;
        check_error(decode(cases[i].body, &decoded, &err), &err, cases[i].status, cases[i].wanted,
                    cases[i].body);
        CHECK_CASE(!strstr(err.message, "s3cret"), cases[i].body);
        assert_null(decoded);
    }
    pr_error err = PR_ERROR_INIT;
    AUTO(pr_decoded) decoded = NULL;
    check_ok(
        decode("{\"size\":\"small\",\"currency\":\"\xE2\x82\xAC\",\"tags\":[\"longer than 3\",\"\","
               "\"\"],\"label\":\"AAECAw==\"}",
               &decoded, &err),
        &err, "just as large as it may be");
}

static void test_bad_objects_are_not_encoded(void **state)
{
    (void)state;
    enum {
        ENUM,
        ENUM_LIST,
        TEXT_SIZE,
        BYTES_SIZE,
        LIST_SIZE,
        KEPT_JSON,
        KEPT_LIST,
        KEPT_NAME,
        CASES
    };
    static const struct {
        pr_status status;
        const char *wanted;
    } wanted[CASES] = {
        [ENUM] = {PR_E_CONTENT, "field 'size' is a value without a name"},
        [ENUM_LIST] = {PR_E_CONTENT, "field 'sizes[1]' is a value without a name"},
        [TEXT_SIZE] = {PR_E_LIMIT, "field 'currency' is larger than its size_max"},
        [BYTES_SIZE] = {PR_E_LIMIT, "field 'label' is larger than its size_max"},
        [LIST_SIZE] = {PR_E_LIMIT, "field 'tags' is larger than its size_max"},
        [KEPT_JSON] = {PR_E_CONTENT, "field '*' is not the text of a JSON object"},
        [KEPT_LIST] = {PR_E_CONTENT, "field '*' is not the text of a JSON object"},
        [KEPT_NAME] = {PR_E_CONTENT, "field '*' has a member that the table names"},
    };
    static char bad_json[] = "{\"s3cret\"", list[] = "[\"s3cret\"]", named[] = "{\"size\":1}";
    for (int i = 0; i < CASES; i++) {
        const parcel_size sizes[] = {SMALL, (parcel_size)99};
        const char *tags[] = {"a", "b", "c", "d"};
        parcel bad = {
            .size = SMALL, .fallback = SMALL, .currency = "EUR", .note = "", .start = {"", NULL}};
        if (i == ENUM)
            bad.size = (parcel_size)0;
        if (i == ENUM_LIST)
            bad.sizes = (pr_list){(void *)(uintptr_t)sizes, 2};
        if (i == TEXT_SIZE)
            bad.currency = "s3cret";
        if (i == BYTES_SIZE)
            bad.label = (pr_bytes){"12345", 5};
        if (i == LIST_SIZE)
            bad.tags = (pr_list){tags, 4};
        bad.others = i == KEPT_JSON   ? bad_json
                     : i == KEPT_LIST ? list
                     : i == KEPT_NAME ? named
                                      : NULL;
        pr_error err = PR_ERROR_INIT;
        void *body = NULL;
        size_t size = 0;
        check_error(pr_contract_encode(&parcel_contract, &bad, &body, &size, &err), &err,
                    wanted[i].status, wanted[i].wanted, wanted[i].wanted);
        assert_null(strstr(err.message, "s3cret"));
        assert_null(body);
    }
}

/* ---- tables that are refused ---- */

typedef struct box {
    int64_t number;
    int kind;
    const char *others;
    const char *more;
    bool there;
} box;

static const pr_enum_name twice_names[] = {{"a", 1}, {"a", 2}, {NULL, 0}};
static const pr_enum_name twice_values[] = {{"a", 1}, {"b", 1}, {NULL, 0}};
static const pr_enum_name large_values[] = {{"a", 2147483648}, {NULL, 0}};
static const pr_enum_name bad_names[] = {{"\xC3", 1}, {NULL, 0}};
static const int64_t one = 1;
static const int five = 5;
static const char *const nothing = "{}";
static const pr_enum_name no_names[] = {{NULL, 0}};

static void test_bad_tables_are_refused(void **state)
{
    (void)state;
#define NUMBER .name = "number", .kind = PR_FIELD_INT64, .offset = offsetof(box, number)
#define KIND   .name = "kind", .kind = PR_FIELD_ENUM, .offset = offsetof(box, kind)
#define OTHERS .name = "*", .kind = PR_FIELD_OTHERS, .offset = offsetof(box, others)
    static const struct {
        pr_field fields[3];
        const char *wanted;
    } cases[] = {
        {{{KIND}}, "field 'kind' is an enum, and has no names"},
        {{{KIND, .names = no_names}}, "field 'kind' is an enum, and has no names"},
        {{{KIND, .names = twice_names}}, "field 'kind' has a name or a value twice"},
        {{{KIND, .names = twice_values}}, "field 'kind' has a name or a value twice"},
        {{{KIND, .names = large_values}}, "field 'kind' has a name whose value is no int"},
        {{{KIND, .names = bad_names}}, "field 'kind' has a name that is not valid UTF-8"},
        {{{NUMBER, .names = size_names}}, "field 'number' has names, but is no enum"},
        {{{NUMBER, .size_max = 1}}, "field 'number' has a size_max"},
        {{{NUMBER, .flags = PR_FIELD_OPTIONAL, .presence_offset = offsetof(box, there),
           .default_value = &one}},
         "field 'number' has a default: it can neither be optional"},
        {{{KIND, .names = size_names, .default_value = &five}},
         "default_value: field 'kind' is a value without a name"},
        {{{OTHERS}, {.name = "more", .kind = PR_FIELD_OTHERS, .offset = offsetof(box, more)}},
         "field 'more' is the second that keeps the others"},
        {{{OTHERS, .flags = PR_FIELD_OPTIONAL, .presence_offset = offsetof(box, there)}},
         "field '*' has flags or a default"},
        {{{OTHERS, .default_value = &nothing}}, "field '*' has flags or a default"},
        {{{.name = "list", .kind = PR_FIELD_LIST, .element_kind = PR_FIELD_OTHERS}},
         "field 'list' is a list of an unknown kind"},
    };
    pr_error err = PR_ERROR_INIT;
    AUTO(pr_contracts) contracts = NULL;
    check_ok(pr_contracts_new(&contracts, &err), &err, "new");
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_contract contract = {.size = sizeof(pr_contract),
                                .type = TYPE,
                                .kind = PR_CONTRACT_REPLY,
                                .fields = cases[i].fields,
                                .object_size = sizeof(box)};
        pr_error_clear(&err);
        pr_status status = pr_contracts_register(contracts, &contract, &err);
        check_error(status, &err,
                    i == 5   ? PR_E_CONTENT
                    : i == 9 ? PR_E_CONTENT
                             : PR_E_INVALID,
                    cases[i].wanted, cases[i].wanted);
    }
}

/* ---- bounds ---- */

typedef struct crate {
    bool has_padding;
    pr_bytes padding;
    char wide[3][37];
    bool has_wide[3];
    int64_t rest[500];
    bool has_rest[2];
} crate;

static const pr_field crate_fields[] = {
    {.name = "padding",
     .kind = PR_FIELD_BYTES,
     .flags = PR_FIELD_OPTIONAL,
     .offset = offsetof(crate, padding),
     .presence_offset = offsetof(crate, has_padding)},
    {.name = NULL},
};

typedef struct load {
    pr_list crates;
} load;

static const pr_field load_fields[] = {
    {.name = "crates",
     .kind = PR_FIELD_LIST,
     .element_kind = PR_FIELD_NESTED,
     .offset = offsetof(load, crates),
     .element_size = sizeof(crate),
     .nested = crate_fields},
    {.name = NULL},
};

/* "{}," is 3 bytes, a crate 4,000: a body of 1 MiB would become more than a gigabyte. */
static void test_a_small_body_makes_no_huge_object(void **state)
{
    (void)state;
    static const pr_contract contract = {.size = sizeof(pr_contract),
                                         .type = TYPE,
                                         .kind = PR_CONTRACT_COMMAND,
                                         .fields = load_fields,
                                         .object_size = sizeof(load)};
    AUTO_BUFFER body = PR_BUFFER_INIT;
    size_t too_many = (size_t)PR_DECODED_SIZE_MAX / sizeof(crate) + 1;
    pr__buffer_append_text(&body, "{\"crates\":[{}");
    for (size_t i = 1; i < too_many; i++)
        pr__buffer_append_text(&body, ",{}");
    pr__buffer_append_text(&body, "]}");
    assert_true(body.size < PR_BODY_SIZE_DEFAULT);
    pr_error err = PR_ERROR_INIT;
    pr_decoded *decoded = NULL;
    pr_message message = PR_MESSAGE(.type = TYPE, .body = body.data, .body_size_bytes = body.size);
    check_error(pr_contract_decode(&contract, &message, &decoded, &err), &err, PR_E_LIMIT,
                "field 'crates' makes the object larger than PR_DECODED_SIZE_MAX, at byte 10",
                "crates");
    assert_null(decoded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_table_of_comforts_is_taken),
        cmocka_unit_test(test_defaults_stand_for_what_is_missing),
        cmocka_unit_test(test_what_the_table_does_not_name_is_kept),
        cmocka_unit_test(test_bad_bodies_name_field_and_byte),
        cmocka_unit_test(test_bad_objects_are_not_encoded),
        cmocka_unit_test(test_bad_tables_are_refused),
        cmocka_unit_test(test_a_small_body_makes_no_huge_object),
    };
    return RUN_TESTS(tests);
}
