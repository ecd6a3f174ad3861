/*
 * Routes: what a transport reads out of a destination and a message to know where it goes.
 *
 * Addresses are checked by core; a transport only takes them apart, without copying, and refuses
 * what it cannot read.
 */
#ifndef PR_PORT_ROUTE_H
#define PR_PORT_ROUTE_H

#include <stdbool.h>
#include <stddef.h>

#include <postroom/error.h>
#include <postroom/message.h>

typedef enum pr__route_kind { PR__ROUTE_TOPIC = 1, PR__ROUTE_IN, PR__ROUTE_REPLY } pr__route_kind;

/* A piece of a text that goes on behind it. */
typedef struct pr__span {
    const char *text; /* NULL when absent */
    size_t size;
} pr__span;

typedef struct pr__route {
    pr__route_kind kind;
    pr__span scheme;
    const char *path;  /* all behind "://": "topic/<urn>", … */
    pr__span type;     /* of a topic, or of an `in` for one type */
    pr__span endpoint; /* endpoint id or reply id */
} pr__route;

/* CONTENT when it is no address; the message names the part. Spans point into destination. */
pr_status pr__route_parse(const char *destination, pr__route *ret_route, pr_error *err);
bool pr__span_equal(pr__span span, const char *text);

/* May the message be confirmed although its topic reaches nobody? Looks for the header
   postroom-unrouted-ok at the top of the headers; {"bool": false} is a no. */
bool pr__route_unrouted_ok(const pr_message *message);

#define PR__SCHEME_SIZE_MAX 31

/* Is this a scheme, [a-z][a-z0-9+.-]*, of at most that many bytes? NULL is none. */
bool pr__scheme_valid(const char *scheme);
/* May a transport have it: a scheme, and not `local`? INVALID otherwise. */
pr_status pr__scheme_check(const char *scheme, pr_error *err);

#endif
