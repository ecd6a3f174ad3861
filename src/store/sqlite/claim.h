/*
 * Claiming slices of the log: what settle.c needs of it, since a settle and the next claim share
 * one commit.
 */
#ifndef PR_STORE_SQLITE_CLAIM_H
#define PR_STORE_SQLITE_CLAIM_H

#include "store/sqlite/journal.h"
#include "store/sqlite/row.h"
#include "store/sqlite/store.h"

/* Where the messages of a slice come from. */
typedef enum pr__claim_source {
    PR__CLAIM_UNDECIDED = 0,
    PR__CLAIM_NOTHING,  /* the lane is not claimed: live lease, or left alone */
    PR__CLAIM_TAKEOVER, /* an open slice whose lease has run out */
    PR__CLAIM_REST,     /* claimed before, neither published nor parked */
    PR__CLAIM_FRESH     /* not passed yet */
} pr__claim_source;

/* One lane in the hands of a claim. */
typedef struct pr__claim_lane {
    uint32_t lane;
    pr__claim_source source;
    bool head_known; /* head was read, or handed over by a settle in the same transaction */
    bool settled;    /* the settle's row is not written yet: it is owed even if nothing is chosen */
    bool released;   /* that settle published and parked nothing */
    bool exhausted;  /* the source has no more */
    bool single;     /* one message at a time: the slice was taken over too often */
    bool poison;     /* and that one killed its holder again */
    pr__journal head;
    uint32_t cursor; /* TAKEOVER, REST: how many of source_ids were looked at */
    pr__id_list source_ids;
    pr__id_list chosen;
    pr__item **items; /* the messages of chosen, in the same order */
    uint32_t item_capacity;
    pr__id_list lapsed; /* source ids whose row is gone from the log */
    int64_t pos;
    uint32_t passed;
    uint32_t slice; /* index in the batch */
} pr__claim_lane;

typedef struct pr__claimer {
    pr__sqlite_store *store;
    const pr__claim_options *opt;
    pr__batch *batch;      /* its arena holds everything */
    pr__claim_lane *lanes; /* by lane, all of the store */
    uint32_t lane_count;
    char token[PR_UUID_TEXT_SIZE];
    int64_t now;
    uint32_t count_left;
    uint64_t bytes_left;
    pr__row_memory memory;
    bool parked;        /* the reader has parked rows: one may block */
    bool bodies_left;   /* large bodies are to be read after the commit */
    bool any;           /* a message was chosen: the first may be of any size */
    bool limited;       /* a limit was hit */
    uint32_t last_lane; /* the last one that gave something */
    /* of one row that the claim writes, to look for it when the commit's outcome is not known */
    bool wrote;
    uint32_t witness_lane;
    int64_t witness_seq;
    char witness_token[PR_UUID_TEXT_SIZE];
} pr__claimer;

/* Make a claimer with its batch; *ret_claimer lies in the batch's arena. Reads the reader: inside
   the transaction. opt NULL: nothing is to be claimed, the lanes only carry settles, of a reader
   that may be gone. */
pr_status pr__claimer_begin(pr__sqlite_store *store, int64_t reader, const pr__claim_options *opt,
                            pr__claimer **ret_claimer, pr_error *err);
/* Choose messages, lane by lane, within the limits. */
pr_status pr__claimer_choose(pr__claimer *claimer, pr_error *err);
/* Write the journal rows of lanes that chose, moved or were settled. */
pr_status pr__claimer_write(pr__claimer *claimer, pr_error *err);
/* After the commit: lay the batch out and read the large bodies, which must not lengthen the time
   that other writers wait. */
pr_status pr__claimer_read(pr__claimer *claimer, pr_error *err);
/* Is there a slice to hand out, or did the claim at least pass rows? */
bool pr__claimer_found(const pr__claimer *claimer);

#endif
