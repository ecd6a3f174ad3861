/*
 * Memory: the only file that calls the allocator, and the arena over it.
 *
 * Owns: every block of the library, and in test builds the allocation that is made to fail.
 * Keeps: what is handed out by pr__alloc and the arena is zeroed; a failed realloc leaves the old
 * block alone.
 * Must not know: what the blocks hold.
 */
#include "base/memory.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"

#define ARENA_CHUNK_DEFAULT ((size_t)16 * 1024)
#define ARENA_ALIGN         alignof(max_align_t)

#ifdef PR_FAULT_POINTS
#include <stdatomic.h>

/* Test builds only: the whole process counts together, as the tests drive one thing at a time. */
static _Atomic int64_t alloc_count;
static _Atomic int64_t alloc_fail_at;

void pr__fault_alloc_fail_at(int64_t n)
{
    atomic_store(&alloc_fail_at, 0);
    atomic_store(&alloc_count, 0);
    atomic_store(&alloc_fail_at, n);
}

int64_t pr__fault_alloc_count(void)
{
    return atomic_load(&alloc_count);
}

bool pr__fault_alloc_fails(void)
{
    return atomic_fetch_add(&alloc_count, 1) + 1 == atomic_load(&alloc_fail_at);
}
#else
static bool pr__fault_alloc_fails(void)
{
    return false;
}
#endif

void *pr__alloc(size_t size)
{
    if (pr__fault_alloc_fails())
        return NULL;
    return calloc(1, size ? size : 1);
}

void *pr__alloc_array(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        return NULL;
    return pr__alloc(bytes);
}

void *pr__realloc_array(void *p, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || pr__fault_alloc_fails())
        return NULL;
    return realloc(p, bytes ? bytes : 1);
}

void *pr__free(void *p)
{
    free(p);
    return NULL;
}

char *pr__strdup(const char *text)
{
    return text ? pr__strndup(text, strlen(text)) : NULL;
}

char *pr__strndup(const char *text, size_t size)
{
    return pr__memdup(text, size);
}

/* The block is written whole here, so it need not be zeroed first. */
void *pr__memdup(const void *data, size_t size)
{
    if (size == SIZE_MAX)
        return NULL;
    char *copy = pr__realloc_array(NULL, size + 1, 1);
    if (!copy)
        return NULL;
    if (size > 0)
        memcpy(copy, data, size);
    copy[size] = '\0';
    return copy;
}

typedef struct arena_chunk {
    struct arena_chunk *next;
    size_t size; /* of bytes[] */
    size_t used;
    alignas(max_align_t) unsigned char bytes[];
} arena_chunk;

struct pr__arena {
    arena_chunk *current; /* the one that is filled now; older and oversize ones hang behind it */
    size_t chunk_size;
    size_t held; /* bytes of all chunks and of the arena itself */
};

pr__arena *pr__arena_new(size_t chunk_size)
{
    pr__arena *arena = pr__alloc(sizeof(*arena));
    if (!arena)
        return NULL;
    arena->chunk_size = chunk_size ? chunk_size : ARENA_CHUNK_DEFAULT;
    arena->held = sizeof(*arena);
    return arena;
}

void *pr__arena_free(pr__arena *arena)
{
    if (!arena)
        return NULL;
    arena_chunk *chunk = arena->current;
    while (chunk) {
        arena_chunk *next = chunk->next;
        pr__free(chunk);
        chunk = next;
    }
    return pr__free(arena);
}

/* Not zeroed: each piece is, or is written whole, when it is handed out. */
static arena_chunk *chunk_new(pr__arena *arena, size_t size)
{
    arena_chunk *chunk = pr__realloc_array(NULL, sizeof(*chunk) + size, 1);
    if (!chunk)
        return NULL;
    *chunk = (arena_chunk){.size = size};
    arena->held += sizeof(*chunk) + size;
    return chunk;
}

static size_t aligned(size_t size)
{
    return (size + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

/* A piece of wanted > 0 bytes, wherever it begins; NULL when out of memory. */
static unsigned char *take_piece(pr__arena *arena, size_t wanted)
{
    arena_chunk *chunk = arena->current;
    if (!chunk || chunk->size - chunk->used < wanted) {
        bool oversize = wanted > arena->chunk_size / 2;
        chunk = chunk_new(arena, oversize ? wanted : arena->chunk_size);
        if (!chunk)
            return NULL;
        if (oversize && arena->current) {
            /* a piece of its own behind the current chunk, whose room is kept */
            chunk->next = arena->current->next;
            arena->current->next = chunk;
        } else {
            chunk->next = arena->current;
            arena->current = chunk;
        }
    }
    unsigned char *piece = chunk->bytes + chunk->used;
    chunk->used += wanted;
    return piece;
}

/* The next piece begins where any type may: text may stand before it. */
static void align_next(const pr__arena *arena)
{
    arena_chunk *chunk = arena->current;
    size_t used = chunk ? aligned(chunk->used) : 0;
    if (chunk)
        chunk->used = used < chunk->size ? used : chunk->size;
}

void *pr__arena_alloc(pr__arena *arena, size_t size)
{
    if (size > SIZE_MAX / 2)
        return NULL;
    align_next(arena);
    size_t wanted = aligned(size > 0 ? size : 1);
    void *piece = take_piece(arena, wanted);
    return piece ? memset(piece, 0, wanted) : NULL;
}

static void *copy_in(pr__arena *arena, const void *data, size_t size)
{
    if (size > SIZE_MAX / 2)
        return NULL;
    unsigned char *copy = take_piece(arena, size + 1);
    if (!copy)
        return NULL;
    if (size > 0)
        memcpy(copy, data, size);
    copy[size] = '\0';
    return copy;
}

char *pr__arena_strdup(pr__arena *arena, const char *text)
{
    return text ? pr__arena_strndup(arena, text, strlen(text)) : NULL;
}

char *pr__arena_strndup(pr__arena *arena, const char *text, size_t size)
{
    return copy_in(arena, text, size);
}

void *pr__arena_memdup(pr__arena *arena, const void *data, size_t size)
{
    align_next(arena);
    return copy_in(arena, data, size);
}

size_t pr__arena_bytes(const pr__arena *arena)
{
    return arena->held;
}
