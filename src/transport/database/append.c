/*
 * Appending submitted messages to the log of another store.
 *
 * Owns: the transaction of an append, and the outcome of each message in it.
 * Keeps: all that waits is one transaction; when the store refuses a message, halves are tried in
 * transactions of their own, so that it fails alone and each other one is appended once. Confirmed
 * means committed; unknown means lost. The envelope stays as it is, but for the transport in the
 * destination and deliver_at, which was over when it was sent.
 * Must not know: claims, subscriptions, which database it is.
 */
#include "transport/database/append.h"

#include <string.h>

#include <postroom/address.h>

#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"
#include "base/text.h"
#include "port/route.h"

/* Whether destinations have a reader, asked once an append: a subscription may come or go at any
   time, so nothing is remembered longer. */
typedef struct known {
    struct known *next;
    const char *destination;
    bool exists;
} known;

typedef struct append {
    pr__database_transport *self;
    pr__arena *arena;
    known *known;
    uint32_t count; /* entries */
} append;

static void end(pr__database_transport *self, uint32_t place, pr_submit_outcome outcome,
                bool suspect, const char *reason)
{
    pr_submitted *out = pr__outcomes_add(&self->outcomes, self->waiting[place].ticket, outcome);
    out->suspect = suspect;
    pr__format(out->reason, sizeof(out->reason), "%s", reason);
}

static void end_entries(append *job, uint32_t first, uint32_t count, pr_submit_outcome outcome,
                        bool suspect, const char *reason)
{
    for (uint32_t i = first; i < first + count; i++)
        end(job->self, job->self->entry_places[i], outcome, suspect, reason);
}

/* ---- what goes in, and where to ---- */

static pr_status has_reader(append *job, const char *destination, bool *ret_exists, pr_error *err)
{
    for (known *at = job->known; at; at = at->next) {
        if (strcmp(at->destination, destination) == 0) {
            *ret_exists = at->exists;
            return PR_OK;
        }
    }
    known *fresh = pr__arena_alloc(job->arena, sizeof(*fresh));
    if (!fresh)
        return pr__fail_nomem(err, "database.append");
    fresh->destination = destination;
    TRY(pr__store_reader_exists(job->self->store, destination, &fresh->exists, err));
    fresh->next = job->known;
    job->known = fresh;
    *ret_exists = fresh->exists;
    return PR_OK;
}

/* The destination as the other log knows it. */
static const char *localize(append *job, const pr__route *route)
{
    static const char scheme[] = PR_TRANSPORT_LOCAL "://";
    size_t path_size = strlen(route->path);
    char *text = pr__arena_alloc(job->arena, sizeof(scheme) + path_size);
    if (text) {
        memcpy(text, scheme, sizeof(scheme) - 1);
        memcpy(text + sizeof(scheme) - 1, route->path, path_size + 1);
    }
    return text;
}

/* Decide one waiting message: it becomes an entry, or it has its outcome at once. */
static pr_status prepare(append *job, uint32_t place, pr_error *err)
{
    pr__database_transport *self = job->self;
    const pr_message *message = self->waiting[place].message;
    pr_error fault = PR_ERROR_INIT;
    pr__route route;
    char reason[256];
    if (message->body_size_bytes > self->store->body_size_max) {
        pr__format(reason, sizeof(reason), "the body has %llu bytes, the other store takes %llu",
                   (unsigned long long)message->body_size_bytes,
                   (unsigned long long)self->store->body_size_max);
        end(self, place, PR_SUBMIT_TOO_LARGE, false, reason);
        return PR_OK;
    }
    if (pr__route_parse(message->destination, &route, &fault) != PR_OK) {
        end(self, place, PR_SUBMIT_REFUSED, false, fault.message);
        return PR_OK;
    }
    if (!pr__span_equal(route.scheme, self->name)) {
        end(self, place, PR_SUBMIT_REFUSED, false, "the destination is of another transport");
        return PR_OK;
    }
    const char *destination = localize(job, &route);
    if (!destination)
        return pr__fail_nomem(err, "database.append");
    bool exists = false;
    TRY(has_reader(job, destination, &exists, err));
    if (!exists) {
        bool fine = route.kind == PR__ROUTE_TOPIC && pr__route_unrouted_ok(message);
        end(self, place, fine ? PR_SUBMIT_CONFIRMED : PR_SUBMIT_RETURNED, false,
            fine ? ""
                 : "nobody subscribes to the destination: start its endpoint, or "
                   "mend the spelling");
        return PR_OK;
    }
    pr_message *copy = &self->messages[job->count];
    *copy = *message;
    copy->size = (uint32_t)sizeof(*copy);
    copy->destination = destination;
    copy->deliver_at_us = 0;
    /* caller_id off: an append of unknown outcome may stand twice, the inbox absorbs it */
    self->entries[job->count] = (pr__enqueue){.message = copy};
    self->entry_places[job->count] = place;
    job->count++;
    return PR_OK;
}

/* ---- the transaction ---- */

typedef enum stage { STAGE_BEGIN, STAGE_ENQUEUE, STAGE_COMMIT } stage;

/* One transaction with the entries; *ret_stage tells where it failed. */
static pr_status append_once(append *job, uint32_t first, uint32_t count, stage *ret_stage,
                             pr_error *err)
{
    pr_store *store = job->self->store;
    pr_unit *unit = NULL;
    *ret_stage = STAGE_BEGIN;
    TRY(pr__store_unit_begin(store, &unit, err));
    *ret_stage = STAGE_ENQUEUE;
    pr_status status = unit->ops->enqueue(unit, job->self->entries + first, count, err);
    if (status == PR_OK) {
        pr_outcome outcome = PR_OUTCOME_UNKNOWN;
        *ret_stage = STAGE_COMMIT;
        PR_FAULT("transport.before_append_commit");
        status = unit->ops->commit(unit, &outcome, err);
        PR_FAULT("transport.after_append_commit");
        if (outcome == PR_OUTCOME_COMMITTED)
            status = PR_OK;
        else if (status == PR_OK)
            status = pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_UNKNOWN, "database.append",
                                    "the outcome of the commit is not known");
    } else {
        (void)unit->ops->rollback(unit, NULL); /* free rolls back what this does not */
    }
    unit->ops->free(unit);
    if (status == PR_OK)
        pr__store_ring(store);
    return status;
}

/* Is it the message that failed, and not the database? */
static bool is_of_message(pr_status status)
{
    return status == PR_E_LIMIT || status == PR_E_CONTENT || status == PR_E_INVALID ||
           status == PR_E_CONFLICT;
}

/* The store cannot say which message it was, or the database failed in a way that only this message
   may bring about: halves find it. */
static bool may_be_split(stage failed_at, const pr_error *err)
{
    if (failed_at != STAGE_ENQUEUE)
        return false;
    return is_of_message(err->status) ||
           (err->status == PR_E_BACKEND && err->retry == PR_RETRY_NEVER);
}

typedef struct range {
    uint32_t first;
    uint32_t count;
} range;

#define RANGES_MAX 64 /* each split adds one; a window halves at most 17 times */

/* Append the entries of the job; ranges that fail are halved, in order. True: the database answered
   well for at least one of them, or had nothing to do with a failure. */
static bool append_ranges(append *job, pr_error *err)
{
    range todo[RANGES_MAX] = {{0, job->count}};
    uint32_t todo_count = 1;
    bool served = false;
    while (todo_count > 0) {
        range now = todo[--todo_count];
        pr_error fault = PR_ERROR_INIT;
        stage failed_at = STAGE_BEGIN;
        if (append_once(job, now.first, now.count, &failed_at, &fault) == PR_OK) {
            end_entries(job, now.first, now.count, PR_SUBMIT_CONFIRMED, false, "");
            served = true;
        } else if (may_be_split(failed_at, &fault) && now.count > 1 &&
                   todo_count + 2 <= RANGES_MAX) {
            uint32_t half = now.count / 2;
            todo[todo_count++] = (range){now.first + half, now.count - half};
            todo[todo_count++] = (range){now.first, half};
        } else if (failed_at == STAGE_ENQUEUE && is_of_message(fault.status)) {
            end_entries(job, now.first, now.count,
                        fault.status == PR_E_LIMIT ? PR_SUBMIT_TOO_LARGE : PR_SUBMIT_REFUSED, false,
                        fault.message);
            served = true;
        } else {
            bool suspect = may_be_split(failed_at, &fault);
            end_entries(job, now.first, now.count, PR_SUBMIT_LOST, suspect, fault.message);
            pr__error_copy(err, &fault);
            if (!suspect) { /* the database is away: the others would only meet the same */
                while (todo_count > 0) {
                    todo_count--;
                    end_entries(job, todo[todo_count].first, todo[todo_count].count, PR_SUBMIT_LOST,
                                false, fault.message);
                }
                return false;
            }
        }
    }
    return served;
}

void pr__database_append(pr__database_transport *self)
{
    pr_error err = PR_ERROR_INIT;
    append job = {.self = self, .arena = pr__arena_new(0)};
    pr_status status = job.arena ? PR_OK : pr__fail_nomem(&err, "database.append");
    uint32_t place = 0;
    for (; place < self->waiting_count && status == PR_OK; place++) {
        status = prepare(&job, place, &err);
        if (status != PR_OK)
            break;
    }
    if (status != PR_OK) {
        end_entries(&job, 0, job.count, PR_SUBMIT_LOST, false, err.message);
        for (; place < self->waiting_count; place++)
            end(self, place, PR_SUBMIT_LOST, false, err.message);
        pr__database_state_failed(self, &err);
    } else if (job.count == 0 || append_ranges(&job, &err)) {
        pr__database_state_set(self, PR_TRANSPORT_UP, "");
    } else {
        pr__database_state_failed(self, &err);
    }
    self->waiting_count = 0;
    pr__arena_free(job.arena);
}
