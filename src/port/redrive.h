/*
 * What every store's redrive decides alike: which dead rows may be redriven, and the words for why
 * none was.
 */
#ifndef PR_PORT_REDRIVE_H
#define PR_PORT_REDRIVE_H

#include <stdbool.h>
#include <stdint.h>

#include <postroom/operations.h>

#include "base/memory.h"
#include "port/audit.h"
#include "port/store.h"

typedef struct pr__redrive {
    const pr_redrive_options *opt;
    pr__redrive_check check; /* NULL: every type may */
    void *user;
    bool inbox;
    int64_t now_us;
    int64_t retention_us; /* how long an inbox remembers */
    int64_t *places;      /* opt->limit of them fit; the caller's arena holds them */
    uint32_t count;
    uint32_t old, unregistered, marked; /* left out */
    char other_state[16];               /* of a row that is not dead; "" = none was met */
} pr__redrive;

/* A parked row that the filter found, or that has the id. Text is borrowed. */
typedef struct pr__redrive_row {
    int64_t place;
    const char *state;
    const char *type;
    uint32_t type_version;
    int64_t occurred_at_us;
    int64_t failed_at_us; /* when it failed first */
    bool marked;          /* its message was handled */
} pr__redrive_row;

pr_status pr__redrive_begin(pr__redrive *redrive, pr__arena *arena, const pr_redrive_options *opt,
                            pr__redrive_check check, void *user, pr_error *err);
/* How long the inbox remembers, by the setting; 0 or less = not set. */
void pr__redrive_remembers(pr__redrive *redrive, int64_t retention_ms);
/* Room for one more? */
static inline bool pr__redrive_room(const pr__redrive *redrive)
{
    return redrive->count < redrive->opt->limit;
}
/* Take the row, or count why it is left out. There must be room. */
void pr__redrive_consider(pr__redrive *redrive, const pr__redrive_row *row);

/* None was taken. Does it matter then whether the message stands elsewhere: in the log, or as a
   mark? */
bool pr__redrive_asks(const pr__redrive *redrive);
/* Why none was taken, when that is not what was asked for; known: it stands elsewhere. */
pr_status pr__redrive_refuse(const pr__redrive *redrive, bool known, const char *origin,
                             pr_error *err);

pr__audit_subject pr__redrive_subject(const pr__redrive *redrive);

/* A message that is in another state is not discarded. */
pr_status pr__discard_refuse(const char *message_id, const char *state, const char *origin,
                             pr_error *err);

#endif
