/*
 * What `postroom receive` says while it runs: that it gets no messages, and why; that one is dead.
 */
#ifndef PR_CLI_RECEIVE_NEWS_H
#define PR_CLI_RECEIVE_NEWS_H

#include <pthread.h>
#include <stdbool.h>

#include <postroom/error.h>
#include <postroom/observer.h>

#include "cli/cli.h"

typedef struct pr__receive_news {
    const pr__cli *cli;
    bool verbose; /* every event, a line each */
    pthread_mutex_t mutex;
    bool reached;     /* the transport has answered, well or not */
    pr_error trouble; /* why no messages come now; PR_OK: they come */
    pr_observer observer;
} pr__receive_news;

void pr__receive_news_init(pr__receive_news *news, const pr__cli *cli, bool verbose);
void pr__receive_news_done(pr__receive_news *news);

/* Has the transport answered? Before that silence means nothing. */
bool pr__receive_news_reached(pr__receive_news *news);

#endif
