/*
 * The sentence of explain.
 *
 * Owns: the words for every state and cause of an outbox and an inbox row.
 * Invariant: no row that is not final is left without a cause: it is claimable, leased, or blocked
 * by something that the sentence names. Times are the database's; text of others is quoted and cut.
 * Must not know: how the situation was found out.
 */
#include "ops/sentence.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "base/time.h"
#include "port/state.h"

#define DURATION_SIZE 64
#define DRAFT_SIZE    2048
#define CAUSE_SIZE    160 /* of an error text inside a sentence; the whole of it is in show */

typedef struct telling {
    const pr__situation *now;
    const pr_record *record;
    char draft[DRAFT_SIZE];
} telling;

static void add(telling *words, const char *format, ...) PR_PRINTF(2, 3);

/* Go on with the sentence. The draft holds every sentence whole: its parts are bounded. */
static void add(telling *words, const char *format, ...)
{
    size_t used = strlen(words->draft);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(words->draft + used, sizeof words->draft - used, format, arguments);
    va_end(arguments);
}

static const char *span(int64_t from_us, int64_t to_us, char out[DURATION_SIZE])
{
    pr__duration_text(to_us > from_us ? to_us - from_us : 0, out, DURATION_SIZE);
    return out;
}

static const char *known(const char *name)
{
    return pr__text_empty(name) ? "somebody unnamed" : name;
}

/* Who is to move it on: the relay, a subscription of this store, or the endpoint itself. */
static void add_mover(telling *words)
{
    const pr__place *place = words->now->place;
    if (words->record->box == PR_BOX_INBOX)
        add(words, "endpoint \"%s\"", words->record->consumer ? words->record->consumer : "");
    else if (place && place->reader_name[0])
        add(words, "subscription \"%s\"", place->reader_name);
    else
        add(words, "a relay");
}

static void add_error(telling *words)
{
    const char *text = words->record->last_error;
    if (pr__text_empty(text))
        return;
    size_t size = strlen(text);
    size_t cut = pr__utf8_cut(text, size, CAUSE_SIZE);
    add(words, ": %.*s%s", (int)cut, text, cut < size ? "..." : "");
}

static bool is_blocked(const telling *words)
{
    return !pr__text_empty(words->now->blocker_id);
}

static void add_blocker(telling *words)
{
    add(words, "message \"%s\" of its key", words->now->blocker_id);
}

/* "lease left 12 s", or that anybody may take it over. */
static void add_lease(telling *words, int64_t until_us)
{
    char text[DURATION_SIZE];
    int64_t now_us = words->now->now_us;
    if (until_us > now_us)
        add(words, "lease left %s", span(now_us, until_us, text));
    else
        add(words, "whose lease ran out %s ago: the next claim takes it over",
            span(until_us, now_us, text));
}

/* What a log row in nobody's hands waits for. */
static void add_queue(telling *words)
{
    const pr__place *place = words->now->place;
    char text[DURATION_SIZE];
    uint32_t lane = words->record->lane;
    if (place && place->in_rest)
        add(words, "was claimed before without an outcome and goes first in lane %u", lane);
    else
        add(words, "waits in lane %u", lane);
    if (place && place->slice_count > 0) {
        add(words, ", after %u in the hands of %s, ", place->slice_count, known(place->owner));
        add_lease(words, place->lease_until_us);
    } else if (!place || !place->worked) {
        add(words, ": ");
        if (place && place->reader_name[0])
            add(words, "subscription \"%s\" has not read yet; start its endpoint",
                place->reader_name);
        else
            add(words, "no relay has worked on this store yet; run \"postroom relay\"");
    } else {
        add(words, " for the next claim; %s was last at work %s ago", known(place->owner),
            span(place->last_at_us, words->now->now_us, text));
    }
}

static void say_pending(telling *words)
{
    const pr_record *record = words->record;
    if (record->next_attempt_at_us != 0 || record->box == PR_BOX_INBOX) {
        if (is_blocked(words)) {
            add(words, "was redriven and waits behind ");
            add_blocker(words);
        } else {
            add(words, "was redriven, is due and waits for ");
            add_mover(words);
        }
        return;
    }
    add_queue(words);
    if (is_blocked(words)) {
        add(words, "; it will be held behind ");
        add_blocker(words);
    }
    if (words->now->place && words->now->place->deferred_count > 0)
        add(words, "; %u of its lane wait for a destination that is down",
            words->now->place->deferred_count);
    if (record->message.expires_at_us != 0 && record->message.expires_at_us <= words->now->now_us)
        add(words, "; it has expired and will not be sent");
}

static void say_publishing(telling *words)
{
    const pr_record *record = words->record;
    const pr__place *place = words->now->place;
    bool inbox = record->box == PR_BOX_INBOX;
    add(words, "%s %s, ", inbox ? "is being handled by" : "is in the hands of",
        known(record->owner ? record->owner : (place ? place->owner : NULL)));
    int64_t until_us = record->locked_until_us;
    if (until_us == 0 && place)
        until_us = place->lease_until_us;
    add_lease(words, until_us);
    uint32_t takeovers = record->takeovers;
    if (place && place->in_slice)
        takeovers = place->attempt;
    if (takeovers > 0)
        add(words, "; it was taken over %u time%s", takeovers, takeovers == 1 ? "" : "s");
}

static void say_published(telling *words)
{
    const pr__place *place = words->now->place;
    const char *destination = words->record->message.destination;
    char at[PR_INSTANT_TEXT_SIZE];
    if (words->record->box == PR_BOX_INBOX) {
        add(words, "was handled by ");
        add_mover(words);
        if (words->record->settled_at_us != 0) {
            pr__instant_text(words->record->settled_at_us, at);
            add(words, " at %s", at);
        }
        return;
    }
    if (place && place->passed_over) {
        add(words, "stays in this store for its subscriptions; the relay passes it over");
        return;
    }
    if (place && place->reader_name[0])
        add(words, "was taken by subscription \"%s\"", place->reader_name);
    else
        add(words, "was published to \"%s\"", destination ? destination : "");
    if (place && place->settled_at_us != 0) {
        pr__instant_text(place->settled_at_us, at);
        add(words, ", settled at %s", at);
    }
}

static void say_failed(telling *words)
{
    const pr_record *record = words->record;
    char text[DURATION_SIZE];
    if (record->attempts == 0)
        add(words, "waits without a charge");
    else
        add(words, "failed %u time%s", record->attempts, record->attempts == 1 ? "" : "s");
    add_error(words);
    add(words, "; ");
    if (is_blocked(words)) {
        add(words, "it goes on after ");
        add_blocker(words);
    } else if (record->next_attempt_at_us > words->now->now_us) {
        add(words, "next attempt in %s",
            span(words->now->now_us, record->next_attempt_at_us, text));
    } else {
        add(words, "it is due and waits for ");
        add_mover(words);
    }
}

static void say_held(telling *words)
{
    if (is_blocked(words)) {
        add(words, "is held behind ");
        add_blocker(words);
        return;
    }
    add(words, "was held, nothing of its key is before it any more, and it waits for ");
    add_mover(words);
}

static void say_delayed(telling *words)
{
    const pr_record *record = words->record;
    int64_t due_us =
        record->message.deliver_at_us ? record->message.deliver_at_us : record->next_attempt_at_us;
    char at[PR_INSTANT_TEXT_SIZE];
    char text[DURATION_SIZE];
    if (due_us > words->now->now_us) {
        pr__instant_text(due_us, at);
        add(words, "is delayed until %s, in %s", at, span(words->now->now_us, due_us, text));
    } else {
        add(words, "was delayed, is due for %s and waits for a relay to promote it",
            span(due_us, words->now->now_us, text));
    }
}

static void say_dead(telling *words)
{
    uint32_t attempts = words->record->attempts;
    add(words, "is dead after %u attempt%s", attempts, attempts == 1 ? "" : "s");
    add_error(words);
    add(words, "; redrive or discard it");
}

static void say_state(telling *words)
{
    switch (words->record->state) {
    case PR_STATE_PENDING:
        say_pending(words);
        return;
    case PR_STATE_PUBLISHING:
        say_publishing(words);
        return;
    case PR_STATE_PUBLISHED:
        say_published(words);
        return;
    case PR_STATE_FAILED:
        say_failed(words);
        return;
    case PR_STATE_HELD:
        say_held(words);
        return;
    case PR_STATE_DELAYED:
        say_delayed(words);
        return;
    case PR_STATE_DEAD:
        say_dead(words);
        return;
    }
    add(words, "is in no known state");
}

static void fill_facts(const pr__situation *now, pr_explanation *ret)
{
    const pr_record *record = now->record;
    const pr__place *place = now->place;
    ret->state = record->state;
    ret->box = record->box;
    ret->attempts = record->attempts;
    ret->next_attempt_at_us = record->next_attempt_at_us;
    if (record->consumer)
        pr__format(ret->consumer, sizeof ret->consumer, "%s", record->consumer);
    if (now->blocker_id)
        pr__format(ret->blocker_id, sizeof ret->blocker_id, "%s", now->blocker_id);
    int64_t until_us = record->locked_until_us;
    const char *owner = record->owner;
    bool waits = record->state == PR_STATE_PENDING || record->state == PR_STATE_PUBLISHING;
    if (until_us == 0 && waits && place && place->slice_count > 0) {
        until_us = place->lease_until_us;
        owner = place->owner;
    }
    if (owner)
        pr__format(ret->owner, sizeof ret->owner, "%s", owner);
    if (until_us > now->now_us)
        ret->lease_left_ms = (until_us - now->now_us + 999) / 1000;
}

void pr__sentence_make(const pr__situation *situation, pr_explanation *ret)
{
    const pr_record *record = situation->record;
    uint32_t size = ret->size;
    *ret = (pr_explanation){.size = size};
    fill_facts(situation, ret);
    telling words = {.now = situation, .record = record};
    if (record->unreadable) {
        add(&words, "cannot be read: %.*s",
            (int)pr__utf8_cut(record->unreadable, strlen(record->unreadable), CAUSE_SIZE),
            record->unreadable);
        add(&words, "; it is %s", pr__state_text(record->state));
    } else {
        say_state(&words);
    }
    if (record->operator_hold)
        add(&words, "; an operator holds it until it is released");
    pr__format(ret->summary, sizeof ret->summary, "%s", words.draft);
}
