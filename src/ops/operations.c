/*
 * The commands of operators and the read model: what pr_operations_… promises around the port.
 *
 * Owns: the checks of arguments, the defaults, and what the observer is told.
 * Invariant: nothing that changes a message goes to the store without a reason and a name, and
 * nothing is observed that was not committed.
 * Must not know: tables or statements; those are the store's.
 */
#include <string.h>

#include <postroom/contract.h>
#include <postroom/operations.h>

#include "base/error.h"
#include "base/sized.h"
#include "base/text.h"
#include "port/observe.h"
#include "port/store.h"

#define ORIGIN        "operations"
#define LIMIT_DEFAULT 100
#define LIMIT_MAX     1000

#define NEED(store, method)                                                                        \
    do {                                                                                           \
        if (!(store) || !(store)->ops)                                                             \
            return pr__fail(err, PR_E_INVALID, ORIGIN, "the store is NULL");                       \
        if (!(store)->ops->method)                                                                 \
            return pr__fail(err, PR_E_UNSUPPORTED, ORIGIN, "the %s store does not support %s",     \
                            (store)->ops->name, #method);                                          \
    } while (0)

static pr_status check_text(const char *text, const char *name, size_t limit, pr_error *err)
{
    if (!text)
        return PR_OK;
    size_t size = strlen(text);
    if (size > limit)
        return pr__fail(err, PR_E_LIMIT, ORIGIN, "%s has %zu bytes, at most %zu", name, size,
                        limit);
    if (!pr__utf8_valid(text, size))
        return pr__fail(err, PR_E_CONTENT, ORIGIN, "%s is not valid UTF-8", name);
    return PR_OK;
}

static pr_status check_id(const char *message_id, pr_error *err)
{
    if (pr__text_empty(message_id))
        return pr__fail(err, PR_E_INVALID, ORIGIN, "a message id is needed");
    return check_text(message_id, "the message id", PR_ID_SIZE_MAX, err);
}

/* Who and why go into the audit: without them nothing is changed. */
static pr_status check_audit(const char *who, const char *reason, pr_error *err)
{
    if (pr__text_empty(reason))
        return pr__fail(err, PR_E_INVALID, ORIGIN, "a reason is needed; it goes into the audit");
    if (pr__text_empty(who))
        return pr__fail(err, PR_E_INVALID, ORIGIN, "who does it is needed; it goes into the audit");
    TRY(check_text(who, "who", PR_ID_SIZE_MAX, err));
    return check_text(reason, "the reason", PR_ERROR_TEXT_SIZE_MAX, err);
}

static pr_status check_filter(const char *type, const char *destination, const char *consumer,
                              pr_error *err)
{
    TRY(check_text(type, "the type", PR_TYPE_SIZE_MAX, err));
    TRY(check_text(destination, "the destination", PR_DESTINATION_SIZE_MAX, err));
    return check_text(consumer, "the consumer", PR_ID_SIZE_MAX, err);
}

static pr_status take_limit(uint32_t *limit, pr_error *err)
{
    if (*limit > LIMIT_MAX)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "limit is %u, must be from 1 to %d; repeat it",
                        *limit, LIMIT_MAX);
    if (*limit == 0)
        *limit = LIMIT_DEFAULT;
    return PR_OK;
}

pr_status pr_operations_status(pr_store *store, pr_status_report *ret_report, pr_error *err)
{
    NEED(store, status);
    if (!ret_report || ret_report->size < sizeof *ret_report)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "size of pr_status_report is not set");
    uint32_t size = ret_report->size;
    pr_status_report report = {.size = (uint32_t)sizeof report};
    TRY(store->ops->status(store, &report, err));
    *ret_report = report;
    ret_report->size = size;
    return PR_OK;
}

static pr_status check_list(pr_list_options *opt, pr_error *err)
{
    TRY(take_limit(&opt->limit, err));
    if (opt->box == 0)
        opt->box = PR_BOX_OUTBOX;
    if (opt->box != PR_BOX_OUTBOX && opt->box != PR_BOX_INBOX && opt->box != PR_BOX_BOTH)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "box is none of OUTBOX, INBOX, BOTH");
    if (opt->state != 0 && (opt->state < PR_STATE_PENDING || opt->state > PR_STATE_DEAD))
        return pr__fail(err, PR_E_INVALID, ORIGIN, "state %d is none", (int)opt->state);
    if (opt->box == PR_BOX_BOTH && opt->state != PR_STATE_FAILED && opt->state != PR_STATE_HELD &&
        opt->state != PR_STATE_DEAD)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "a list of both boxes needs a state: failed, held or dead");
    if (opt->box == PR_BOX_OUTBOX && opt->consumer)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "the outbox has readers, no consumers; filter by reader");
    if (opt->reader < 0)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "reader %lld is none", (long long)opt->reader);
    if (opt->reader == 0 && opt->box != PR_BOX_BOTH)
        opt->reader = PR_READER_RELAY;
    TRY(check_filter(opt->type, opt->destination, opt->consumer, err));
    TRY(check_text(opt->key, "the key", PR_ID_SIZE_MAX, err));
    if (opt->after && strlen(opt->after) >= sizeof((pr_list_page *)NULL)->next)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "the cursor is none of ours: too long");
    if (pr__text_empty(opt->after))
        opt->after = NULL;
    return PR_OK;
}

pr_status pr_operations_list(pr_store *store, const pr_list_options *opt, pr_list_page *ret_page,
                             pr_record_callback callback, void *user, pr_error *err)
{
    NEED(store, list);
    if (opt)
        TRY(pr__sized_check(opt, sizeof *opt, "pr_list_options", ORIGIN, err));
    if (!callback)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "a list needs a callback");
    if (ret_page && ret_page->size < sizeof *ret_page)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "size of pr_list_page is not set");
    pr_list_options filled = {.size = (uint32_t)sizeof filled};
    if (opt)
        filled = *opt;
    TRY(check_list(&filled, err));
    pr_list_page page = {.size = (uint32_t)sizeof page};
    TRY(store->ops->list(store, &filled, &page, callback, user, err));
    if (ret_page) {
        uint32_t size = ret_page->size;
        *ret_page = page;
        ret_page->size = size;
    }
    return PR_OK;
}

pr_status pr_operations_show(pr_store *store, const char *message_id, pr_record_callback callback,
                             void *user, pr_error *err)
{
    NEED(store, show);
    TRY(check_id(message_id, err));
    if (!callback)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "show needs a callback");
    return store->ops->show(store, message_id, callback, user, err);
}

static pr_status check_redrive(pr_redrive_options *opt, pr_error *err)
{
    TRY(take_limit(&opt->limit, err));
    if (opt->box == 0)
        opt->box = PR_BOX_OUTBOX;
    if (opt->box != PR_BOX_OUTBOX && opt->box != PR_BOX_INBOX)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "box is none of OUTBOX, INBOX");
    if (opt->box == PR_BOX_INBOX && pr__text_empty(opt->consumer))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "a redrive in the inbox needs the consumer whose message it is");
    if (opt->message_id) {
        TRY(check_id(opt->message_id, err));
        if (opt->type || opt->destination)
            return pr__fail(err, PR_E_INVALID, ORIGIN,
                            "give a message id or a filter of type and destination, not both");
    }
    TRY(check_filter(opt->type, opt->destination, opt->consumer, err));
    return check_audit(opt->who, opt->reason, err);
}

static bool is_registered(void *user, const char *type, uint32_t type_version)
{
    return pr_contracts_find((const pr_contracts *)user, type, type_version) != NULL;
}

pr_status pr_operations_redrive(pr_store *store, const pr_redrive_options *opt, uint64_t *ret_count,
                                pr_error *err)
{
    NEED(store, redrive);
    TRY(pr__sized_check(opt, sizeof *opt, "pr_redrive_options", ORIGIN, err));
    pr_redrive_options filled = *opt;
    TRY(check_redrive(&filled, err));
    pr_contracts *contracts = (pr_contracts *)(uintptr_t)filled.contracts;
    uint64_t count = 0;
    TRY(store->ops->redrive(store, &filled, contracts ? is_registered : NULL, contracts, &count,
                            err));
    if (count > 0 && !filled.dry_run)
        pr__observe(store->observer, &(pr_observation){.size = (uint32_t)sizeof(pr_observation),
                                                       .kind = PR_OBSERVE_REDRIVEN,
                                                       .count = count,
                                                       .message_id = filled.message_id,
                                                       .type = filled.type,
                                                       .destination = filled.destination,
                                                       .subject = filled.consumer,
                                                       .text = filled.reason});
    if (ret_count)
        *ret_count = count;
    return PR_OK;
}

/* A discarded or cancelled message is gone for good: both are told alike. */
static void observe_gone(pr_store *store, const char *message_id, const char *consumer,
                         const char *reason)
{
    pr__observe(store->observer, &(pr_observation){.size = (uint32_t)sizeof(pr_observation),
                                                   .kind = PR_OBSERVE_DISCARDED,
                                                   .count = 1,
                                                   .message_id = message_id,
                                                   .subject = consumer,
                                                   .text = reason});
}

pr_status pr_operations_discard(pr_store *store, const char *message_id, const char *consumer,
                                const char *who, const char *reason, pr_error *err)
{
    NEED(store, discard);
    TRY(check_id(message_id, err));
    if (consumer && !*consumer)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "the consumer is empty; NULL means the outbox");
    TRY(check_filter(NULL, NULL, consumer, err));
    TRY(check_audit(who, reason, err));
    TRY(store->ops->discard(store, message_id, consumer, who, reason, err));
    observe_gone(store, message_id, consumer, reason);
    return PR_OK;
}

pr_status pr_operations_cancel(pr_store *store, const char *message_id, const char *who,
                               const char *reason, pr_error *err)
{
    NEED(store, cancel);
    TRY(check_id(message_id, err));
    TRY(check_audit(who, reason, err));
    TRY(store->ops->cancel(store, message_id, who, reason, err));
    observe_gone(store, message_id, NULL, reason);
    return PR_OK;
}
