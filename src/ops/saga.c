/*
 * Sagas for operators: what pr_operations_saga… promises around the port.
 *
 * Owns: the checks of arguments, the defaults, and what a damaged row is said to be.
 * Invariant: no lease is cleared without a reason and a name; one damaged row costs one row.
 * Must not know: tables or statements; those are the store's.
 */
#include <string.h>

#include <postroom/limits.h>
#include <postroom/saga_operations.h>

#include "base/error.h"
#include "base/sized.h"
#include "base/text.h"
#include "base/uuid.h"
#include "core/json.h"
#include "port/store.h"

#define ORIGIN        "operations"
#define LIMIT_DEFAULT 100
#define LIMIT_MAX     1000
#define SWEEP_MAX     10000

/* The callback of a caller, behind the look for damage. */
typedef struct inspector {
    pr_saga_record_callback callback;
    void *user;
} inspector;

static bool is_array(const char *text)
{
    AUTO(json_t) value = NULL;
    return text && pr__json_load(text, strlen(text), ORIGIN, "it", &value, NULL) == PR_OK &&
           json_is_array(value);
}

static bool inspect(void *user, const pr_saga_record *record)
{
    const inspector *self = user;
    pr_saga_record copy = *record;
    if (!is_array(record->timeouts))
        copy.unreadable = "its open timeouts are no JSON array";
    else if (!is_array(record->last_messages))
        copy.unreadable = "its last messages are no JSON array";
    else if (!pr__uuid_valid(record->instance_id))
        copy.unreadable = "its instance id is no UUID";
    if (copy.unreadable && !is_array(record->timeouts))
        copy.timeouts = "[]";
    if (copy.unreadable && !is_array(record->last_messages))
        copy.last_messages = "[]";
    return self->callback(self->user, &copy);
}

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

static pr_status check_list(pr_saga_list_options *opt, pr_error *err)
{
    if (opt->limit > LIMIT_MAX)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "limit is %u, must be from 1 to %d; repeat it",
                        opt->limit, LIMIT_MAX);
    if (opt->limit == 0)
        opt->limit = LIMIT_DEFAULT;
    if (opt->phase != 0 && opt->phase != PR_SAGA_RUNNING && opt->phase != PR_SAGA_COMPLETED)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "phase %d is none", (int)opt->phase);
    if (opt->leased > 1)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "leased is %u, must be 0 or 1", opt->leased);
    if (opt->after && !pr__uuid_valid(opt->after))
        return pr__fail(err, PR_E_INVALID, ORIGIN, "'%.60s' is no cursor of this list", opt->after);
    TRY(check_text(opt->saga_type, "the saga's type", PR_ID_SIZE_MAX, err));
    return check_text(opt->tenant, "the tenant", PR_ID_SIZE_MAX, err);
}

pr_status pr_operations_sagas(pr_store *store, const pr_saga_list_options *opt,
                              pr_saga_list_page *ret_page, pr_saga_record_callback callback,
                              void *user, pr_error *err)
{
    TRY(pr__sized_check(opt, sizeof *opt, "pr_saga_list_options", ORIGIN, err));
    if (ret_page)
        TRY(pr__sized_check(ret_page, sizeof ret_page->size, "pr_saga_list_page", ORIGIN, err));
    if (!callback)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "callback is NULL");
    pr_saga_list_options checked = *opt;
    pr_saga_list_page page = {.size = (uint32_t)sizeof page};
    inspector self = {.callback = callback, .user = user};
    TRY(check_list(&checked, err));
    TRY(pr__store_saga_list(store, &checked, &page, inspect, &self, err));
    if (ret_page) {
        page.size = ret_page->size;
        *ret_page = page;
    }
    return PR_OK;
}

pr_status pr_operations_saga_show(pr_store *store, const char *tenant, const char *saga_type,
                                  const char *key, pr_saga_record_callback callback, void *user,
                                  pr_error *err)
{
    if (!callback)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "callback is NULL");
    pr__saga_key whole = {.tenant = tenant, .saga_type = saga_type, .correlation_key = key};
    inspector self = {.callback = callback, .user = user};
    return pr__store_saga_show(store, &whole, inspect, &self, err);
}

pr_status pr_operations_saga_release(pr_store *store, const pr_saga_release_options *opt,
                                     pr_error *err)
{
    TRY(pr__sized_check(opt, sizeof *opt, "pr_saga_release_options", ORIGIN, err));
    if (pr__text_empty(opt->reason))
        return pr__fail(err, PR_E_INVALID, ORIGIN, "a reason is needed; it goes into the audit");
    if (pr__text_empty(opt->who))
        return pr__fail(err, PR_E_INVALID, ORIGIN, "who does it is needed; it goes into the audit");
    TRY(check_text(opt->who, "who", PR_ID_SIZE_MAX, err));
    TRY(check_text(opt->reason, "the reason", PR_ERROR_TEXT_SIZE_MAX, err));
    if (opt->force > 1)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "force is %u, must be 0 or 1", opt->force);
    pr__saga_key key = {
        .tenant = opt->tenant, .saga_type = opt->saga_type, .correlation_key = opt->key};
    return pr__store_saga_release(store, &key, opt->force != 0, opt->who, opt->reason, err);
}

pr_status pr_operations_saga_sweep(pr_store *store, int64_t retention_ms, uint32_t max,
                                   uint64_t *ret_count, pr_error *err)
{
    uint64_t count = 0;
    if (retention_ms <= 0)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "retention_ms is %lld, must be > 0",
                        (long long)retention_ms);
    if (max == 0 || max > SWEEP_MAX)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "max is %u, must be from 1 to %d; repeat it",
                        max, SWEEP_MAX);
    TRY(pr__store_saga_sweep(store, retention_ms, max, &count, err));
    if (ret_count)
        *ret_count = count;
    return PR_OK;
}
