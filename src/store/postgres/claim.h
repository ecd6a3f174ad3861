/*
 * Claiming slices of the log: what choose.c, claim.c and settle.c share, since a settle and the
 * next claim are one commit.
 */
#ifndef PR_STORE_POSTGRES_CLAIM_H
#define PR_STORE_POSTGRES_CLAIM_H

#include "store/postgres/journal.h"
#include "store/postgres/store.h"

#define PR__PG_READING_SIZE 2400

/* Where the messages of a slice come from. */
typedef enum pr__pg_source {
    PR__PG_SOURCE_UNDECIDED = 0,
    PR__PG_SOURCE_NOTHING,  /* the lane is not claimed: live lease, or left alone */
    PR__PG_SOURCE_TAKEOVER, /* an open slice whose lease has run out */
    PR__PG_SOURCE_REST,     /* claimed before, neither published nor parked */
    PR__PG_SOURCE_LATE      /* late rows and fresh ones */
} pr__pg_source;

/* A row that a claim may take. */
typedef struct pr__pg_candidate {
    int64_t id;
    int64_t size;
    bool found; /* false: of a known id, the row is gone from the log */
    bool takes; /* it is meant for this reader */
    bool late;
} pr__pg_candidate;

/* One lane in the hands of a claim. */
typedef struct pr__pg_lane {
    uint32_t lane;
    pr__pg_source source;
    pr__pg_journal head; /* the newest row, and then what the next row is to be */
    bool settled;        /* a settle's row is owed even if nothing is chosen */
    bool released;       /* that settle published and parked nothing */
    bool renewed;        /* a renewal's row is owed */
    bool single;         /* one message at a time: the slice was taken over too often */
    bool poison;         /* and that one killed its holder again */

    /* what the look at the log gave, in the order in which it is to be taken */
    pr__pg_candidate *queue;
    uint32_t queue_count, queue_capacity;
    uint32_t late_count; /* the first of the queue are late */
    bool draining;       /* they are of drain */
    bool late_cut;       /* there are more late ones than were read: nothing fresh beside them */
    bool fresh_cut;      /* there are more fresh ones than were read */
    pr__pg_list ended;   /* members of pend that have ended in the snapshot */
    uint64_t xmax;       /* of the snapshot */
    const pr__pg_list *xip;

    uint32_t cursor; /* how many of the queue were taken or passed */
    bool exhausted;  /* nothing more is taken in this claim */
    pr__pg_list chosen;
    uint32_t scattered; /* the first of them are no run of the log: taken over, rest, or late */
    uint32_t passed;
    bool wrote;     /* its row was won */
    uint32_t entry; /* index of its row in the write */
} pr__pg_lane;

typedef struct pr__pg_claimer {
    pr__pg_store *store;
    const pr__claim_options *opt; /* NULL: nothing is claimed, the lanes carry settles only */
    pr__batch *batch;             /* its arena holds everything */
    pr__pg_lane *lanes;           /* by lane, all of the store */
    uint32_t lane_count;
    char token[PR_UUID_TEXT_SIZE];
    int64_t now_us; /* the database's */
    uint32_t count_left;
    uint64_t bytes_left;
    bool any;     /* a message was chosen: the first may be of any size */
    bool limited; /* a limit was hit */
    uint32_t last_lane;
    pr__pg_entry *entries;
    uint32_t entry_count;
    pr__pg_parking *parkings;
    uint32_t parking_count, parking_capacity;
} pr__pg_claimer;

/* Make a claimer with its batch; *ret_claimer lies in the batch's arena. Inside the transaction.
   NOT_FOUND: the reader is gone. */
pr_status pr__pg_claimer_begin(pr__pg_store *store, int64_t reader, const pr__claim_options *opt,
                               pr__pg_claimer **ret_claimer, pr_error *err);
/* Begin the transaction and make a claimer, after a rebase where the cluster is another. On failure
   nothing is open. */
pr_status pr__pg_claimer_open(pr__pg_store *store, int64_t reader, const pr__claim_options *opt,
                              pr__pg_claimer **ret_claimer, pr_error *err);
/* Choose messages within the limits (choose.c). */
pr_status pr__pg_claimer_choose(pr__pg_claimer *claimer, pr_error *err);
/* Is there a slice to hand out, or did the claim at least pass rows? */
bool pr__pg_claimer_found(const pr__pg_claimer *claimer);
/* Write the journal rows of lanes that chose, passed, were settled or renewed, and commit. A commit
   of unknown outcome is repeated until it is known. On return nothing is open; lanes[i].wrote says
   whose row stands. A lane that lost its place has chosen nothing. */
pr_status pr__pg_claimer_commit(pr__pg_claimer *claimer, const char *fault, pr_error *err);
/* After the commit: read the messages and what blocks them into the batch, as far as the commit has
   not done so (claim_read.c). */
pr_status pr__pg_claimer_read(pr__pg_claimer *claimer, pr_error *err);

/* The statement that reads the fresh messages of a claim, made before its commit (claim_read.c). */
typedef struct pr__pg_reading {
    pr__pg_array arrays[3];
    pr__pg_params params;
    char sql[PR__PG_READING_SIZE];
    uint32_t *lanes; /* whose runs they are */
    uint32_t lane_count;
    PGresult *result;
} pr__pg_reading;

/* Done is to be called also after a failure. */
pr_status pr__pg_reading_init(pr__pg_reading *reading, pr__pg_claimer *claimer, pr_error *err);
void pr__pg_reading_done(pr__pg_reading *reading);
/* false: there is nothing that it could read. */
bool pr__pg_reading_call(const pr__pg_reading *reading, pr__pg_call *ret_call);
/* Take the messages out of its result, if there is one, for the lanes that were won. */
void pr__pg_reading_take(pr__pg_reading *reading, pr__pg_claimer *claimer);

/* Give the slices of a batch back, nothing sent, as well as can be: the lease ends at any rate
   (settle.c). */
void pr__pg_give_back(pr__pg_store *store, pr__batch *batch);
/* Write the rows of lanes that were of another cluster anew (rebase.c). */
pr_status pr__pg_rebase(pr__pg_store *store, int64_t reader, pr_error *err);

#endif
