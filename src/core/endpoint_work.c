/*
 * What becomes of one message: of its handling, of its failure.
 *
 * Keeps: a message is for the transport done (ACK) only after its mark or a durable copy was
 * committed; what is busy, or met a failing database, is given back uncharged; a failing handler
 * costs its own message an attempt and no other anything.
 * Must not know: how deliveries arrive and in which order messages are tried.
 */
#include <string.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"
#include "base/text.h"
#include "core/endpoint.h"
#include "core/message.h"
#include "core/scope.h"
#include "core/unit.h"

#define ORIGIN          "endpoint"
#define BUSY_STEP_MS    25   /* between two looks at what is busy */
#define BROKEN_LEASE_MS 1000 /* until a message whose connection went is tried again */

DEFINE_AUTO(pr_unit, pr_unit_free);
DEFINE_AUTO(pr_scope, pr__scope_free);
DEFINE_AUTO(pr__work, pr__work_free);

/* How a try failed, and what that means for the message. */
typedef struct work_failure {
    bool permanent;
    bool uncharged; /* put off, not failed */
    bool delay_set;
    int64_t delay_ms;
    char reason[PR_REASON_SIZE];
} work_failure;

/* ---- making one ---- */

void *pr__work_free(pr__work *work)
{
    if (work)
        pr_message_free(work->copy);
    return pr__free(work);
}

static void refuse(pr__work *work, const char *why)
{
    work->refused = true;
    pr__one_line(work->refusal, sizeof work->refusal, why, strlen(why));
    pr__dedup_make_keepable(&work->message);
}

static void bind_inbox(const pr_endpoint *endpoint, pr__work *work, uint32_t attempts)
{
    work->message.id = work->id;
    work->inbox = (pr__inbox_work){
        .message = &work->message,
        .key = {.tenant = pr__message_tenant(&work->message),
                .consumer = endpoint->opt.id,
                .message_id = work->id},
        .token = work->token,
        .attempts = attempts,
        .order = endpoint->opt.order,
    };
}

static void hash_content(pr__work *work, uint8_t ret_hash[PR_CONTENT_HASH_SIZE])
{
    const pr_message *message = &work->message;
    size_t size = message->body ? (size_t)message->body_size_bytes : 0;
    pr__content_hash(message->type ? message->type : "", message->type_version, message->body, size,
                     ret_hash);
}

pr_status pr__work_from_delivery(const pr_endpoint *endpoint, const pr_delivery *delivery,
                                 pr__work **ret_work, pr_error *err)
{
    AUTO(pr__work) work = pr__alloc(sizeof *work);
    if (!work)
        return pr__fail_nomem(err, ORIGIN);
    work->delivery = *delivery;
    /* another thread will read it, while this one may lose the delivery */
    work->message = delivery->message;
    work->message.size = (uint32_t)sizeof work->message;
    if (endpoint->worker_count > 0) {
        pr_message readable = work->message;
        readable.body_size_bytes = readable.body ? readable.body_size_bytes : 0;
        TRY(pr_message_copy(&readable, &work->copy, err));
        readable = *work->copy;
        readable.body_size_bytes = work->message.body_size_bytes; /* what is wrong stays wrong */
        work->message = readable;
    }
    uint8_t hash[PR_CONTENT_HASH_SIZE];
    hash_content(work, hash);
    pr_error local = PR_ERROR_INIT;
    pr_status status = pr__dedup_id(&work->message, work->id, &local);
    if (status == PR_OK) {
        work->message.id = work->id;
        status = pr__message_check_received(&work->message, endpoint->store->body_size_max, &local);
    } else {
        pr__dedup_stand_in(hash, work->id);
    }
    if (status == PR_E_NOMEM)
        return pr__fail_nomem(err, ORIGIN);
    if (status != PR_OK)
        refuse(work, local.message);
    bind_inbox(endpoint, work, 0);
    const char *original_id = work->copy ? work->copy->id : delivery->message.id;
    if (original_id && pr__utf8_valid(original_id, strlen(original_id)))
        work->inbox.original_id = original_id;
    memcpy(work->inbox.hash, hash, sizeof hash);
    *ret_work = TAKE(work);
    return PR_OK;
}

pr_status pr__work_from_row(const pr_endpoint *endpoint, const pr__item *item, pr__work **ret_work,
                            pr_error *err)
{
    AUTO(pr__work) work = pr__alloc(sizeof *work);
    if (!work)
        return pr__fail_nomem(err, ORIGIN);
    work->message = item->message;
    pr__format(work->id, sizeof work->id, "%s", item->message.id);
    memcpy(work->token, item->token, sizeof work->token);
    uint8_t hash[PR_CONTENT_HASH_SIZE];
    hash_content(work, hash);
    if (item->unreadable)
        refuse(work, item->unreadable);
    bind_inbox(endpoint, work, item->attempts);
    memcpy(work->inbox.hash, hash, sizeof hash);
    work->item = item;
    *ret_work = TAKE(work);
    return PR_OK;
}

/* ---- outcomes ---- */

/* The store is busy, or another is at work on the same message: wait, then give it back. Never
   done. */
static pr__verdict busy(pr_endpoint *endpoint, pr__work *work, const pr_error *why)
{
    int64_t now_us = pr__endpoint_now_us(endpoint);
    if (work->busy_since_us == 0) {
        work->busy_since_us = now_us;
        PR_ENDPOINT_COUNT(endpoint, busy);
        pr__endpoint_observe(endpoint, PR_OBSERVE_BUSY, work, PR_E_BUSY, why->message);
    }
    if (now_us - work->busy_since_us >= endpoint->opt.busy_wait_ms * 1000)
        return PR__WORK_GIVE_BACK;
    work->ready_at_us = now_us + BUSY_STEP_MS * 1000;
    return PR__WORK_WAIT;
}

static pr_status trouble(pr_endpoint *endpoint, pr__work *work, const pr_error *local,
                         pr__verdict *ret_verdict, pr_error *err)
{
    if (local->status == PR_E_BUSY) {
        *ret_verdict = busy(endpoint, work, local);
        return PR_OK;
    }
    *ret_verdict = PR__WORK_TROUBLE;
    pr__error_copy(err, local);
    return local->status;
}

static pr_status duplicate(pr_endpoint *endpoint, const pr__work *work, pr__verdict *ret_verdict)
{
    PR_ENDPOINT_COUNT(endpoint, duplicate);
    pr__endpoint_observe(endpoint, PR_OBSERVE_DUPLICATE, work, PR_OK, NULL);
    *ret_verdict = PR__WORK_ACK;
    return PR_OK;
}

static pr_status lost(pr_endpoint *endpoint, const pr__work *work, pr__verdict *ret_verdict)
{
    PR_ENDPOINT_COUNT(endpoint, fenced);
    pr__endpoint_observe(endpoint, PR_OBSERVE_FENCED, work, PR_E_FENCED,
                         "its parked row was taken over");
    *ret_verdict = PR__WORK_GIVE_BACK;
    return PR_OK;
}

static pr_status conflict(pr_endpoint *endpoint, pr__work *work, pr__verdict *ret_verdict,
                          pr_error *err)
{
    pr_error local = PR_ERROR_INIT;
    pr_status status = pr__inbox_park_conflict(work->store, &work->inbox, &local);
    if (status != PR_OK)
        return trouble(endpoint, work, &local, ret_verdict, err);
    PR_ENDPOINT_COUNT(endpoint, conflict);
    pr__endpoint_observe(endpoint, PR_OBSERVE_CONFLICT, work, PR_E_CONFLICT,
                         "its id stands already with other content");
    *ret_verdict = PR__WORK_ACK;
    return PR_OK;
}

/* What the inbox says of a message that is not to run, or not any more. */
static pr_status follow(pr_endpoint *endpoint, pr__work *work, pr__inbox_entry entry,
                        pr__verdict *ret_verdict, pr_error *err)
{
    switch (entry) {
    case PR__INBOX_DONE:
    case PR__INBOX_COPY:
        return duplicate(endpoint, work, ret_verdict);
    case PR__INBOX_HELD:
        PR_ENDPOINT_COUNT(endpoint, held);
        pr__endpoint_observe(endpoint, PR_OBSERVE_HANDLER_HELD, work, PR_OK,
                             "an older one of its key is parked");
        *ret_verdict = PR__WORK_ACK;
        return PR_OK;
    case PR__INBOX_LOST:
        return lost(endpoint, work, ret_verdict);
    case PR__INBOX_CONFLICT:
        return conflict(endpoint, work, ret_verdict, err);
    case PR__INBOX_PARKED:
    case PR__INBOX_HANDLED:
    case PR__INBOX_RUN:
    case PR__INBOX_MOVED:
        *ret_verdict = PR__WORK_ACK;
        return PR_OK;
    }
    return PR_OK;
}

/* ---- failing ---- */

static uint32_t random32(const pr_endpoint *endpoint)
{
    uint32_t value;
    endpoint->opt.random->fill(endpoint->opt.random->user, &value, sizeof value);
    return value;
}

static pr__inbox_park park_after(const pr_endpoint *endpoint, const pr__work *work,
                                 const work_failure *failure)
{
    uint32_t attempts = work->inbox.attempts + (failure->uncharged ? 0 : 1);
    bool exhausted = pr__backoff_exhausted(attempts, endpoint->opt.retry_max);
    bool dead = !failure->uncharged && (failure->permanent || exhausted);
    int64_t delay_ms = failure->delay_set
                           ? failure->delay_ms
                           : pr__backoff_ms(&endpoint->backoff, attempts, random32(endpoint));
    return (pr__inbox_park){.state = dead ? PR_STATE_DEAD : PR_STATE_FAILED,
                            .attempts = attempts,
                            .retry_delay_ms = dead ? 0 : delay_ms,
                            .error = failure->reason};
}

static void tell_parked(pr_endpoint *endpoint, const pr__work *work, const pr__inbox_park *park)
{
    if (park->state == PR_STATE_DEAD) {
        PR_ENDPOINT_COUNT(endpoint, dead);
        pr__endpoint_observe(endpoint, PR_OBSERVE_HANDLER_DEAD, work, PR_OK, park->error);
        return;
    }
    if (park->attempts > work->inbox.attempts) {
        PR_ENDPOINT_COUNT(endpoint, failed);
        pr__endpoint_observe(endpoint, PR_OBSERVE_HANDLER_FAILED, work, PR_OK, park->error);
    } else {
        PR_ENDPOINT_COUNT(endpoint, deferred);
        pr__endpoint_observe(endpoint, PR_OBSERVE_HANDLER_DEFERRED, work, PR_OK, park->error);
    }
    int64_t due_us = pr__endpoint_now_us(endpoint) + park->retry_delay_ms * 1000;
    if (due_us < atomic_load(&endpoint->retry_look_us)) /* at worst a look comes a little later */
        atomic_store(&endpoint->retry_look_us, due_us);
}

/* The message could not be parked either: the first failure is the one to tell, then that. */
static pr_status not_parked(pr_endpoint *endpoint, pr__work *work, const work_failure *failure,
                            const pr_error *local, pr__verdict *ret_verdict, pr_error *err)
{
    pr__endpoint_observe(endpoint, PR_OBSERVE_HANDLER_FAILED, work, local->status, failure->reason);
    bool hopeless = local->status == PR_E_INVALID || local->status == PR_E_LIMIT ||
                    local->status == PR_E_CONTENT;
    pr_error told = *local;
    pr__error_context(&told, "'%.400s'; and it could not be parked", failure->reason);
    if (hopeless) {
        /* the store will never take it: trying again would stop everything behind it */
        *ret_verdict = PR__WORK_REJECT;
        pr__error_copy(err, &told);
        return told.status;
    }
    return trouble(endpoint, work, &told, ret_verdict, err);
}

/* Record a failure in a transaction of its own. */
static pr_status fail_work(pr_endpoint *endpoint, pr__work *work, const work_failure *failure,
                           pr__verdict *ret_verdict, pr_error *err)
{
    pr__inbox_park park = park_after(endpoint, work, failure);
    pr__inbox_entry entry;
    pr_error local = PR_ERROR_INIT;
    pr_status status = pr__inbox_park_work(work->store, &work->inbox, &park, &entry, &local);
    if (status != PR_OK)
        return not_parked(endpoint, work, failure, &local, ret_verdict, err);
    if (entry != PR__INBOX_PARKED) {
        pr__endpoint_observe(endpoint, PR_OBSERVE_HANDLER_FAILED, work, PR_E_STATE,
                             failure->reason);
        return follow(endpoint, work, entry, ret_verdict, err);
    }
    tell_parked(endpoint, work, &park);
    *ret_verdict = PR__WORK_ACK;
    return PR_OK;
}

static void set_reason(work_failure *failure, const char *reason)
{
    pr__one_line(failure->reason, sizeof failure->reason, reason, strlen(reason));
}

/* ---- running ---- */

void pr__work_handled(pr_endpoint *endpoint, const pr__work *work, int64_t began_us)
{
    PR_ENDPOINT_COUNT(endpoint, handled);
    pr_observation observation = {.size = (uint32_t)sizeof observation,
                                  .kind = PR_OBSERVE_HANDLED,
                                  .count = 1,
                                  .duration_us = pr__endpoint_now_us(endpoint) - began_us,
                                  .message_id = work->message.id,
                                  .type = work->message.type,
                                  .subject = endpoint->opt.id};
    pr__observe(endpoint->opt.observer, &observation);
}

static pr_status handled(pr_endpoint *endpoint, const pr__work *work, int64_t began_us,
                         pr__verdict *ret_verdict)
{
    pr__work_handled(endpoint, work, began_us);
    *ret_verdict = PR__WORK_ACK;
    return PR_OK;
}

/* A middleware answered OK without the rest: nothing is to be done for this message, ever. */
static pr_status mark_only(pr_endpoint *endpoint, pr__work *work, int64_t began_us,
                           pr__verdict *ret_verdict, pr_error *err)
{
    AUTO(pr_unit) unit = NULL;
    pr__inbox_entry entry;
    pr_outcome outcome;
    pr_error local = PR_ERROR_INIT;
    if (pr__inbox_enter(work->store, &work->inbox, &unit, &entry, &local) != PR_OK)
        return trouble(endpoint, work, &local, ret_verdict, err);
    if (entry != PR__INBOX_RUN)
        return follow(endpoint, work, entry, ret_verdict, err);
    if (pr__inbox_complete(unit, &work->inbox, &entry, &outcome, &local) != PR_OK)
        return trouble(endpoint, work, &local, ret_verdict, err);
    if (entry != PR__INBOX_HANDLED)
        return follow(endpoint, work, entry, ret_verdict, err);
    return handled(endpoint, work, began_us, ret_verdict);
}

/* It was told to give up, because the endpoint stops: nobody's fault. What was delivered goes back
   to the transport; what has a row goes back into it. */
static pr_status gave_up(pr_endpoint *endpoint, pr__work *work, pr__verdict *ret_verdict,
                         pr_error *err)
{
    if (work->token[0] == '\0' || work->item) {
        *ret_verdict = PR__WORK_GIVE_BACK;
        return PR_OK;
    }
    work_failure failure = {.uncharged = true, .delay_set = true};
    set_reason(&failure, "the endpoint was stopped while it was handled");
    return fail_work(endpoint, work, &failure, ret_verdict, err);
}

/* Not handled, by the word of the handler or of a middleware. */
static pr_status not_handled(pr_endpoint *endpoint, pr__work *work, const pr_scope *scope,
                             pr_handled answer, pr__verdict *ret_verdict, pr_error *err)
{
    bool told = atomic_load(&scope->cancelled_told);
    if (told)
        PR_ENDPOINT_COUNT(endpoint, cancelled);
    if (told && answer == PR_HANDLED_RETRY && atomic_load(&endpoint->cancelling))
        return gave_up(endpoint, work, ret_verdict, err);
    work_failure failure = {.permanent = answer == PR_HANDLED_PERMANENT,
                            .uncharged = answer == PR_HANDLED_DEFER,
                            .delay_set = scope->delay_set,
                            .delay_ms = scope->retry_delay_ms};
    if (answer < PR_HANDLED_OK || answer >= PR_HANDLED_STOPPED)
        pr__format(failure.reason, sizeof failure.reason,
                   "the handler answered %d, which is no pr_handled", (int)answer);
    else if (scope->reason[0] != '\0')
        memcpy(failure.reason, scope->reason, sizeof failure.reason);
    else if (told && scope->deadline_us > 0)
        pr__format(failure.reason, sizeof failure.reason,
                   "the handler gave up: it took longer than processing_timeout_ms, %lld",
                   (long long)endpoint->opt.processing_timeout_ms);
    else
        set_reason(&failure, "the handler failed and did not say why");
    return fail_work(endpoint, work, &failure, ret_verdict, err);
}

/* A message that was delivered before may have killed its process: from now on it is counted. */
static pr_status take_row(pr_endpoint *endpoint, pr__work *work, int64_t lease_ms,
                          pr__inbox_entry *ret_entry, pr_error *err)
{
    char token[PR_UUID_TEXT_SIZE];
    pr__endpoint_token(endpoint, token);
    pr__inbox_park park = {.state = PR_STATE_PUBLISHING,
                           .attempts = work->inbox.attempts,
                           .token = token,
                           .owner = endpoint->opt.owner,
                           .lease_ms = lease_ms};
    TRY(pr__inbox_park_work(work->store, &work->inbox, &park, ret_entry, err));
    if (*ret_entry == PR__INBOX_PARKED)
        memcpy(work->token, token, sizeof token);
    return PR_OK;
}

/* The connection went while the message was handled. A handler may have broken it, and would break
   it again: so the message gets a processing row, whose takeovers are counted, and nobody waits
   for it. Where no row can be written it is the database that is away. */
static pr_status leave_row(pr_endpoint *endpoint, pr__work *work, const pr_error *why,
                           pr__verdict *ret_verdict, pr_error *err)
{
    pr__inbox_entry entry = PR__INBOX_PARKED;
    pr_error local = PR_ERROR_INIT;
    int64_t lease_ms =
        endpoint->opt.lease_ms < BROKEN_LEASE_MS ? endpoint->opt.lease_ms : BROKEN_LEASE_MS;
    if (work->token[0] == '\0' && take_row(endpoint, work, lease_ms, &entry, &local) != PR_OK)
        return trouble(endpoint, work, &local, ret_verdict, err);
    pr__endpoint_observe(endpoint, PR_OBSERVE_HANDLER_FAILED, work, why->status, why->message);
    return follow(endpoint, work, entry, ret_verdict, err);
}

/* The database, or memory, could not do it. The message is not charged. */
static pr_status hindered(pr_endpoint *endpoint, pr__work *work, pr_scope *scope,
                          pr__verdict *ret_verdict, pr_error *err)
{
    pr_error *why = &scope->trouble;
    bool again = why->status == PR_E_BUSY || why->retry == PR_RETRY_SAME;
    bool broken = why->retry == PR_RETRY_RECONNECT || why->retry == PR_RETRY_UNKNOWN;
    if (broken && scope->in_handler && endpoint->chain.has_inbox)
        return leave_row(endpoint, work, why, ret_verdict, err);
    if (!again)
        return trouble(endpoint, work, why, ret_verdict, err);
    *ret_verdict = busy(endpoint, work, why);
    /* a slow handler is not run again at once: its row has waited for the store already */
    bool leased = endpoint->opt.inbox == PR_INBOX_LEASED && work->token[0] != '\0';
    if (!leased)
        return PR_OK;
    if (work->item) {
        *ret_verdict = PR__WORK_GIVE_BACK;
        return PR_OK;
    }
    work_failure failure = {.uncharged = true};
    set_reason(&failure, why->message);
    return fail_work(endpoint, work, &failure, ret_verdict, err);
}

pr_scope *pr__work_scope(pr_endpoint *endpoint, pr__work *work, int64_t began_us)
{
    pr_scope *scope = pr__alloc(sizeof *scope);
    if (!scope)
        return NULL;
    scope->endpoint = endpoint;
    scope->store = work->store;
    scope->inbox = &work->inbox;
    scope->message = &work->message;
    scope->attempts = work->inbox.attempts;
    scope->trouble.size = (uint32_t)sizeof scope->trouble;
    if (endpoint->opt.processing_timeout_ms > 0)
        scope->deadline_us = began_us + endpoint->opt.processing_timeout_ms * 1000;
    return scope;
}

static pr_status run(pr_endpoint *endpoint, pr__work *work, pr__verdict *ret_verdict, pr_error *err)
{
    int64_t began_us = pr__endpoint_now_us(endpoint);
    AUTO(pr_scope) scope = pr__work_scope(endpoint, work, began_us);
    *ret_verdict = PR__WORK_TROUBLE;
    if (!scope)
        return pr__fail_nomem(err, ORIGIN);
    pr_next first = {.chain = &endpoint->chain};
    pr_handled answer = pr_next_invoke(&first, scope);
    if (scope->committed) {
        if (answer != PR_HANDLED_OK)
            pr__endpoint_observe(endpoint, PR_OBSERVE_HANDLER_FAILED, work, PR_E_STATE,
                                 "a middleware outside of the work unit refused it after its "
                                 "commit: it stays done");
        return handled(endpoint, work, began_us, ret_verdict);
    }
    if (scope->trouble.status != PR_OK)
        return hindered(endpoint, work, scope, ret_verdict, err);
    if (scope->entry != 0)
        return follow(endpoint, work, scope->entry, ret_verdict, err);
    if (answer != PR_HANDLED_OK)
        return not_handled(endpoint, work, scope, answer, ret_verdict, err);
    return endpoint->chain.has_inbox ? mark_only(endpoint, work, began_us, ret_verdict, err)
                                     : handled(endpoint, work, began_us, ret_verdict);
}

pr_status pr__work_try(pr_endpoint *endpoint, pr_store *store, pr__work *work,
                       pr__verdict *ret_verdict, pr_error *err)
{
    bool poison = work->item && work->item->poison;
    work->store = store;
    if (work->refused || poison) {
        work_failure failure = {.permanent = work->refused};
        set_reason(&failure, work->refused ? work->refusal
                                           : "its process ended while it was in hand, three times");
        return fail_work(endpoint, work, &failure, ret_verdict, err);
    }
    bool counted = endpoint->chain.has_inbox && endpoint->opt.inbox == PR_INBOX_TRANSACTIONAL;
    if (counted && work->delivery.redelivered && work->token[0] == '\0') {
        pr__inbox_entry entry;
        pr_error local = PR_ERROR_INIT;
        if (take_row(endpoint, work, endpoint->opt.lease_ms, &entry, &local) != PR_OK)
            return trouble(endpoint, work, &local, ret_verdict, err);
        if (entry != PR__INBOX_PARKED)
            return follow(endpoint, work, entry, ret_verdict, err);
    }
    return run(endpoint, work, ret_verdict, err);
}
