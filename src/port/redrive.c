/*
 * What every store's redrive decides alike.
 *
 * Keeps: only what is dead is taken, and nothing that an inbox may have forgotten unless it is
 * forced; whoever asked for one message is told why it was not.
 * Must not know: tables, statements, roles.
 */
#include "port/redrive.h"

#include "base/error.h"
#include "base/text.h"
#include "base/time.h"

#define RETENTION_MS     (INT64_C(30) * 24 * 3600 * 1000) /* inbox_retention unless it is set */
#define RETENTION_MS_MAX (INT64_C(100) * 366 * 24 * 3600 * 1000)
#define US_PER_MS        1000

pr_status pr__redrive_begin(pr__redrive *redrive, pr__arena *arena, const pr_redrive_options *opt,
                            pr__redrive_check check, void *user, pr_error *err)
{
    *redrive =
        (pr__redrive){.opt = opt, .check = check, .user = user, .inbox = opt->box == PR_BOX_INBOX};
    if (arena)
        redrive->places = pr__arena_alloc(arena, opt->limit * sizeof *redrive->places);
    return redrive->places ? PR_OK : pr__fail_nomem(err, "operations.redrive");
}

void pr__redrive_remembers(pr__redrive *redrive, int64_t retention_ms)
{
    int64_t ms = retention_ms > 0 ? retention_ms : RETENTION_MS;
    redrive->retention_us = (ms < RETENTION_MS_MAX ? ms : RETENTION_MS_MAX) * US_PER_MS;
}

/* Could a mark of this message have been swept? An outbox message may have been handled at any time
   since it occurred; beside a parked row of the inbox no mark is made or swept. */
static bool is_forgotten(const pr__redrive *redrive, const pr__redrive_row *row)
{
    int64_t until_us = redrive->inbox ? row->failed_at_us : redrive->now_us;
    return row->occurred_at_us < until_us - redrive->retention_us;
}

void pr__redrive_consider(pr__redrive *redrive, const pr__redrive_row *row)
{
    if (!pr__text_equal(row->state, "dead"))
        pr__format(redrive->other_state, sizeof redrive->other_state, "%s",
                   row->state ? row->state : "");
    else if (row->marked)
        redrive->marked++;
    else if (redrive->check &&
             !redrive->check(redrive->user, row->type ? row->type : "", row->type_version))
        redrive->unregistered++;
    else if (!redrive->opt->force && is_forgotten(redrive, row))
        redrive->old++;
    else
        redrive->places[redrive->count++] = row->place;
}

static uint32_t left_out(const pr__redrive *redrive)
{
    return redrive->old + redrive->unregistered + redrive->marked;
}

bool pr__redrive_asks(const pr__redrive *redrive)
{
    return redrive->opt->message_id && !redrive->other_state[0] && left_out(redrive) == 0;
}

/* Of those that were found, each was left out. */
static pr_status refuse_found(const pr__redrive *redrive, const char *subject, const char *origin,
                              pr_error *err)
{
    char days[64];
    pr__duration_text(redrive->retention_us, days, sizeof days);
    if (redrive->old > 0)
        return pr__fail(err, PR_E_STATE, origin,
                        "%s is older than the inbox remembers (%s): it may run again; redrive it "
                        "with force",
                        subject, days);
    if (redrive->unregistered > 0)
        return pr__fail(err, PR_E_STATE, origin,
                        "%s is of a type and version that is not registered; register its "
                        "contract, or discard it",
                        subject);
    return pr__fail(err, PR_E_STATE, origin, "%s was handled already; discard it", subject);
}

pr_status pr__redrive_refuse(const pr__redrive *redrive, bool known, const char *origin,
                             pr_error *err)
{
    const pr_redrive_options *opt = redrive->opt;
    char subject[PR_ID_SIZE_MAX + 32];
    if (opt->message_id)
        pr__format(subject, sizeof subject, "message \"%s\"", opt->message_id);
    else
        pr__format(subject, sizeof subject, "each of the %u dead messages", left_out(redrive));
    if (left_out(redrive) > 0)
        return refuse_found(redrive, subject, origin, err);
    if (!opt->message_id)
        return PR_OK;
    if (redrive->other_state[0])
        return pr__fail(err, PR_E_STATE, origin, "%s is %s, not dead", subject,
                        redrive->other_state);
    if (known)
        return pr__fail(err, PR_E_STATE, origin, "%s is %s, not dead", subject,
                        redrive->inbox ? "handled" : "pending or published");
    return pr__fail(err, PR_E_NOT_FOUND, origin, "there is no %s%s%s%s", subject,
                    opt->consumer ? " at \"" : "", opt->consumer ? opt->consumer : "",
                    opt->consumer ? "\"" : "");
}

pr__audit_subject pr__redrive_subject(const pr__redrive *redrive)
{
    const pr_redrive_options *opt = redrive->opt;
    return (pr__audit_subject){.message_id = opt->message_id,
                               .consumer = opt->consumer,
                               .box = redrive->inbox ? "inbox" : "outbox",
                               .type = opt->type,
                               .destination = opt->destination,
                               .forced = opt->force};
}

pr_status pr__discard_refuse(const char *message_id, const char *state, const char *origin,
                             pr_error *err)
{
    return pr__fail(err, PR_E_STATE, origin,
                    "message \"%s\" is %s, not dead; only dead ones are discarded", message_id,
                    state);
}
