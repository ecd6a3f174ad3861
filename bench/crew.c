/*
 * A crew of threads.
 */
#include "crew.h"

#include <pthread.h>

#include "database.h"

typedef struct member {
    pthread_t thread;
    pthread_barrier_t *start;
    void (*work)(void *item);
    void *item;
} member;

static void *run(void *argument)
{
    member *self = argument;
    pthread_barrier_wait(self->start);
    self->work(self->item);
    return NULL;
}

double bench_crew_run(void (*work)(void *item), void *items, size_t item_size, int count)
{
    member members[BENCH_CREW_MAX];
    pthread_barrier_t start;
    if (count > BENCH_CREW_MAX || pthread_barrier_init(&start, NULL, (unsigned)count + 1) != 0)
        bench_fail("start a crew", "too many, or no barrier");
    for (int i = 0; i < count; i++) {
        members[i] =
            (member){.start = &start, .work = work, .item = (char *)items + (size_t)i * item_size};
        if (pthread_create(&members[i].thread, NULL, run, &members[i]) != 0)
            bench_fail("start a crew", "no thread");
    }
    double begun = bench_seconds();
    pthread_barrier_wait(&start);
    for (int i = 0; i < count; i++)
        pthread_join(members[i].thread, NULL);
    double seconds = bench_seconds() - begun;
    pthread_barrier_destroy(&start);
    return seconds;
}
