/*
 * Domain events: raised into an aggregate, tracked by a unit, enqueued at its end.
 *
 * Keeps: an event has its id and time from the moment it is raised, so that a second try writes the
 * same message; each is enqueued once a transaction; it leaves its aggregate only when that
 * transaction is known to have committed. Nothing is dispatched here, ever.
 * Must not know: what handlers exist.
 */
#include <postroom/event_source.h>

#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "base/uuid.h"
#include "core/contract.h"
#include "core/unit.h"

#define ORIGIN     "events"
#define EVENTS_MAX 100000 /* raised and not committed, of one aggregate */

struct pr__raised_event {
    struct pr__raised_event *next;
    char id[PR_UUID_TEXT_SIZE];
    uint32_t type_version;
    int64_t occurred_at_us;
    char *type;
    char *key;
    void *object; /* the copy of the caller's struct */
    size_t object_size;
};

static void *event_free(struct pr__raised_event *event)
{
    pr__free(event->type);
    pr__free(event->key);
    pr__free(event->object);
    return pr__free(event);
}

void pr_event_source_init(pr_event_source *source)
{
    if (source)
        *source = (pr_event_source){.size = (uint32_t)sizeof *source};
}

static void drop_first(pr_event_source *source)
{
    struct pr__raised_event *event = source->first;
    source->first = event->next;
    if (!source->first)
        source->last = NULL;
    source->count--;
    event_free(event);
}

void pr_event_source_done(pr_event_source *source)
{
    while (source && source->first)
        drop_first(source);
}

static pr_status check_raise(const pr_event_source *source, const char *type, const char *key,
                             const void *event, size_t event_size, pr_error *err)
{
    if (!source || source->size < sizeof *source)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "the source is NULL, or not made by pr_event_source_init");
    if (pr__text_empty(type) || !event || event_size == 0)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "an event needs a type and an object");
    if (strlen(type) > PR_TYPE_SIZE_MAX)
        return pr__fail(err, PR_E_LIMIT, ORIGIN, "the type has %zu bytes, at most %d", strlen(type),
                        PR_TYPE_SIZE_MAX);
    if (key && key[0] == '\0')
        return pr__fail(err, PR_E_INVALID, ORIGIN, "the key is empty; NULL means none");
    if (key && strlen(key) > PR_ID_SIZE_MAX)
        return pr__fail(err, PR_E_LIMIT, ORIGIN, "the key has %zu bytes, at most %d", strlen(key),
                        PR_ID_SIZE_MAX);
    if (event_size > PR_BODY_SIZE_MAX)
        return pr__fail(err, PR_E_LIMIT, ORIGIN, "the event has %zu bytes, at most %lld",
                        event_size, PR_BODY_SIZE_MAX);
    if (source->count >= EVENTS_MAX)
        return pr__fail(err, PR_E_LIMIT, ORIGIN,
                        "%u events are raised and not committed, at most %d", source->count,
                        EVENTS_MAX);
    return PR_OK;
}

/* Born now: a retry of the commit sends the same id and the same time. */
static void give_birth(struct pr__raised_event *event)
{
    const pr_clock *clock = pr_clock_system();
    const pr_random *random = pr_random_system();
    uint8_t bytes[10];
    random->fill(random->user, bytes, sizeof bytes);
    event->occurred_at_us = clock->wall_us(clock->user);
    pr__uuid7(event->occurred_at_us, bytes, event->id);
}

pr_status pr_event_source_raise(pr_event_source *source, const char *type, uint32_t type_version,
                                const char *key, const void *event, size_t event_size,
                                pr_error *err)
{
    TRY(check_raise(source, type, key, event, event_size, err));
    struct pr__raised_event *raised = pr__alloc(sizeof *raised);
    if (!raised)
        return pr__fail_nomem(err, ORIGIN);
    raised->type = pr__strdup(type);
    raised->key = pr__strdup(key);
    raised->object = pr__memdup(event, event_size);
    if (!raised->type || (key && !raised->key) || !raised->object) {
        event_free(raised);
        return pr__fail_nomem(err, ORIGIN);
    }
    raised->object_size = event_size;
    raised->type_version = type_version == 0 ? 1 : type_version;
    give_birth(raised);
    if (source->last)
        source->last->next = raised;
    else
        source->first = raised;
    source->last = raised;
    source->count++;
    return PR_OK;
}

/* ---- in a unit ---- */

pr_status pr_unit_track(pr_unit *unit, pr_event_source *source, const pr_contracts *contracts,
                        pr_error *err)
{
    if (!source || source->size < sizeof *source || !contracts)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "source or contracts is NULL, or the source was not initialised");
    TRY(pr__unit_usable(unit, err));
    pr__unit_core *core = NULL;
    TRY(pr__unit_core_get(pr__unit_root(unit), &core, err));
    for (size_t i = 0; i < core->tracked_count; i++) {
        if (core->tracked[i].source == source)
            return PR_OK;
    }
    if (core->tracked_count == core->tracked_capacity) {
        size_t capacity = core->tracked_capacity == 0 ? 4 : core->tracked_capacity * 2;
        pr__tracked *grown = pr__realloc_array(core->tracked, capacity, sizeof *grown);
        if (!grown)
            return pr__fail_nomem(err, ORIGIN);
        core->tracked = grown;
        core->tracked_capacity = capacity;
    }
    core->tracked[core->tracked_count++] =
        (pr__tracked){.source = source, .contracts = contracts, .unit = unit};
    return PR_OK;
}

/* An id or a time that the contract repeats in the body: ours where the object leaves it open, the
   object's own otherwise. */
static void stamp(const pr_contract *contract, struct pr__raised_event *event)
{
    for (const pr_field *field = contract->fields; field && field->name; field++) {
        char *place = (char *)event->object + field->offset;
        if ((field->flags & PR_FIELD_MESSAGE_ID) && field->kind == PR_FIELD_UUID) {
            uint8_t bytes[16];
            if (place[0] != '\0' && pr__uuid_parse(place, bytes))
                pr__uuid_text(bytes, event->id);
            else if (place[0] != '\0')
                continue; /* the codec refuses it */
            memcpy(place, event->id, sizeof event->id);
        } else if ((field->flags & PR_FIELD_OCCURRED_AT) && field->kind == PR_FIELD_INSTANT) {
            int64_t instant_us;
            memcpy(&instant_us, place, sizeof instant_us);
            if (instant_us == 0)
                memcpy(place, &event->occurred_at_us, sizeof event->occurred_at_us);
            else
                event->occurred_at_us = instant_us;
        }
    }
}

/* The messages of one flush, and their bodies. */
typedef struct event_batch {
    pr_message *messages;
    void **bodies;
    size_t count;
} event_batch;

static void event_batch_done(event_batch *encoded)
{
    for (size_t i = 0; i < encoded->count; i++)
        pr_free(encoded->bodies[i]);
    pr__free(encoded->bodies);
    pr__free(encoded->messages);
}

static pr_status encode_event(const pr_contracts *contracts, struct pr__raised_event *event,
                              event_batch *encoded, pr_error *err)
{
    const pr_contract *contract = pr_contracts_find(contracts, event->type, event->type_version);
    if (!contract)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "event '%s' version %u has no contract; register it", event->type,
                        event->type_version);
    bool raw = (contract->flags & PR_CONTRACT_RAW) != 0;
    size_t size = raw ? sizeof(pr_bytes) : contract->object_size;
    if (event->object_size != size)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "event '%s' version %u has %zu bytes, its contract's struct has %zu",
                        event->type, event->type_version, event->object_size, size);
    stamp(contract, event);
    void *body;
    size_t body_size;
    pr_status status = pr_contract_encode(contract, event->object, &body, &body_size, err);
    if (status != PR_OK) {
        pr__error_context(err, "event '%s' version %u", event->type, event->type_version);
        return status;
    }
    encoded->bodies[encoded->count] = body;
    encoded->messages[encoded->count++] =
        (pr_message)PR_MESSAGE(.id = event->id, .type = event->type,
                               .type_version = event->type_version,
                               .content_type = pr_contract_content_type(contract),
                               .key = event->key, .occurred_at_us = event->occurred_at_us,
                               .body = body, .body_size_bytes = body_size,
                               .headers = pr__contract_headers(contract));
    return PR_OK;
}

static pr_status flush_one(pr__tracked *tracked, pr_error *err)
{
    if (tracked->source->count <= tracked->flushed_count)
        return PR_OK;
    size_t count = tracked->source->count - tracked->flushed_count;
    __attribute__((cleanup(event_batch_done))) event_batch encoded = {NULL, NULL, 0};
    encoded.messages = pr__alloc_array(count, sizeof *encoded.messages);
    encoded.bodies = pr__alloc_array(count, sizeof *encoded.bodies);
    if (!encoded.messages || !encoded.bodies)
        return pr__fail_nomem(err, ORIGIN);
    struct pr__raised_event *event = tracked->source->first;
    for (uint32_t i = 0; i < tracked->flushed_count; i++)
        event = event->next;
    for (; event; event = event->next)
        TRY(encode_event(tracked->contracts, event, &encoded, err));
    TRY(pr__outbox_enqueue_events(tracked->unit, encoded.messages, encoded.count, err));
    tracked->flushed_count += (uint32_t)encoded.count;
    return PR_OK;
}

pr_status pr__events_flush(pr_unit *unit, pr_error *err)
{
    pr__unit_core *core = pr__unit_root(unit)->core;
    for (size_t i = 0; core && i < core->tracked_count; i++) {
        pr__tracked *tracked = &core->tracked[i];
        if (unit->outer && tracked->unit != unit)
            continue;
        TRY(flush_one(tracked, err));
    }
    return PR_OK;
}

void pr__events_hand_over(pr_unit *nested)
{
    pr__unit_core *core = pr__unit_root(nested)->core;
    for (size_t i = 0; core && i < core->tracked_count; i++) {
        if (core->tracked[i].unit == nested)
            core->tracked[i].unit = nested->outer;
    }
}

void pr__events_settle(pr_unit *root, bool committed)
{
    pr__unit_core *core = root->core;
    for (size_t i = 0; core && i < core->tracked_count; i++) {
        pr__tracked *tracked = &core->tracked[i];
        for (; committed && tracked->flushed_count > 0 && tracked->source->first;
             tracked->flushed_count--)
            drop_first(tracked->source);
    }
    if (core)
        core->tracked_count = 0;
}

pr_status pr_unit_flush(pr_unit *unit, pr_error *err)
{
    TRY(pr__unit_usable(unit, err));
    return pr__events_flush(unit, err);
}
