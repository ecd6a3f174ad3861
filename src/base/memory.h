/*
 * Memory: the only file that calls malloc. Test builds can make the n-th allocation fail.
 */
#ifndef PR_BASE_MEMORY_H
#define PR_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *pr__alloc(size_t size);                                /* zeroed; NULL when out of memory */
void *pr__alloc_array(size_t count, size_t size);            /* zeroed, overflow checked */
void *pr__realloc_array(void *p, size_t count, size_t size); /* old block stays on failure */
void *pr__free(void *p);                                     /* returns NULL */
char *pr__strdup(const char *text);                          /* NULL for NULL */
char *pr__strndup(const char *text, size_t size);
void *pr__memdup(const void *data, size_t size); /* one byte more, NUL; never NULL for size 0 */

/* Locals that clean themselves up. */
#define DEFINE_AUTO(type, free_fn)                                                                 \
    static inline void pr__auto_##type(type **p)                                                   \
    {                                                                                              \
        if (*p)                                                                                    \
            free_fn(*p);                                                                           \
    }                                                                                              \
    struct pr__auto_##type##_swallow_semicolon
#define AUTO(type) __attribute__((cleanup(pr__auto_##type))) type *
#define TAKE(p)                                                                                    \
    (__extension__({                                                                               \
        __typeof__(p) taken_ = (p);                                                                \
        (p) = NULL;                                                                                \
        taken_;                                                                                    \
    }))

DEFINE_AUTO(char, pr__free);
DEFINE_AUTO(void, pr__free);

/* An arena: many small pieces, freed at once. Zeroed memory, aligned for any type. */
typedef struct pr__arena pr__arena;
pr__arena *pr__arena_new(size_t chunk_size); /* 0 = 16 KiB; NULL when out of memory */
void *pr__arena_free(pr__arena *arena);      /* accepts NULL, returns NULL */
void *pr__arena_alloc(pr__arena *arena, size_t size);
char *pr__arena_strdup(pr__arena *arena, const char *text);               /* NULL for NULL */
char *pr__arena_strndup(pr__arena *arena, const char *text, size_t size); /* adds a NUL */
void *pr__arena_memdup(pr__arena *arena, const void *data, size_t size);  /* adds a NUL */
size_t pr__arena_bytes(const pr__arena *arena);                           /* held in all */
DEFINE_AUTO(pr__arena, pr__arena_free);

#endif
