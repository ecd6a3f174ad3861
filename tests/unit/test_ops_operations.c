/*
 * pr_operations_…: what is refused before it reaches a store, what defaults become, what the
 * observer is told, and which row of several explain chooses.
 */
#include "support/test.h"

#include <postroom/contract.h>
#include <postroom/operations.h>

#include "port/store.h"

#define NOW_US 1767225600000000LL

typedef struct fake {
    pr_store store; /* first */
    pr_list_options list;
    pr_redrive_options redrive;
    pr__redrive_check check;
    void *check_user;
    const pr_record *records;
    size_t record_count;
    uint64_t redriven;
    int calls;
    int observed;
    pr_observation_kind kind;
    uint64_t observed_count;
    char observed_text[64];
    pr_status answer;
    bool placed;
} fake;

static pr_status fake_status(pr_store *store, pr_status_report *ret_report, pr_error *err)
{
    (void)err;
    ((fake *)store)->calls++;
    ret_report->lanes = 16;
    return PR_OK;
}

static pr_status fake_list(pr_store *store, const pr_list_options *opt, pr_list_page *ret_page,
                           pr_record_callback callback, void *user, pr_error *err)
{
    (void)callback, (void)user, (void)err;
    fake *self = (fake *)store;
    self->calls++;
    self->list = *opt;
    ret_page->count = 5;
    return PR_OK;
}

static pr_status fake_show(pr_store *store, const char *message_id, pr_record_callback callback,
                           void *user, pr_error *err)
{
    (void)message_id, (void)err;
    fake *self = (fake *)store;
    for (size_t i = 0; i < self->record_count; i++)
        if (!callback(user, &self->records[i]))
            break;
    return PR_OK;
}

static pr_status fake_redrive(pr_store *store, const pr_redrive_options *opt,
                              pr__redrive_check check, void *user, uint64_t *ret_count,
                              pr_error *err)
{
    (void)err;
    fake *self = (fake *)store;
    self->calls++;
    self->redrive = *opt;
    self->check = check;
    self->check_user = user;
    *ret_count = self->redriven;
    return self->answer;
}

static pr_status fake_discard(pr_store *store, const char *message_id, const char *consumer,
                              const char *who, const char *reason, pr_error *err)
{
    (void)message_id, (void)consumer, (void)who, (void)reason, (void)err;
    ((fake *)store)->calls++;
    return ((fake *)store)->answer;
}

static pr_status fake_cancel(pr_store *store, const char *message_id, const char *who,
                             const char *reason, pr_error *err)
{
    (void)message_id, (void)who, (void)reason, (void)err;
    ((fake *)store)->calls++;
    return ((fake *)store)->answer;
}

static pr_status fake_blocker(pr_store *store, const pr_record *record, char *ret_message_id,
                              size_t ret_size, pr_error *err)
{
    (void)store, (void)err;
    snprintf(ret_message_id, ret_size, "%s", record->state == PR_STATE_HELD ? "head" : "");
    return PR_OK;
}

static pr_status fake_now(pr_store *store, int64_t *ret_now_us, pr_error *err)
{
    (void)store, (void)err;
    *ret_now_us = NOW_US;
    return PR_OK;
}

static pr_status fake_place(pr_store *store, const pr_record *record, pr__place *ret_place,
                            pr_error *err)
{
    (void)record, (void)err;
    ((fake *)store)->placed = true;
    *ret_place = (pr__place){.worked = true, .owner = "relay-a"};
    return PR_OK;
}

static const pr__store_ops fake_ops = {.name = "fake",
                                       .status = fake_status,
                                       .list = fake_list,
                                       .show = fake_show,
                                       .redrive = fake_redrive,
                                       .discard = fake_discard,
                                       .cancel = fake_cancel,
                                       .blocker = fake_blocker,
                                       .now = fake_now,
                                       .place = fake_place};

static void observe(void *user, const pr_observation *observation)
{
    fake *self = user;
    self->observed++;
    self->kind = observation->kind;
    self->observed_count = observation->count;
    snprintf(self->observed_text, sizeof self->observed_text, "%s", observation->text);
}

/* A fake store with an observer, in the caller's frame. */
#define FAKE(name)                                                                                 \
    pr_observer name##_observer = {.size = (uint32_t)sizeof(pr_observer), .observe = observe};     \
    fake name = {.store = {.ops = &fake_ops, .observer = &name##_observer}};                       \
    name##_observer.user = &name

static bool take(void *user, const pr_record *record)
{
    (void)user, (void)record;
    return true;
}

static char text_of_300[301];

static const pr_list_options list_base = {.size = (uint32_t)sizeof(pr_list_options)};

static void test_list_refuses(void **state)
{
    (void)state;
    const struct {
        const char *label;
        pr_list_options opt;
        pr_status wanted;
        const char *text;
    } cases[] = {
        {"no size", {.limit = 1}, PR_E_INVALID, "size of pr_list_options"},
        {"limit 1,001", {.size = list_base.size, .limit = 1001}, PR_E_INVALID, "limit is 1001"},
        {"box 9", {.size = list_base.size, .box = (pr_box)9}, PR_E_INVALID, "box is none"},
        {"state 8", {.size = list_base.size, .state = (pr_state)8}, PR_E_INVALID, "state 8"},
        {"both, any state", {.size = list_base.size, .box = PR_BOX_BOTH}, PR_E_INVALID, "state"},
        {"both, pending",
         {.size = list_base.size, .box = PR_BOX_BOTH, .state = PR_STATE_PENDING},
         PR_E_INVALID,
         "failed, held or dead"},
        {"consumer of the outbox",
         {.size = list_base.size, .consumer = "a"},
         PR_E_INVALID,
         "no consumers"},
        {"reader -1", {.size = list_base.size, .reader = -1}, PR_E_INVALID, "reader -1"},
        {"long key", {.size = list_base.size, .key = text_of_300}, PR_E_LIMIT, "the key has 300"},
        {"bad type", {.size = list_base.size, .type = "\xFF"}, PR_E_CONTENT, "the type is not"},
        {"cursor", {.size = list_base.size, .after = text_of_300}, PR_E_INVALID, "cursor"},
    };
    FAKE(store);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        pr_status status = pr_operations_list(&store.store, &cases[i].opt, NULL, take, NULL, &err);
        check_error(status, &err, cases[i].wanted, cases[i].text, cases[i].label);
    }
    pr_error err = PR_ERROR_INIT;
    check_error(pr_operations_list(&store.store, NULL, NULL, NULL, NULL, &err), &err, PR_E_INVALID,
                "callback", "no callback");
    err = (pr_error)PR_ERROR_INIT;
    check_error(pr_operations_list(NULL, NULL, NULL, take, NULL, &err), &err, PR_E_INVALID,
                "store is NULL", "no store");
    assert_int_equal(store.calls, 0);
}

static void test_list_defaults(void **state)
{
    (void)state;
    FAKE(store);
    pr_error err = PR_ERROR_INIT;
    pr_list_page page = {.size = (uint32_t)sizeof page};
    check_ok(pr_operations_list(&store.store, NULL, &page, take, NULL, &err), &err, "NULL");
    assert_int_equal(store.list.limit, 100);
    assert_int_equal(store.list.box, PR_BOX_OUTBOX);
    assert_int_equal(store.list.reader, PR_READER_RELAY);
    assert_int_equal(page.count, 5);
    pr_list_options opt = list_base;
    opt.limit = 1000;
    opt.after = "";
    check_ok(pr_operations_list(&store.store, &opt, NULL, take, NULL, &err), &err, "1,000");
    assert_int_equal(store.list.limit, 1000);
    assert_null(store.list.after);
}

static pr_redrive_options redrive_base(void)
{
    return (pr_redrive_options){
        .size = (uint32_t)sizeof(pr_redrive_options), .who = "ada", .reason = "mended"};
}

static void test_redrive_refuses(void **state)
{
    (void)state;
    FAKE(store);
    for (int i = 0; i < 10; i++) {
        static const struct {
            const char *label;
            pr_status wanted;
            const char *text;
        } cases[] = {
            {"no size", PR_E_INVALID, "size"},
            {"no reason", PR_E_INVALID, "a reason is needed"},
            {"empty reason", PR_E_INVALID, "a reason is needed"},
            {"nobody", PR_E_INVALID, "who"},
            {"limit 1,001", PR_E_INVALID, "limit is 1001"},
            {"inbox of nobody", PR_E_INVALID, "needs the consumer"},
            {"both boxes", PR_E_INVALID, "OUTBOX, INBOX"},
            {"id and filter", PR_E_INVALID, "not both"},
            {"empty id", PR_E_INVALID, "a message id is needed"},
            {"long id", PR_E_LIMIT, "the message id has 300"},
        };
        pr_redrive_options opt = redrive_base();
        switch (i) {
        case 0:
            opt.size = 4;
            break;
        case 1:
            opt.reason = NULL;
            break;
        case 2:
            opt.reason = "";
            break;
        case 3:
            opt.who = NULL;
            break;
        case 4:
            opt.limit = 1001;
            break;
        case 5:
            opt.box = PR_BOX_INBOX;
            break;
        case 6:
            opt.box = PR_BOX_BOTH;
            break;
        case 7:
            opt.message_id = "m";
            opt.type = "urn:message:a:b";
            break;
        case 8:
            opt.message_id = "";
            break;
        case 9:
            opt.message_id = text_of_300;
            break;
        }
        pr_error err = PR_ERROR_INIT;
        uint64_t count = 77;
        pr_status status = pr_operations_redrive(&store.store, &opt, &count, &err);
        check_error(status, &err, cases[i].wanted, cases[i].text, cases[i].label);
        CHECK_CASE(count == 77, cases[i].label);
    }
    assert_int_equal(store.calls, 0);
    assert_int_equal(store.observed, 0);
}

static void test_redrive_is_observed_when_it_happened(void **state)
{
    (void)state;
    const struct {
        const char *label;
        uint64_t redriven;
        bool dry_run;
        pr_status answer;
        int observed;
    } cases[] = {
        {"three", 3, false, PR_OK, 1},
        {"none", 0, false, PR_OK, 0},
        {"dry run", 3, true, PR_OK, 0},
        {"failed", 3, false, PR_E_BACKEND, 0},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        FAKE(store);
        store.redriven = cases[i].redriven;
        store.answer = cases[i].answer;
        pr_redrive_options opt = redrive_base();
        opt.dry_run = cases[i].dry_run;
        uint64_t count = 0;
        CHECK_CASE(pr_operations_redrive(&store.store, &opt, &count, NULL) == cases[i].answer,
                   cases[i].label);
        CHECK_CASE(store.observed == cases[i].observed, cases[i].label);
        CHECK_CASE(store.redrive.limit == 100 && store.redrive.box == PR_BOX_OUTBOX,
                   cases[i].label);
        CHECK_CASE(store.check == NULL, cases[i].label);
        if (cases[i].observed) {
            CHECK_CASE(store.kind == PR_OBSERVE_REDRIVEN && store.observed_count == 3,
                       cases[i].label);
            CHECK_CASE(strcmp(store.observed_text, "mended") == 0, cases[i].label);
            CHECK_CASE(strcmp(pr_observation_name(store.kind), "messaging.outbox.redrive.count") ==
                           0,
                       cases[i].label);
        }
    }
}

static void test_redrive_asks_the_registry(void **state)
{
    (void)state;
    FAKE(store);
    pr_contracts *contracts = NULL;
    pr_error err = PR_ERROR_INIT;
    check_ok(pr_contracts_new(&contracts, &err), &err, "registry");
    static const pr_contract placed = {.size = (uint32_t)sizeof placed,
                                       .type_version = 1,
                                       .type = "urn:message:shop:placed",
                                       .kind = PR_CONTRACT_DOMAIN_EVENT,
                                       .flags = PR_CONTRACT_RAW};
    check_ok(pr_contracts_register(contracts, &placed, &err), &err, "register");
    pr_redrive_options opt = redrive_base();
    opt.contracts = contracts;
    check_ok(pr_operations_redrive(&store.store, &opt, NULL, &err), &err, "redrive");
    assert_non_null(store.check);
    assert_true(store.check(store.check_user, "urn:message:shop:placed", 1));
    assert_false(store.check(store.check_user, "urn:message:shop:placed", 2));
    assert_false(store.check(store.check_user, "urn:message:shop:gone", 1));
    pr_contracts_free(contracts);
}

static void test_discard_and_cancel(void **state)
{
    (void)state;
    FAKE(store);
    const struct {
        const char *label, *id, *consumer, *who, *reason, *text;
    } cases[] = {
        {"no id", NULL, NULL, "ada", "why", "a message id"},
        {"empty consumer", "m", "", "ada", "why", "consumer is empty"},
        {"no reason", "m", NULL, "ada", NULL, "a reason"},
        {"nobody", "m", NULL, "", "why", "who"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        pr_error err = PR_ERROR_INIT;
        check_error(pr_operations_discard(&store.store, cases[i].id, cases[i].consumer,
                                          cases[i].who, cases[i].reason, &err),
                    &err, PR_E_INVALID, cases[i].text, cases[i].label);
        if (cases[i].consumer)
            continue;
        err = (pr_error)PR_ERROR_INIT;
        check_error(
            pr_operations_cancel(&store.store, cases[i].id, cases[i].who, cases[i].reason, &err),
            &err, PR_E_INVALID, cases[i].text, cases[i].label);
    }
    assert_int_equal(store.calls, 0);
    store.answer = PR_E_STATE;
    assert_int_equal(pr_operations_discard(&store.store, "m", NULL, "ada", "why", NULL),
                     PR_E_STATE);
    assert_int_equal(store.observed, 0);
    store.answer = PR_OK;
    assert_int_equal(pr_operations_discard(&store.store, "m", "billing", "ada", "why", NULL),
                     PR_OK);
    assert_int_equal(store.observed, 1);
    assert_int_equal(store.kind, PR_OBSERVE_DISCARDED);
    assert_int_equal(pr_operations_cancel(&store.store, "m", "ada", "why", NULL), PR_OK);
    assert_int_equal(store.observed, 2);
}

static void test_status_keeps_the_callers_size(void **state)
{
    (void)state;
    FAKE(store);
    pr_error err = PR_ERROR_INIT;
    pr_status_report report = {.size = 4};
    check_error(pr_operations_status(&store.store, &report, &err), &err, PR_E_INVALID, "size",
                "short");
    report = (pr_status_report){.size = (uint32_t)sizeof report + 8, .lanes = 3};
    err = (pr_error)PR_ERROR_INIT;
    check_ok(pr_operations_status(&store.store, &report, &err), &err, "status");
    assert_int_equal(report.lanes, 16);
    assert_int_equal(report.size, sizeof report + 8);
}

static void test_a_method_that_is_missing(void **state)
{
    (void)state;
    static const pr__store_ops bare = {.name = "bare"};
    pr_store store = {.ops = &bare};
    pr_error err = PR_ERROR_INIT;
    pr_status_report report = {.size = (uint32_t)sizeof report};
    check_error(pr_operations_status(&store, &report, &err), &err, PR_E_UNSUPPORTED,
                "the bare store does not support status", "status");
}

static void test_explain_chooses_what_is_stuck(void **state)
{
    (void)state;
    const pr_record outbox = {.box = PR_BOX_OUTBOX, .state = PR_STATE_PUBLISHED, .reader = 1};
    const pr_record failed = {.box = PR_BOX_INBOX,
                              .consumer = "billing",
                              .state = PR_STATE_FAILED,
                              .attempts = 1,
                              .next_attempt_at_us = NOW_US + 1000000};
    const pr_record held = {.box = PR_BOX_INBOX, .consumer = "mail", .state = PR_STATE_HELD};
    const pr_record dead = {.box = PR_BOX_INBOX, .consumer = "books", .state = PR_STATE_DEAD};
    const struct {
        const char *label;
        const pr_record records[3];
        size_t count;
        const char *consumer, *text, *blocker;
        bool placed;
    } cases[] = {
        {"published only", {outbox}, 1, "", "was published", "", true},
        {"failed at a consumer", {outbox, failed}, 2, "billing", "failed 1 time", "", false},
        {"held before failed", {failed, held, outbox}, 3, "mail", "is held", "head", false},
        {"dead before all", {dead, held, failed}, 3, "books", "is dead", "", false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        FAKE(store);
        store.records = cases[i].records;
        store.record_count = cases[i].count;
        pr_error err = PR_ERROR_INIT;
        pr_explanation got = {.size = (uint32_t)sizeof got};
        check_ok(pr_operations_explain(&store.store, "m", &got, &err), &err, cases[i].label);
        CHECK_CASE(strcmp(got.consumer, cases[i].consumer) == 0, cases[i].label);
        CHECK_CASE(strstr(got.summary, cases[i].text) != NULL, cases[i].label);
        CHECK_CASE(strcmp(got.blocker_id, cases[i].blocker) == 0, cases[i].label);
        CHECK_CASE(store.placed == cases[i].placed, cases[i].label);
    }
    FAKE(store);
    pr_error err = PR_ERROR_INIT;
    pr_explanation got = {.size = (uint32_t)sizeof got};
    check_error(pr_operations_explain(&store.store, "m-404", &got, &err), &err, PR_E_NOT_FOUND,
                "no message \"m-404\"", "missing");
}

int main(void)
{
    memset(text_of_300, 'x', sizeof text_of_300 - 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list_refuses),
        cmocka_unit_test(test_list_defaults),
        cmocka_unit_test(test_redrive_refuses),
        cmocka_unit_test(test_redrive_is_observed_when_it_happened),
        cmocka_unit_test(test_redrive_asks_the_registry),
        cmocka_unit_test(test_discard_and_cancel),
        cmocka_unit_test(test_status_keeps_the_callers_size),
        cmocka_unit_test(test_a_method_that_is_missing),
        cmocka_unit_test(test_explain_chooses_what_is_stuck),
    };
    return RUN_TESTS(tests);
}
