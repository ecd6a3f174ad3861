/*
 * The order rules of a slice: nothing of a key is parked while an earlier one goes to rest, nothing
 * of it is sent behind one that failed. A case is written as words "<key><result>[!]": key '-' is
 * none, '!' is blocked; results: P published, O open, L lost, F failed, R deferred, D dead, X
 * expired, H held.
 */
#include <string.h>

#include "base/text.h"
#include "port/batch.h"
#include "support/test.h"

static const char result_letters[] = "OPLFRDXH"; /* in the order of pr__result */

typedef struct close_case {
    const char *label;
    pr_order order;
    bool parked;
    const char *before;
    const char *after;
} close_case;

static const close_case close_cases[] = {
    {"after a lost one all go to rest", PR_ORDER_HOLD, false, "aL aO aF aD", "aL aO aO aO"},
    {"after an open one none is parked", PR_ORDER_HOLD, false, "aO aF aR", "aO aO aO"},
    {"one that was published stays so", PR_ORDER_HOLD, false, "aL aP aF", "aL aP aO"},
    {"after a failed one open ones are held", PR_ORDER_HOLD, false, "aF aO aO", "aF aH aH"},
    {"after a deferred one", PR_ORDER_HOLD, false, "aR aO", "aR aH"},
    {"a death in the slice frees nobody yet", PR_ORDER_HOLD, false, "aD aO", "aD aH"},
    {"an expiry in the slice frees nobody yet", PR_ORDER_HOLD, false, "aX aO", "aX aH"},
    {"after a held one", PR_ORDER_HOLD, false, "aO! aO", "aH aH"},
    {"blocked, then lost elsewhere", PR_ORDER_HOLD, false, "aO! bL aO bO", "aH bL aH bO"},
    {"keys do not touch one another", PR_ORDER_HOLD, false, "aF bP cL bO", "aF bP cL bO"},
    {"without a key there is no order", PR_ORDER_HOLD, false, "-F -O -L -F", "-F -O -L -F"},
    {"halt is as strict", PR_ORDER_HALT, false, "aF aO bL bF", "aF aH bL bO"},
    {"skip leaves each to itself", PR_ORDER_SKIP, false, "aF aP aL aF", "aF aP aL aF"},
    {"the run of a parked key stops at a failure", PR_ORDER_HOLD, true, "aP aF aF", "aP aF aO"},
    {"and at a lost one", PR_ORDER_HOLD, true, "aL aF aO", "aL aO aO"},
    {"nothing at all", PR_ORDER_HOLD, false, "", ""},
};

static void read_item(pr__batch *batch, pr__item *item, const char *word)
{
    item->message.key = word[0] == '-' ? NULL : pr__arena_strndup(batch->arena, word, 1);
    item->result = (pr__result)(strchr(result_letters, word[1]) - result_letters);
    item->blocked = word[2] == '!';
}

static pr__batch *read_batch(const close_case *c)
{
    pr__batch *batch = pr__batch_new();
    assert_non_null(batch);
    batch->order = c->order;
    batch->items = pr__arena_alloc(batch->arena, 16 * sizeof *batch->items);
    batch->slices = c->parked ? NULL : pr__arena_alloc(batch->arena, sizeof *batch->slices);
    for (const char *word = c->before; *word;) {
        read_item(batch, &batch->items[batch->item_count++], word);
        word += strcspn(word, " ");
        word += strspn(word, " ");
    }
    return batch;
}

static void test_close(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(close_cases); i++) {
        const close_case *c = &close_cases[i];
        pr__batch *batch = read_batch(c);
        char after[64] = "";
        pr__batch_close(batch);
        for (uint32_t n = 0; n < batch->item_count; n++) {
            const pr__item *item = &batch->items[n];
            size_t used = strlen(after);
            pr__format(after + used, sizeof after - used, "%s%c%c", n ? " " : "",
                       item->message.key ? item->message.key[0] : '-',
                       result_letters[item->result]);
        }
        CHECK_CASE(strcmp(after, c->after) == 0, c->label);
        pr__batch_free(batch);
    }
}

/* The same key of two tenants is two keys, and many keys find their places. */
static void test_tenants_and_many_keys(void **state)
{
    (void)state;
    enum { KEYS = 300 };
    pr__batch *batch = pr__batch_new();
    assert_non_null(batch);
    batch->order = PR_ORDER_HOLD;
    batch->item_count = KEYS * 4;
    batch->items = pr__arena_alloc(batch->arena, batch->item_count * sizeof *batch->items);
    batch->slices = pr__arena_alloc(batch->arena, sizeof *batch->slices);
    for (uint32_t i = 0; i < batch->item_count; i++) {
        char key[16];
        pr__format(key, sizeof key, "key-%u", i % KEYS);
        batch->items[i].message.key = pr__arena_strdup(batch->arena, key);
        batch->items[i].message.tenant = (i / KEYS) % 2 ? "second" : NULL;
        /* the first round of the first tenant fails, that of the second is published */
        batch->items[i].result = i / KEYS == 0   ? PR__RESULT_FAILED
                                 : i / KEYS == 1 ? PR__RESULT_PUBLISHED
                                                 : PR__RESULT_OPEN;
    }
    pr__batch_close(batch);
    for (uint32_t i = 2 * KEYS; i < 3 * KEYS; i++)
        assert_int_equal(batch->items[i].result, PR__RESULT_HELD);
    for (uint32_t i = 3 * KEYS; i < 4 * KEYS; i++)
        assert_int_equal(batch->items[i].result, PR__RESULT_OPEN);
    pr__batch_free(batch);
}

static void test_error_text_is_cut(void **state)
{
    (void)state;
    pr__batch *batch = pr__batch_new();
    pr__item item = {.lane = 0};
    char *text = pr__alloc(6001);
    assert_non_null(batch);
    assert_non_null(text);
    memset(text, 'e', 6000);
    memcpy(text + 3998, "\xE2\x82\xAC", 3); /* a character across the limit */
    text[10] = '\n';
    pr__batch_set_error(batch, &item, text);
    assert_int_equal(strlen(item.error), 3998);
    assert_int_equal(item.error[10], ' ');
    pr__free(text);
    pr__batch_free(batch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_close),
        cmocka_unit_test(test_tenants_and_many_keys),
        cmocka_unit_test(test_error_text_is_cut),
    };
    return RUN_TESTS(tests);
}
