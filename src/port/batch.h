/*
 * A batch: what one claim gave, item by item, and what became of each.
 *
 * The store fills it, the holder (relay, or a subscription of the database transport) writes the
 * results, pr__batch_close applies the order rules, the store settles. Everything lives in the
 * batch's arena. A batch is of one kind: slices of the log, or parked rows.
 */
#ifndef PR_PORT_BATCH_H
#define PR_PORT_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/message.h>
#include <postroom/store.h>

#include "base/memory.h"
#include "base/uuid.h"

#define PR_READER_DELAYED 0 /* parked rows that wait for their time */
#define PR_READER_RELAY   1

/* What became of an item. */
typedef enum pr__result {
    PR__RESULT_OPEN = 0,  /* not sent: goes to rest; a parked one back to what it was */
    PR__RESULT_PUBLISHED, /* confirmed: nothing more to do */
    PR__RESULT_LOST,      /* sent, outcome unknown: rest; a parked one failed, uncharged */
    PR__RESULT_FAILED,    /* parked as failed: attempts + 1, due after retry_delay_ms */
    PR__RESULT_DEFERRED,  /* parked as failed: attempts unchanged, due after retry_delay_ms */
    PR__RESULT_DEAD,      /* parked as dead: attempts + 1 */
    PR__RESULT_EXPIRED,   /* parked as dead because expires_at has passed: attempts unchanged */
    PR__RESULT_HELD       /* parked as held behind an earlier one of its key */
} pr__result;

typedef struct pr__item {
    pr_message message; /* points into the batch's arena; destination is resolved, never NULL */
    int64_t log_id;     /* of a parked item too: its id in the log */
    uint32_t lane;
    uint32_t slice;         /* index into batch->slices; PR__NO_SLICE for a parked item */
    uint32_t attempts;      /* charged so far */
    uint32_t suspicion;     /* times lost so far while it may have closed the connection; > 0: send
                           it alone. The holder adds one a loss; settle keeps it in rest */
    bool blocked;           /* an older parked row of its key blocks it: must not be sent */
    bool poison;            /* it killed its holders: do not send, settle FAILED */
    const char *unreadable; /* why the row cannot be read as a message: settle DEAD; or NULL */
    char token[PR_UUID_TEXT_SIZE]; /* of a parked item: its lock */
    /* the holder's part */
    pr__result result;
    int64_t retry_delay_ms;
    const char *error; /* one line; in the batch's arena */
    bool fenced;       /* set by settle: this item's outcome was discarded */
} pr__item;

#define PR__NO_SLICE UINT32_MAX

/* The open slice of one lane. */
typedef struct pr__slice {
    uint32_t lane;
    int64_t seq; /* of the journal row that holds it */
    char token[PR_UUID_TEXT_SIZE];
    uint32_t attempt; /* takeovers without a settle */
    bool takeover;    /* it was somebody else's before */
    bool again;       /* its rows come out of rest: they may have been delivered before */
    bool fenced;      /* set by settle or renew: somebody took over */
} pr__slice;

typedef struct pr__batch {
    pr__arena *arena;
    int64_t reader;
    pr_order order;        /* the reader's policy: HOLD, SKIP or HALT */
    int64_t claimed_at_us; /* database clock; expires_at is judged by it */
    int64_t lease_ms;
    pr__slice *slices; /* NULL for parked rows */
    uint32_t slice_count;
    pr__item *items; /* log: by (lane, id); parked: by (key, id) */
    uint32_t item_count;
    uint32_t passed_count; /* rows that were passed over: of other readers, filtered out */
    bool more;             /* limits were hit: another claim will find something at once */
} pr__batch;

pr__batch *pr__batch_new(void); /* NULL when out of memory */
void *pr__batch_free(pr__batch *batch);
DEFINE_AUTO(pr__batch, pr__batch_free);

/* Keep an error text with an item, made one line and cut to PR_ERROR_TEXT_SIZE_MAX. */
void pr__batch_set_error(pr__batch *batch, pr__item *item, const char *text);

/*
 * Apply the order rules of a slice before it is settled, so that no holder can forget one:
 * under HOLD and HALT, per (tenant, key) and in id order,
 * - after one that stays OPEN or LOST, all later ones go OPEN (to rest), none is parked, even if it
 *   was marked FAILED or DEAD by itself; one already PUBLISHED stays so;
 * - after one FAILED, DEFERRED, DEAD, EXPIRED or HELD, each later one still OPEN becomes HELD, and
 *   so does one that is marked blocked.
 * Under SKIP a blocked flag is never set and later ones keep their own result.
 * For parked items (they are the run of a key): after one that is not PUBLISHED, later OPEN ones
 * stay OPEN.
 */
void pr__batch_close(pr__batch *batch);

#endif
