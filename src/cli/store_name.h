/*
 * The names of stores: which database a text means, and how it is shown without its secrets.
 */
#ifndef PR_CLI_STORE_NAME_H
#define PR_CLI_STORE_NAME_H

#include <stddef.h>

#define PR__STORE_LABEL_SIZE 512

typedef enum pr__store_kind {
    PR__STORE_SQLITE = 1, /* sqlite:PATH, or a plain path */
    PR__STORE_POSTGRES, /* postgresql://…, postgres://…, key=value …, postgresql:, postgres: */
    PR__STORE_OTHER     /* another scheme */
} pr__store_kind;

pr__store_kind pr__store_kind_of(const char *text);

/* The file of a SQLite store's name, or NULL when it is no such name. Points into text. */
const char *pr__store_path(const char *text);
/* What libpq takes: "" for `postgresql:`, so that the PG* variables say all. Points into text. */
const char *pr__store_conninfo(const char *text);
/* The name as it may be shown: a password is left out. */
void pr__store_label(const char *text, char *out, size_t size);

#endif
