/*
 * Circuit breakers per destination.
 *
 * Owns: the entries of destinations that lost something lately; usually there is none, and asking
 * costs one comparison.
 * Keeps: one probe at a time for each; at most PR__BREAKERS_MAX entries.
 * Must not know: clocks, transports, messages.
 */
#include "core/breaker.h"

#include <string.h>

#include "base/hash.h"

typedef struct breaker {
    char *destination;
    uint64_t hash;
    pr__breaker_state state;
    uint32_t losses;    /* in a row */
    bool others_served; /* during these losses */
    int64_t open_ms;    /* for how long it opens the next time */
    int64_t open_until_us;
    int64_t used_at_us;
} breaker;

struct pr__breakers {
    uint32_t losses_max;
    int64_t open_ms;
    int64_t open_max_ms;
    uint32_t count;
    breaker entries[PR__BREAKERS_MAX];
};

pr__breakers *pr__breakers_new(uint32_t losses_max, int64_t open_ms, int64_t open_max_ms)
{
    pr__breakers *breakers = pr__alloc(sizeof *breakers);
    if (!breakers)
        return NULL;
    breakers->losses_max = losses_max;
    breakers->open_ms = open_ms;
    breakers->open_max_ms = open_max_ms > open_ms ? open_max_ms : open_ms;
    return breakers;
}

void *pr__breakers_free(pr__breakers *breakers)
{
    if (breakers) {
        for (uint32_t i = 0; i < breakers->count; i++)
            pr__free(breakers->entries[i].destination);
    }
    return pr__free(breakers);
}

static breaker *find(const pr__breakers *breakers, const char *destination)
{
    if (breakers->count == 0)
        return NULL;
    uint64_t hash = pr__quick_hash(destination, strlen(destination), 0);
    for (uint32_t i = 0; i < breakers->count; i++) {
        const breaker *entry = &breakers->entries[i];
        if (entry->hash == hash && strcmp(entry->destination, destination) == 0)
            return (breaker *)(uintptr_t)entry;
    }
    return NULL;
}

static void forget(pr__breakers *breakers, breaker *entry)
{
    pr__free(entry->destination);
    *entry = breakers->entries[--breakers->count];
}

/* The closed entry that was not used for longest makes room; open ones stay. */
static bool make_room(pr__breakers *breakers)
{
    if (breakers->count < PR__BREAKERS_MAX)
        return true;
    breaker *oldest = NULL;
    for (uint32_t i = 0; i < breakers->count; i++) {
        breaker *entry = &breakers->entries[i];
        if (entry->state == PR__BREAKER_CLOSED &&
            (!oldest || entry->used_at_us < oldest->used_at_us))
            oldest = entry;
    }
    if (oldest)
        forget(breakers, oldest);
    return oldest != NULL;
}

static breaker *find_or_add(pr__breakers *breakers, const char *destination)
{
    breaker *entry = find(breakers, destination);
    if (entry || !make_room(breakers))
        return entry;
    char *copy = pr__strdup(destination);
    if (!copy)
        return NULL;
    entry = &breakers->entries[breakers->count++];
    *entry = (breaker){.destination = copy,
                       .hash = pr__quick_hash(destination, strlen(destination), 0),
                       .state = PR__BREAKER_CLOSED,
                       .open_ms = breakers->open_ms};
    return entry;
}

pr__breaker_verdict pr__breakers_ask(pr__breakers *breakers, const char *destination,
                                     int64_t now_us, int64_t *ret_wait_us)
{
    breaker *entry = find(breakers, destination);
    if (!entry)
        return PR__BREAKER_PASS;
    entry->used_at_us = now_us;
    switch (entry->state) {
    case PR__BREAKER_CLOSED:
        return PR__BREAKER_PASS;
    case PR__BREAKER_OPEN:
        if (now_us >= entry->open_until_us) {
            entry->state = PR__BREAKER_HALF_OPEN;
            return PR__BREAKER_PROBE;
        }
        *ret_wait_us = entry->open_until_us - now_us;
        return PR__BREAKER_REFUSE;
    case PR__BREAKER_HALF_OPEN:
        *ret_wait_us = breakers->open_ms * 1000; /* the probe is on its way */
        return PR__BREAKER_REFUSE;
    }
    return PR__BREAKER_PASS;
}

bool pr__breakers_answered(pr__breakers *breakers, const char *destination)
{
    breaker *entry = find(breakers, destination);
    if (!entry)
        return false;
    bool closes = entry->state != PR__BREAKER_CLOSED;
    forget(breakers, entry);
    return closes;
}

bool pr__breakers_lost(pr__breakers *breakers, const char *destination, bool others_served,
                       int64_t now_us)
{
    breaker *entry = find_or_add(breakers, destination);
    if (!entry)
        return false;
    entry->used_at_us = now_us;
    if (entry->losses < UINT32_MAX)
        entry->losses++;
    if (entry->state == PR__BREAKER_OPEN)
        return false; /* one that was on its way when it opened */
    entry->others_served |= others_served;
    bool reopens = entry->state == PR__BREAKER_HALF_OPEN;
    if (!reopens && (entry->losses < breakers->losses_max || !entry->others_served))
        return false;
    entry->state = PR__BREAKER_OPEN;
    entry->open_until_us = now_us + entry->open_ms * 1000;
    entry->open_ms =
        entry->open_ms > breakers->open_max_ms / 2 ? breakers->open_max_ms : entry->open_ms * 2;
    return !reopens;
}

void pr__breakers_unprobe(pr__breakers *breakers, const char *destination)
{
    breaker *entry = find(breakers, destination);
    if (entry && entry->state == PR__BREAKER_HALF_OPEN)
        entry->state = PR__BREAKER_OPEN; /* its time is over: the next one that asks is the probe */
}

void pr__breakers_prune(pr__breakers *breakers, int64_t before_us)
{
    for (uint32_t i = breakers->count; i > 0; i--) {
        breaker *entry = &breakers->entries[i - 1];
        if (entry->state != PR__BREAKER_HALF_OPEN && entry->used_at_us < before_us)
            forget(breakers, entry);
    }
}

pr__breaker_state pr__breakers_state(const pr__breakers *breakers, const char *destination)
{
    const breaker *entry = find(breakers, destination);
    return entry ? entry->state : PR__BREAKER_CLOSED;
}

uint32_t pr__breakers_open_count(const pr__breakers *breakers)
{
    uint32_t open = 0;
    for (uint32_t i = 0; i < breakers->count; i++)
        open += breakers->entries[i].state != PR__BREAKER_CLOSED;
    return open;
}
