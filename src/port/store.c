/*
 * Argument checks of the store port: what reaches an adapter was checked here, once.
 */
#include "port/store.h"

#include <string.h>

#include "base/bell.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"

#define ORIGIN "store"

static pr_status check_store(const pr_store *store, pr_error *err)
{
    if (!store || !store->ops)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "the store is NULL");
    return PR_OK;
}

static pr_status missing(const pr_store *store, const char *method, pr_error *err)
{
    return pr__fail(err, PR_E_UNSUPPORTED, ORIGIN, "the %s store does not support %s",
                    store->ops->name, method);
}

/* Check the store and that its adapter has the method. */
#define NEED(store, method)                                                                        \
    do {                                                                                           \
        TRY(check_store(store, err));                                                              \
        if (!(store)->ops->method)                                                                 \
            return missing(store, #method, err);                                                   \
    } while (0)

#define NEED_ARGUMENT(condition, text)                                                             \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return pr__fail(err, PR_E_INVALID, ORIGIN, "%s", text);                                \
    } while (0)

pr_store *pr_store_free(pr_store *store)
{
    if (store) {
        char *path = store->doorbell_path;
        store->ops->free(store);
        pr__free(path);
    }
    return NULL;
}

pr_status pr_store_clone(pr_store *store, pr_store **ret_store, pr_error *err)
{
    NEED(store, clone);
    NEED_ARGUMENT(ret_store, "ret_store is NULL");
    AUTO(char) path = store->doorbell_path ? pr__strdup(store->doorbell_path) : NULL;
    if (store->doorbell_path && !path)
        return pr__fail_nomem(err, ORIGIN);
    TRY(store->ops->clone(store, ret_store, err));
    (*ret_store)->doorbell_path = TAKE(path);
    return PR_OK;
}

static pr_status check_migrate(const pr_migrate_options *opt, pr_error *err)
{
    if (!opt)
        return PR_OK;
    NEED_ARGUMENT(opt->size >= sizeof *opt, "size of pr_migrate_options is not set");
    if (opt->lanes > PR_LANES_MAX || (opt->lanes & (opt->lanes - 1)) != 0)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "lanes is %u, must be a power of two from 1 to %d", opt->lanes,
                        PR_LANES_MAX);
    NEED_ARGUMENT(opt->relay_order >= PR_ORDER_DEFAULT && opt->relay_order <= PR_ORDER_HALT,
                  "relay_order is none of HOLD, SKIP, HALT");
    return PR_OK;
}

pr_status pr_store_migrate(pr_store *store, const pr_migrate_options *opt,
                           pr_migrate_report *ret_report, pr_error *err)
{
    NEED(store, migrate);
    TRY(check_migrate(opt, err));
    pr_migrate_report unwanted = {.size = (uint32_t)sizeof unwanted};
    return store->ops->migrate(store, opt, ret_report ? ret_report : &unwanted, err);
}

pr_status pr_store_check(pr_store *store, pr_error *err)
{
    NEED(store, check);
    return store->ops->check(store, err);
}

pr_status pr_store_set_doorbell(pr_store *store, void (*ring)(void *user), void *user,
                                pr_error *err)
{
    TRY(check_store(store, err));
    store->doorbell = ring;
    store->doorbell_user = user;
    return PR_OK;
}

pr_status pr_store_set_doorbell_path(pr_store *store, const char *path, pr_error *err)
{
    TRY(check_store(store, err));
    if (path && strlen(path) >= PR__BELL_SIZE)
        return pr__fail(err, PR_E_LIMIT, ORIGIN,
                        "the doorbell's path has %zu bytes, at most %d as a socket's address: use "
                        "a shorter one",
                        strlen(path), PR__BELL_SIZE - 1);
    char *copy = path ? pr__strdup(path) : NULL;
    if (path && !copy)
        return pr__fail_nomem(err, ORIGIN);
    pr__free(store->doorbell_path);
    store->doorbell_path = copy;
    return PR_OK;
}

static bool fits(const char *text)
{
    size_t size = text ? strlen(text) : 0;
    return size <= PR_ID_SIZE_MAX && (size == 0 || pr__utf8_valid(text, size));
}

pr_status pr__inbox_key_check(const pr__inbox_key *key, const char *origin, pr_error *err)
{
    if (pr__text_empty(key->message_id) || pr__text_empty(key->consumer))
        return pr__fail(err, PR_E_INVALID, origin, "a message id and a consumer are needed");
    if (!fits(key->message_id) || !fits(key->consumer) || !fits(key->tenant))
        return pr__fail(err, PR_E_CONTENT, origin,
                        "message id, consumer and tenant must be UTF-8 of at most %d bytes",
                        PR_ID_SIZE_MAX);
    return PR_OK;
}

void pr__store_ring(const pr_store *store)
{
    if (store->doorbell)
        store->doorbell(store->doorbell_user);
    (void)pr__bell_ring(pr__bell_path(store->doorbell_path)); /* nobody listens: they poll */
}

pr_status pr__store_unit_begin(pr_store *store, pr_unit **ret_unit, pr_error *err)
{
    NEED(store, unit_begin);
    NEED_ARGUMENT(ret_unit, "ret_unit is NULL");
    return store->ops->unit_begin(store, ret_unit, err);
}

pr_status pr__store_reader_open(pr_store *store, const pr__reader_spec *spec, int64_t *ret_reader,
                                pr_error *err)
{
    NEED(store, reader_open);
    NEED_ARGUMENT(spec && ret_reader, "spec or ret_reader is NULL");
    NEED_ARGUMENT(!pr__text_empty(spec->name), "a reader needs a name");
    if (strlen(spec->name) > PR_ID_SIZE_MAX)
        return pr__fail(err, PR_E_LIMIT, ORIGIN, "the reader's name has %zu bytes, at most %d",
                        strlen(spec->name), PR_ID_SIZE_MAX);
    NEED_ARGUMENT(spec->destination_count > 0, "a reader needs a destination");
    NEED_ARGUMENT(!spec->temporary || spec->expiry_ms > 0, "a temporary reader needs an expiry");
    return store->ops->reader_open(store, spec, ret_reader, err);
}

pr_status pr__store_reader_keep(pr_store *store, int64_t reader, pr_error *err)
{
    NEED(store, reader_keep);
    return store->ops->reader_keep(store, reader, err);
}

pr_status pr__store_reader_drop(pr_store *store, int64_t reader, pr_error *err)
{
    NEED(store, reader_drop);
    NEED_ARGUMENT(reader > PR_READER_RELAY, "the relay's own reader is never dropped");
    return store->ops->reader_drop(store, reader, err);
}

pr_status pr__store_reader_set_order(pr_store *store, int64_t reader, pr_order order, pr_error *err)
{
    NEED(store, reader_set_order);
    NEED_ARGUMENT(order >= PR_ORDER_HOLD && order <= PR_ORDER_HALT,
                  "order is none of HOLD, SKIP, HALT");
    return store->ops->reader_set_order(store, reader, order, err);
}

pr_status pr__store_reader_find(pr_store *store, const char *name, int64_t *ret_reader,
                                pr_error *err)
{
    NEED(store, reader_find);
    NEED_ARGUMENT(name && ret_reader, "name or ret_reader is NULL");
    return store->ops->reader_find(store, name, ret_reader, err);
}

pr_status pr__store_reader_exists(pr_store *store, const char *destination, bool *ret_exists,
                                  pr_error *err)
{
    NEED(store, reader_exists);
    NEED_ARGUMENT(destination && ret_exists, "destination or ret_exists is NULL");
    return store->ops->reader_exists(store, destination, ret_exists, err);
}

static pr_status check_claim(const pr__claim_options *opt, pr_error *err)
{
    NEED_ARGUMENT(opt, "claim options are NULL");
    if (opt->reader < PR_READER_RELAY)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "reader %lld is none", (long long)opt->reader);
    if (opt->lease_ms <= 0)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "lease_ms is %lld, must be > 0",
                        (long long)opt->lease_ms);
    NEED_ARGUMENT(opt->batch_max > 0, "batch_max is 0, must be > 0");
    NEED_ARGUMENT(opt->bytes_max > 0, "bytes_max is 0, must be > 0");
    return PR_OK;
}

pr_status pr__store_claim(pr_store *store, const pr__claim_options *opt, pr__batch **ret_batch,
                          pr_error *err)
{
    NEED(store, claim);
    TRY(check_claim(opt, err));
    NEED_ARGUMENT(ret_batch, "ret_batch is NULL");
    return store->ops->claim(store, opt, ret_batch, err);
}

pr_status pr__store_claim_parked(pr_store *store, const pr__claim_options *opt,
                                 pr__batch **ret_batch, pr_error *err)
{
    NEED(store, claim_parked);
    TRY(check_claim(opt, err));
    NEED_ARGUMENT(ret_batch, "ret_batch is NULL");
    return store->ops->claim_parked(store, opt, ret_batch, err);
}

pr_status pr__store_settle(pr_store *store, pr__batch *batch, const pr__claim_options *next,
                           pr__settle_report *ret_report, pr__batch **ret_next, pr_error *err)
{
    NEED(store, settle);
    NEED_ARGUMENT(batch && ret_report, "batch or ret_report is NULL");
    NEED_ARGUMENT(!next || ret_next, "a claim needs ret_next");
    NEED_ARGUMENT(!next || batch->slices, "parked rows are settled without a claim");
    if (next)
        TRY(check_claim(next, err));
    return store->ops->settle(store, batch, next, ret_report, ret_next, err);
}

pr_status pr__store_renew(pr_store *store, pr__batch *batch, int64_t lease_ms, pr_error *err)
{
    NEED(store, renew);
    NEED_ARGUMENT(batch, "batch is NULL");
    NEED_ARGUMENT(lease_ms > 0, "lease_ms must be > 0");
    return store->ops->renew(store, batch, lease_ms, err);
}

pr_status pr__store_promote(pr_store *store, uint32_t max, uint32_t *ret_count,
                            int64_t *ret_next_ms, pr_error *err)
{
    NEED(store, promote);
    NEED_ARGUMENT(max > 0 && ret_count && ret_next_ms, "max is 0, or a result is NULL");
    return store->ops->promote(store, max, ret_count, ret_next_ms, err);
}

pr_status pr__store_parked_due(pr_store *store, int64_t reader, int64_t *ret_next_ms, pr_error *err)
{
    NEED(store, parked_due);
    NEED_ARGUMENT(ret_next_ms, "ret_next_ms is NULL");
    return store->ops->parked_due(store, reader, ret_next_ms, err);
}

pr_status pr__store_parked_count(pr_store *store, int64_t reader, uint32_t lane,
                                 uint32_t *ret_count, pr_error *err)
{
    NEED(store, parked_count);
    NEED_ARGUMENT(ret_count, "ret_count is NULL");
    return store->ops->parked_count(store, reader, lane, ret_count, err);
}

pr_status pr__store_changed(pr_store *store, bool *ret_changed, pr_error *err)
{
    NEED(store, changed);
    NEED_ARGUMENT(ret_changed, "ret_changed is NULL");
    return store->ops->changed(store, ret_changed, err);
}

pr_status pr__store_maintain(pr_store *store, pr_error *err)
{
    NEED(store, maintain);
    return store->ops->maintain(store, err);
}

pr_status pr__store_backlog(pr_store *store, int64_t reader, int64_t limit_ms,
                            pr__backlog *ret_backlog, pr_error *err)
{
    NEED(store, backlog);
    NEED_ARGUMENT(limit_ms > 0 && ret_backlog, "limit_ms is <= 0, or ret_backlog is NULL");
    return store->ops->backlog(store, reader, limit_ms, ret_backlog, err);
}

pr_status pr__store_inbox_claim(pr_store *store, const pr__inbox_claim_options *opt,
                                pr__batch **ret_batch, pr_error *err)
{
    NEED(store, inbox_claim);
    NEED_ARGUMENT(opt && ret_batch, "opt or ret_batch is NULL");
    NEED_ARGUMENT(!pr__text_empty(opt->consumer), "a consumer is needed");
    NEED_ARGUMENT(opt->lease_ms > 0 && opt->batch_max > 0, "lease_ms and batch_max must be > 0");
    return store->ops->inbox_claim(store, opt, ret_batch, err);
}

pr_status pr__store_inbox_due(pr_store *store, const char *consumer, pr_order order,
                              int64_t *ret_next_ms, pr_error *err)
{
    NEED(store, inbox_due);
    NEED_ARGUMENT(!pr__text_empty(consumer) && ret_next_ms, "consumer or ret_next_ms is missing");
    return store->ops->inbox_due(store, consumer, order, ret_next_ms, err);
}

pr_status pr__store_inbox_release(pr_store *store, const char *consumer, pr__batch *batch,
                                  pr_error *err)
{
    NEED(store, inbox_release);
    NEED_ARGUMENT(!pr__text_empty(consumer) && batch, "consumer or batch is missing");
    return store->ops->inbox_release(store, consumer, batch, err);
}

pr_status pr__store_inbox_renew(pr_store *store, const char *consumer, pr__batch *batch,
                                int64_t lease_ms, pr_error *err)
{
    NEED(store, inbox_renew);
    NEED_ARGUMENT(!pr__text_empty(consumer) && batch, "consumer or batch is missing");
    NEED_ARGUMENT(lease_ms > 0, "lease_ms must be > 0");
    return store->ops->inbox_renew(store, consumer, batch, lease_ms, err);
}

pr_status pr__store_blocker(pr_store *store, const pr_record *record, char *ret_message_id,
                            size_t ret_size, pr_error *err)
{
    NEED(store, blocker);
    NEED_ARGUMENT(record && ret_message_id && ret_size > PR_ID_SIZE_MAX,
                  "record is NULL, or the result is too small");
    return store->ops->blocker(store, record, ret_message_id, ret_size, err);
}

pr_status pr__store_now(pr_store *store, int64_t *ret_now_us, pr_error *err)
{
    NEED(store, now);
    NEED_ARGUMENT(ret_now_us, "ret_now_us is NULL");
    return store->ops->now(store, ret_now_us, err);
}

pr_status pr__store_place(pr_store *store, const pr_record *record, pr__place *ret_place,
                          pr_error *err)
{
    NEED(store, place);
    NEED_ARGUMENT(record && ret_place, "record or ret_place is NULL");
    NEED_ARGUMENT(record->box == PR_BOX_OUTBOX, "only a message of the log has a place in it");
    return store->ops->place(store, record, ret_place, err);
}

pr_status pr__store_saga_list(pr_store *store, const pr_saga_list_options *opt,
                              pr_saga_list_page *ret_page, pr_saga_record_callback callback,
                              void *user, pr_error *err)
{
    NEED(store, saga_list);
    NEED_ARGUMENT(opt && ret_page && callback, "opt, ret_page or callback is NULL");
    return store->ops->saga_list(store, opt, ret_page, callback, user, err);
}

pr_status pr__store_saga_show(pr_store *store, const pr__saga_key *key,
                              pr_saga_record_callback callback, void *user, pr_error *err)
{
    NEED(store, saga_show);
    TRY(pr__saga_key_check(key, err));
    NEED_ARGUMENT(callback, "callback is NULL");
    return store->ops->saga_show(store, key, callback, user, err);
}

pr_status pr__store_saga_release(pr_store *store, const pr__saga_key *key, bool force,
                                 const char *who, const char *reason, pr_error *err)
{
    NEED(store, saga_release);
    TRY(pr__saga_key_check(key, err));
    NEED_ARGUMENT(!pr__text_empty(who) && !pr__text_empty(reason),
                  "who releases it and why are needed for the audit");
    return store->ops->saga_release(store, key, force, who, reason, err);
}

pr_status pr__store_saga_sweep(pr_store *store, int64_t retention_ms, uint32_t max,
                               uint64_t *ret_count, pr_error *err)
{
    NEED(store, saga_sweep);
    NEED_ARGUMENT(retention_ms > 0 && max > 0 && ret_count,
                  "retention_ms or max is not > 0, or ret_count is NULL");
    return store->ops->saga_sweep(store, retention_ms, max, ret_count, err);
}

void pr__unit_init(pr_unit *unit, const pr__unit_ops *ops, pr_store *store, bool joined)
{
    *unit = (pr_unit){.ops = ops, .store = store, .joined = joined};
}
