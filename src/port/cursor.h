/*
 * The cursor of a list: where the last row that was given stands in the order of its list.
 */
#ifndef PR_PORT_CURSOR_H
#define PR_PORT_CURSOR_H

#include <stddef.h>
#include <stdint.h>

#include <postroom/operations.h>

#define PR__CURSOR_PARTS 3

/* The kind says which rows are meant by the parts. */
typedef enum pr__position_kind {
    PR__AT_NOWHERE = 0,
    PR__AT_LOG = 'o',     /* id in the log */
    PR__AT_DELAYED = 'd', /* id of a delayed one */
    PR__AT_INBOX = 'i',   /* place */
    PR__AT_MARK = 'm',    /* processed_at; how many of that instant were given */
    PR__AT_BOTH = 'b'     /* occurred_at; box; place */
} pr__position_kind;

typedef struct pr__position {
    pr__position_kind kind;
    int64_t part[PR__CURSOR_PARTS];
} pr__position;

void pr__cursor_write(const pr__position *position, char *out, size_t size);
/* Read opt->after; NULL is nowhere. INVALID: it is no cursor of this list. */
pr_status pr__cursor_read(const pr_list_options *opt, pr__position *ret_position, pr_error *err);

#endif
