/*
 * Runs a fuzz target without a fuzzer: every seed, then inputs made of seeds by changing, cutting,
 * repeating and joining them, the same ones in every run. One TAP line a kind.
 *
 *     PROGRAM SEEDS [ROUNDS]
 *
 * With libFuzzer the target is built alone: docs/development.md.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEDS_MAX  64
#define INPUT_MAX  8192
#define ROUNDS     20000
#define CHANGES_UP 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct input {
    uint8_t data[INPUT_MAX];
    size_t size;
} input;

static input seeds[SEEDS_MAX];
static size_t seed_count;
static uint32_t state = 20261130;

static uint32_t below(uint32_t limit)
{
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state % limit;
}

static int read_seeds(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    if (!folder)
        return -1;
    while ((entry = readdir(folder)) != NULL && seed_count < SEEDS_MAX) {
        char name[1024];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        FILE *file = fopen(name, "rbe");
        if (!file)
            continue;
        seeds[seed_count].size = fread(seeds[seed_count].data, 1, INPUT_MAX, file);
        seed_count++;
        fclose(file);
    }
    closedir(folder);
    return seed_count > 0 ? 0 : -1;
}

/* The target gets a block of just that size, so that a byte beyond it is found. */
static void run_one(const input *one)
{
    uint8_t *copy = malloc(one->size ? one->size : 1);
    if (!copy)
        exit(2);
    memcpy(copy, one->data, one->size);
    LLVMFuzzerTestOneInput(copy, one->size);
    free(copy);
}

static void change(input *at)
{
    static const uint8_t favourites[] = {0, 1, 0x7F, 0x80, 0xFF, '%', ':', '/', '@', 'F', 'A', 'S'};
    size_t where = at->size ? below((uint32_t)at->size) : 0;
    switch (below(6)) {
    case 0: /* a bit */
        if (at->size > 0)
            at->data[where] ^= (uint8_t)(1u << below(8));
        return;
    case 1: /* a byte */
        if (at->size > 0)
            at->data[where] = favourites[below(sizeof(favourites))];
        return;
    case 2: /* cut */
        at->size = where;
        return;
    case 3: /* a byte more */
        if (at->size < INPUT_MAX) {
            memmove(at->data + where + 1, at->data + where, at->size - where);
            at->data[where] = favourites[below(sizeof(favourites))];
            at->size++;
        }
        return;
    case 4: /* a piece once more */
        if (at->size > 0 && at->size * 2 - where <= INPUT_MAX) {
            memmove(at->data + at->size, at->data + where, at->size - where);
            at->size += at->size - where;
        }
        return;
    case 5: { /* the end of another seed */
        const input *other = &seeds[below((uint32_t)seed_count)];
        size_t from = other->size ? below((uint32_t)other->size) : 0;
        if (where + other->size - from <= INPUT_MAX) {
            memcpy(at->data + where, other->data + from, other->size - from);
            at->size = where + other->size - from;
        }
        return;
    }
    default:
        return;
    }
}

int main(int argc, char **argv)
{
    static input made;
    long rounds = argc > 2 ? strtol(argv[2], NULL, 10) : ROUNDS;
    if (argc < 2 || read_seeds(argv[1]) != 0) {
        printf("Bail out! there are no seeds in '%s'\n", argc > 1 ? argv[1] : "");
        return 1;
    }
    setvbuf(stdout, NULL, _IOLBF, 0); /* told before it is run, should it end there */
    printf("1..2\n");
    for (size_t i = 0; i < seed_count; i++)
        run_one(&seeds[i]);
    printf("ok 1 - %zu seeds\n", seed_count);
    for (long i = 0; i < rounds; i++) {
        made = seeds[below((uint32_t)seed_count)];
        for (uint32_t k = below(CHANGES_UP) + 1; k > 0; k--)
            change(&made);
        run_one(&made);
    }
    printf("ok 2 - %ld inputs made of them\n", rounds);
    return 0;
}
