/*
 * pr_operations_explain: gather what stands of a message, choose the row that matters, say why.
 *
 * Owns: the choice among several rows of one id: what is stuck comes before what moves, and what
 * moves before what is done.
 * Must not know: tables or statements (the store's), wording (sentence.c's).
 */
#include <string.h>

#include <postroom/operations.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"
#include "ops/sentence.h"
#include "port/store.h"

#define ORIGIN "operations.explain"

typedef struct pick {
    pr__arena *arena;  /* of the chosen record's text */
    pr_record *record; /* NULL = none yet */
    bool nomem;
} pick;

/* The higher, the more it is the answer to "why is it not moving". */
static int weight(const pr_record *record)
{
    int weight = 0;
    switch (record->state) {
    case PR_STATE_DEAD:
        weight = 7;
        break;
    case PR_STATE_HELD:
        weight = 6;
        break;
    case PR_STATE_FAILED:
        weight = 5;
        break;
    case PR_STATE_DELAYED:
        weight = 4;
        break;
    case PR_STATE_PENDING:
        weight = 3;
        break;
    case PR_STATE_PUBLISHING:
        weight = 2;
        break;
    case PR_STATE_PUBLISHED:
        weight = 1;
        break;
    }
    if (record->operator_hold)
        weight += 10;
    return weight;
}

/* The record and the text that the sentence needs, beyond the life of the callback. */
static pr_record *copy_record(pr__arena *arena, const pr_record *from)
{
    pr_record *to = pr__arena_memdup(arena, from, sizeof *from);
    if (!to)
        return NULL;
    pr_message *message = &to->message;
    const char **texts[] = {&to->consumer,
                            &to->lock_token,
                            &to->owner,
                            &to->last_error,
                            &to->unreadable,
                            &message->id,
                            &message->type,
                            &message->content_type,
                            &message->destination,
                            &message->source,
                            &message->key,
                            &message->tenant,
                            &message->correlation_id,
                            &message->causation_id,
                            &message->traceparent,
                            &message->tracestate,
                            &message->headers};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (!*texts[i])
            continue;
        *texts[i] = pr__arena_strdup(arena, *texts[i]);
        if (!*texts[i])
            return NULL;
    }
    message->body = NULL;
    message->body_size_bytes = 0;
    return to;
}

static bool consider(void *user, const pr_record *record)
{
    pick *choice = user;
    if (choice->record && weight(record) <= weight(choice->record))
        return true;
    choice->record = copy_record(choice->arena, record);
    choice->nomem = choice->record == NULL;
    return !choice->nomem;
}

pr_status pr_operations_explain(pr_store *store, const char *message_id,
                                pr_explanation *ret_explanation, pr_error *err)
{
    if (!ret_explanation || ret_explanation->size < sizeof *ret_explanation)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "size of pr_explanation is not set");
    AUTO(pr__arena) arena = pr__arena_new(0);
    if (!arena)
        return pr__fail_nomem(err, ORIGIN);
    pick choice = {.arena = arena};
    TRY(pr_operations_show(store, message_id, consider, &choice, err));
    if (choice.nomem)
        return pr__fail_nomem(err, ORIGIN);
    if (!choice.record)
        return pr__fail(err, PR_E_NOT_FOUND, ORIGIN, "there is no message \"%s\"", message_id);
    pr__place place = {0};
    char blocker_id[PR_ID_SIZE_MAX + 1] = "";
    pr__situation situation = {.record = choice.record, .blocker_id = blocker_id};
    if (choice.record->box == PR_BOX_OUTBOX) {
        TRY(pr__store_place(store, choice.record, &place, err));
        situation.place = &place;
    }
    TRY(pr__store_blocker(store, choice.record, blocker_id, sizeof blocker_id, err));
    TRY(pr__store_now(store, &situation.now_us, err));
    pr__sentence_make(&situation, ret_explanation);
    return PR_OK;
}
