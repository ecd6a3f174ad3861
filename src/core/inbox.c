/*
 * The inbox, transactional and leased, step by step.
 *
 * Keeps: in every transaction the mark is touched before the parked row; no parked row is made or
 * changed without holding the mark's key, so no row can stand beside a committed mark; a row that
 * somebody holds is changed by its token only; no step takes a row out of dead.
 * Must not know: transports, handlers, when anything is tried again.
 * Source: the protocol in docs/design/inbox.md.
 */
#include "core/inbox.h"

#include <string.h>

#include "base/assert.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/memory.h"
#include "base/text.h"
#include "core/unit.h"

#define ORIGIN "inbox"

DEFINE_AUTO(pr_unit, pr_unit_free);

static bool holds_row(const pr__inbox_work *work)
{
    return work->token[0] != '\0';
}

/* Done before: whatever is parked under the id is done too. The unit is the caller's to free. */
static pr_status drop_done_row(pr_unit *unit, const pr__inbox_work *work, pr_error *err)
{
    bool deleted;
    TRY(unit->ops->inbox_unpark(unit, &work->key, NULL, &deleted, err));
    if (!deleted)
        return PR_OK;
    PR_FAULT("endpoint.before_duplicate_commit");
    pr_status status = pr_unit_commit(unit, NULL, err);
    PR_FAULT("endpoint.after_duplicate_commit");
    return status;
}

/* A row stands under the work's id and is not its own: it is a durable copy, unless it differs.
   */
static pr__inbox_entry foreign_row(const pr__inbox_work *work, const pr__inbox_row *row)
{
    if (holds_row(work))
        return PR__INBOX_LOST;
    return row->same_content ? PR__INBOX_COPY : PR__INBOX_CONFLICT;
}

/* What a parked row under its id, or none, means for the work. */
static pr__inbox_entry judge_row(const pr__inbox_work *work, bool found, const pr__inbox_row *row)
{
    if (!found)
        return holds_row(work) ? PR__INBOX_LOST : PR__INBOX_RUN;
    if (holds_row(work) && row->state == PR_STATE_PUBLISHING &&
        strcmp(row->token, work->token) == 0)
        return PR__INBOX_RUN;
    return foreign_row(work, row);
}

static pr_status look_for_row(pr_unit *unit, const pr__inbox_work *work, pr__inbox_entry *ret_entry,
                              pr_error *err)
{
    bool found;
    pr__inbox_row row;
    TRY(unit->ops->inbox_find(unit, &work->key, work->hash, &found, &row, err));
    *ret_entry = judge_row(work, found, &row);
    return PR_OK;
}

/* Write the parked row, as holder by token, else as a new one. The mark is held. */
static pr_status write_row(pr_unit *unit, const pr__inbox_work *work, const pr__inbox_park *park,
                           pr__inbox_entry *ret_entry, pr_error *err)
{
    bool written;
    *ret_entry = PR__INBOX_PARKED;
    if (holds_row(work)) {
        TRY(unit->ops->inbox_repark(unit, &work->key, work->token, park, &written, err));
        if (!written)
            *ret_entry = PR__INBOX_LOST;
        return PR_OK;
    }
    pr_message copy = *work->message;
    if (work->original_id)
        copy.id = work->original_id;
    TRY(unit->ops->inbox_park(unit, &work->key, &copy, park, &written, err));
    if (written)
        return PR_OK;
    bool found;
    pr__inbox_row row;
    TRY(unit->ops->inbox_find(unit, &work->key, work->hash, &found, &row, err));
    *ret_entry = found ? foreign_row(work, &row) : PR__INBOX_COPY;
    return PR_OK;
}

static pr_status is_blocked(pr_unit *unit, const pr__inbox_work *work, bool *ret_blocked,
                            pr_error *err)
{
    *ret_blocked = false;
    if (work->order == PR_ORDER_SKIP || pr__text_empty(work->message->key))
        return PR_OK;
    return unit->ops->inbox_blocked(unit, &work->key, work->message->key, work->order, ret_blocked,
                                    err);
}

/* A mark committed beside a held row would make its retry look done, and the message is lost. */
static pr_status hold(pr_unit *unit, const pr__inbox_work *work, pr__inbox_entry *ret_entry,
                      pr_error *err)
{
    pr__inbox_park park = {.state = PR_STATE_HELD, .attempts = work->attempts};
    TRY(write_row(unit, work, &park, ret_entry, err));
    if (*ret_entry != PR__INBOX_PARKED)
        return PR_OK;
    TRY(unit->ops->inbox_unmark(unit, &work->key, err));
    PR_FAULT("endpoint.before_held_commit");
    TRY(pr_unit_commit(unit, NULL, err));
    PR_FAULT("endpoint.after_held_commit");
    *ret_entry = PR__INBOX_HELD;
    return PR_OK;
}

/* The facts by single steps, no further than they matter. */
static pr_status ask(pr_unit *unit, const pr__inbox_work *work, pr__inbox_facts *ret_facts,
                     pr_error *err)
{
    pr__inbox_facts facts = {.found = false};
    TRY(unit->ops->inbox_mark(unit, &work->key, work->hash, &facts.mark, err));
    if (facts.mark == PR__MARK_NEW) {
        TRY(unit->ops->inbox_find(unit, &work->key, work->hash, &facts.found, &facts.row, err));
        if (judge_row(work, facts.found, &facts.row) == PR__INBOX_RUN)
            TRY(is_blocked(unit, work, &facts.blocked, err));
    }
    *ret_facts = facts;
    return PR_OK;
}

static pr__inbox_entry judge(const pr__inbox_work *work, const pr__inbox_facts *facts)
{
    switch (facts->mark) {
    case PR__MARK_DONE:
        return PR__INBOX_DONE;
    case PR__MARK_CONFLICT:
        return PR__INBOX_CONFLICT;
    case PR__MARK_NEW:
        break;
    }
    pr__inbox_entry entry = judge_row(work, facts->found, &facts->row);
    return entry == PR__INBOX_RUN && facts->blocked ? PR__INBOX_HELD : entry;
}

/* What is done before, or blocked, is written down at once. */
static pr_status follow(pr_unit *unit, const pr__inbox_work *work, const pr__inbox_facts *facts,
                        pr__inbox_entry *ret_entry, pr_error *err)
{
    *ret_entry = judge(work, facts);
    if (*ret_entry == PR__INBOX_DONE)
        return drop_done_row(unit, work, err);
    return *ret_entry == PR__INBOX_HELD ? hold(unit, work, ret_entry, err) : PR_OK;
}

pr_status pr__inbox_enter_unit(pr_unit *unit, const pr__inbox_work *work,
                               pr__inbox_entry *ret_entry, pr_error *err)
{
    pr__inbox_facts facts;
    PR_FAULT("endpoint.before_mark");
    TRY(ask(unit, work, &facts, err));
    PR_FAULT("endpoint.after_mark");
    return follow(unit, work, &facts, ret_entry, err);
}

pr__inbox_visit pr__inbox_visit_of(const pr__inbox_work *work)
{
    return (pr__inbox_visit){.key = &work->key,
                             .hash = work->hash,
                             .message_key = work->message->key,
                             .order = work->order,
                             .saga = work->look};
}

static pr_status enter_next(pr_unit *unit, pr__savepoint_step step, const pr__inbox_work *work,
                            pr__inbox_facts *ret_facts, pr_error *err)
{
    const pr__inbox_visit visit = pr__inbox_visit_of(work);
    if (step != 0 && unit->ops->inbox_enter_next)
        return unit->ops->inbox_enter_next(unit, step, &visit, ret_facts, err);
    if (step != 0)
        TRY(unit->ops->savepoint(unit, step, err));
    return ask(unit, work, ret_facts, err);
}

pr_status pr__inbox_enter_shared(pr_unit *unit, pr__savepoint_step step, const pr__inbox_work *work,
                                 pr__inbox_entry *ret_entry, pr_error *err)
{
    pr__inbox_facts facts;
    TRY(enter_next(unit, step, work, &facts, err));
    *ret_entry = judge(work, &facts);
    return PR_OK;
}

static pr_status begin_and_ask(pr_store *store, const pr__inbox_work *work, pr_unit **ret_unit,
                               pr__inbox_facts *ret_facts, pr_error *err)
{
    if (!store->ops->unit_enter) {
        TRY(pr__store_unit_begin(store, ret_unit, err));
        return ask(*ret_unit, work, ret_facts, err);
    }
    const pr__inbox_visit visit = pr__inbox_visit_of(work);
    return store->ops->unit_enter(store, &visit, ret_unit, ret_facts, err);
}

pr_status pr__inbox_enter(pr_store *store, const pr__inbox_work *work, pr_unit **ret_unit,
                          pr__inbox_entry *ret_entry, pr_error *err)
{
    AUTO(pr_unit) unit = NULL; /* rolled back unless it is committed or handed out */
    pr__inbox_facts facts;
    PR_FAULT("endpoint.before_mark");
    TRY(begin_and_ask(store, work, &unit, &facts, err));
    PR_FAULT("endpoint.after_mark");
    TRY(follow(unit, work, &facts, ret_entry, err));
    if (*ret_entry == PR__INBOX_RUN)
        *ret_unit = TAKE(unit);
    return PR_OK;
}

/* ---- leased ---- */

/* The processing row of the work: its own already, or a new one. RUN: it stands in the unit. */
static pr_status lease_row(pr_unit *unit, const pr__inbox_work *work, const pr__inbox_park *park,
                           pr__inbox_entry *ret_entry, pr_error *err)
{
    if (holds_row(work))
        return look_for_row(unit, work, ret_entry, err);
    TRY(write_row(unit, work, park, ret_entry, err));
    if (*ret_entry == PR__INBOX_PARKED)
        *ret_entry = PR__INBOX_RUN;
    return PR_OK;
}

/* An older one of its key is parked: wait behind it, as the row that stands already. */
static pr_status lease_hold(pr_unit *unit, const pr__inbox_work *work, const char *token,
                            pr__inbox_entry *ret_entry, pr_error *err)
{
    pr__inbox_park park = {.state = PR_STATE_HELD, .attempts = work->attempts};
    bool changed = false;
    TRY(unit->ops->inbox_repark(unit, &work->key, token, &park, &changed, err));
    *ret_entry = changed ? PR__INBOX_HELD : PR__INBOX_LOST;
    return changed ? pr_unit_commit(unit, NULL, err) : PR_OK;
}

pr_status pr__inbox_lease_enter(pr_store *store, const pr__inbox_work *work,
                                const pr__inbox_park *park, pr__inbox_entry *ret_entry,
                                pr_error *err)
{
    AUTO(pr_unit) unit = NULL;
    TRY(pr__store_unit_begin(store, &unit, err));
    TRY(lease_row(unit, work, park, ret_entry, err));
    if (*ret_entry != PR__INBOX_RUN)
        return PR_OK;
    /* looked for after the row, in a statement of its own: whoever completes meanwhile deletes the
       row and inserts the mark in one commit, so one of the two is seen */
    pr__mark mark;
    TRY(unit->ops->inbox_look(unit, &work->key, work->hash, &mark, err));
    if (mark != PR__MARK_NEW) {
        *ret_entry = mark == PR__MARK_DONE ? PR__INBOX_DONE : PR__INBOX_CONFLICT;
        bool done_row = mark == PR__MARK_DONE && holds_row(work);
        bool deleted;
        if (done_row)
            TRY(unit->ops->inbox_unpark(unit, &work->key, work->token, &deleted, err));
        return done_row ? pr_unit_commit(unit, NULL, err) : PR_OK;
    }
    bool blocked = false;
    TRY(is_blocked(unit, work, &blocked, err));
    if (blocked)
        return lease_hold(unit, work, holds_row(work) ? work->token : park->token, ret_entry, err);
    if (holds_row(work))
        return PR_OK;
    PR_FAULT("endpoint.before_lease_commit");
    TRY(pr_unit_commit(unit, NULL, err));
    PR_FAULT("endpoint.after_lease_commit");
    return PR_OK;
}

pr_status pr__inbox_lease_unit(pr_store *store, const pr__inbox_work *work, pr_unit **ret_unit,
                               pr__inbox_entry *ret_entry, pr_error *err)
{
    AUTO(pr_unit) unit = NULL;
    TRY(pr__store_unit_begin(store, &unit, err));
    pr__mark mark;
    bool deleted = false;
    TRY(unit->ops->inbox_mark(unit, &work->key, work->hash, &mark, err));
    if (mark == PR__MARK_NEW)
        TRY(unit->ops->inbox_unpark(unit, &work->key, work->token, &deleted, err));
    *ret_entry = deleted ? PR__INBOX_RUN : PR__INBOX_LOST;
    if (deleted)
        *ret_unit = TAKE(unit);
    return PR_OK;
}

/* ---- the end ---- */

/* Memory, the server or the way to it failed, which is no doing of a handler. One that made its own
   transaction read-only (25006) has not found a wrong server. */
static bool is_outage(const pr_error *found)
{
    return found->status == PR_E_NOMEM || found->retry == PR_RETRY_SAME ||
           (found->retry == PR_RETRY_RECONNECT && !pr__text_equal(found->sqlstate, "25006"));
}

/* What is wrong after the handler is its doing, STATE, unless the database is in trouble. */
static pr_status broken(const pr_error *found, pr_error *err)
{
    if (!is_outage(found))
        return pr__fail(err, PR_E_STATE, ORIGIN, "the handler broke its own transaction: %s",
                        found->message);
    pr__error_copy(err, found);
    return found->status;
}

static pr_status unmarked(pr_error *err)
{
    return pr__fail(err, PR_E_STATE, ORIGIN,
                    "the handler rolled its own transaction back: its mark is gone");
}

/* The handler had the connection in its hands. A transaction that it ended shows here; one that it
   ended and began anew has no mark inside. */
static pr_status check_live(pr_unit *unit, pr_error *err)
{
    pr_error local = PR_ERROR_INIT;
    if (unit->ops->live(unit, &local) != PR_OK)
        return pr__fail(err, PR_E_STATE, ORIGIN,
                        "the handler ended or broke its own transaction: %s", local.message);
    return pr__unit_usable(unit, err);
}

static pr_status check_marked(pr_unit *unit, const pr__inbox_work *work, pr_error *err)
{
    pr__mark mark;
    pr_error local = PR_ERROR_INIT;
    if (unit->ops->inbox_mark(unit, &work->key, work->hash, &mark, &local) != PR_OK)
        return broken(&local, err);
    return mark == PR__MARK_DONE ? PR_OK : unmarked(err);
}

static pr_status order_fault(pr_error *err)
{
    if (PR_FAULT_FAILS("endpoint.before_commit"))
        return pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_RECONNECT, ORIGIN, "a fault was ordered");
    return PR_OK;
}

static pr_status complete_by_steps(pr_unit *unit, const pr__inbox_work *work, const char *token,
                                   pr__inbox_entry *ret_entry, pr_outcome *ret_outcome,
                                   pr_error *err)
{
    bool deleted = true;
    pr_assert(!work->change); /* only where it goes with the commit does a save wait for it */
    TRY(check_marked(unit, work, err));
    if (token)
        TRY(unit->ops->inbox_unpark(unit, &work->key, token, &deleted, err));
    *ret_entry = PR__INBOX_LOST;
    if (!deleted)
        return PR_OK;
    TRY(order_fault(err));
    TRY(pr_unit_commit(unit, ret_outcome, err));
    *ret_entry = PR__INBOX_HANDLED;
    return PR_OK;
}

static pr_status complete_at_once(pr_unit *unit, const pr__inbox_work *work, const char *token,
                                  pr__inbox_entry *ret_entry, pr_outcome *ret_outcome,
                                  pr_error *err)
{
    pr__inbox_end end = {
        .key = &work->key, .hash = work->hash, .token = token, .saga = work->change};
    pr__inbox_check check = PR__INBOX_KEPT;
    pr_error local = PR_ERROR_INIT;
    TRY(order_fault(err));
    pr_status status = pr__unit_complete(unit, &end, &check, ret_outcome, &local);
    switch (check) {
    case PR__INBOX_UNMARKED:
        return unmarked(err);
    case PR__INBOX_TAKEN:
        *ret_entry = PR__INBOX_LOST;
        return PR_OK;
    case PR__INBOX_BROKEN:
        return broken(&local, err);
    case PR__INBOX_UNSAVED:
        *ret_entry = PR__INBOX_MOVED;
        if (status != PR_OK)
            pr__error_copy(err, &local);
        return status;
    case PR__INBOX_KEPT:
        break;
    }
    *ret_entry = PR__INBOX_HANDLED;
    if (status != PR_OK)
        pr__error_copy(err, &local);
    return status;
}

/* A row that the work does not hold cannot stand: there was none when the mark was made, and the
   mark is held since. (A leased one may come meanwhile; it finds the mark when it is completed, or
   taken over.) */
pr_status pr__inbox_complete(pr_unit *unit, const pr__inbox_work *work, pr__inbox_entry *ret_entry,
                             pr_outcome *ret_outcome, pr_error *err)
{
    *ret_outcome = PR_OUTCOME_NOT_COMMITTED;
    TRY(check_live(unit, err));
    const char *token = holds_row(work) && !work->row_gone ? work->token : NULL;
    if (unit->ops->inbox_complete)
        TRY(complete_at_once(unit, work, token, ret_entry, ret_outcome, err));
    else
        TRY(complete_by_steps(unit, work, token, ret_entry, ret_outcome, err));
    if (*ret_entry == PR__INBOX_HANDLED)
        PR_FAULT("endpoint.after_commit");
    return PR_OK;
}

pr_status pr__inbox_park_work(pr_store *store, const pr__inbox_work *work,
                              const pr__inbox_park *park, pr__inbox_entry *ret_entry, pr_error *err)
{
    AUTO(pr_unit) unit = NULL;
    TRY(pr__store_unit_begin(store, &unit, err));
    pr__mark mark;
    TRY(unit->ops->inbox_mark(unit, &work->key, work->hash, &mark, err));
    if (mark == PR__MARK_DONE) {
        *ret_entry = PR__INBOX_DONE;
        return drop_done_row(unit, work, err);
    }
    if (mark == PR__MARK_CONFLICT) {
        *ret_entry = PR__INBOX_CONFLICT;
        return PR_OK;
    }
    TRY(write_row(unit, work, park, ret_entry, err));
    if (*ret_entry != PR__INBOX_PARKED)
        return PR_OK;
    TRY(unit->ops->inbox_unmark(unit, &work->key, err));
    if (PR_FAULT_FAILS("endpoint.before_park_commit"))
        return pr__fail_retry(err, PR_E_BACKEND, PR_RETRY_RECONNECT, ORIGIN, "a fault was ordered");
    TRY(pr_unit_commit(unit, NULL, err));
    PR_FAULT("endpoint.after_park_commit");
    return PR_OK;
}

void pr__inbox_conflict_id(const pr__inbox_work *work, char out[PR_INBOX_CONFLICT_ID_SIZE])
{
    /* the id is hashed with it: two ids may conflict with the same content, and none may vanish
       */
    uint8_t joined[2 * PR_CONTENT_HASH_SIZE];
    uint8_t hash[PR_CONTENT_HASH_SIZE];
    char text[PR_CONTENT_HASH_TEXT_SIZE];
    pr__hash_bytes(work->key.message_id, strlen(work->key.message_id), joined);
    memcpy(joined + PR_CONTENT_HASH_SIZE, work->hash, PR_CONTENT_HASH_SIZE);
    pr__hash_bytes(joined, sizeof joined, hash);
    pr__hash_text(hash, text);
    pr__format(out, PR_INBOX_CONFLICT_ID_SIZE, "conflict:%s", text);
}

pr_status pr__inbox_park_conflict(pr_store *store, const pr__inbox_work *work, pr_error *err)
{
    char id[PR_INBOX_CONFLICT_ID_SIZE];
    char reason[512];
    pr__inbox_conflict_id(work, id);
    pr__format(reason, sizeof reason, "id '%s' stands already with other content",
               work->key.message_id);
    pr__inbox_work apart = *work;
    apart.key.message_id = id;
    apart.token = "";
    if (!apart.original_id)
        apart.original_id = work->key.message_id;
    pr__inbox_park park = {.state = PR_STATE_DEAD, .attempts = work->attempts, .error = reason};
    AUTO(pr_unit) unit = NULL;
    TRY(pr__store_unit_begin(store, &unit, err));
    pr__mark mark;
    TRY(unit->ops->inbox_mark(unit, &apart.key, apart.hash, &mark, err));
    bool changed = false;
    if (mark == PR__MARK_NEW) {
        pr__inbox_entry entry; /* a copy that stands there already is as good */
        TRY(write_row(unit, &apart, &park, &entry, err));
        TRY(unit->ops->inbox_unmark(unit, &apart.key, err));
    }
    if (holds_row(work))
        TRY(unit->ops->inbox_unpark(unit, &work->key, work->token, &changed, err));
    PR_FAULT("endpoint.before_conflict_commit");
    TRY(pr_unit_commit(unit, NULL, err));
    PR_FAULT("endpoint.after_conflict_commit");
    return PR_OK;
}
