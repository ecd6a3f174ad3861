/*
 * The news of a receiver, for who has started it and waits for messages.
 *
 * Keeps: that no messages can come is said at once, and once for each reason, although it is tried
 * again for ever; that a message is dead is always said, since nothing dead comes back by itself.
 * Must not know: endpoints and transports; it hears of them as an observer.
 */
#include "cli/receive_news.h"

#include "base/error.h"
#include "base/text.h"
#include "cli/event.h"
#include "cli/output.h"

#define ORIGIN "cli.receive"

static const char *text_of(const pr_observation *seen)
{
    return seen->text ? seen->text : "";
}

/* What the endpoint is, or what hinders it. True: that is new, and worth a line. */
static bool is_news(pr__receive_news *news, const pr_observation *seen)
{
    bool troubled = news->trouble.status != PR_OK;
    if (seen->status != PR_OK) {
        news->reached = true;
        if (troubled && pr__text_equal(news->trouble.message, text_of(seen)))
            return false;
        pr_error_clear(&news->trouble);
        pr_status ignored = pr__fail(&news->trouble, seen->status, ORIGIN, "%s", text_of(seen));
        (void)ignored;
        return true;
    }
    if (pr__text_equal(seen->text, "stopped"))
        return false;
    news->reached = news->reached || pr__text_equal(seen->text, "subscribed");
    pr_error_clear(&news->trouble);
    return troubled;
}

static void say(const pr__cli *cli, const pr_observation *seen)
{
    if (cli->json)
        pr__event_print(cli, seen);
    else if (seen->kind == PR_OBSERVE_HANDLER_DEAD)
        (void)pr__report(cli, PR__EXIT_OK, "", "message \"%s\" is dead: %s; see postroom dead show",
                         seen->message_id ? seen->message_id : "", text_of(seen));
    else if (seen->status != PR_OK)
        (void)pr__report(cli, PR__EXIT_OK, "", "no messages come, trying again: %s", text_of(seen));
    else
        (void)pr__report(cli, PR__EXIT_OK, "", "messages come again");
}

static void hear(void *user, const pr_observation *seen)
{
    pr__receive_news *news = user;
    pthread_mutex_lock(&news->mutex);
    bool wanted = news->verbose || seen->kind == PR_OBSERVE_HANDLER_DEAD;
    if (seen->kind == PR_OBSERVE_ENDPOINT_STATE)
        wanted = is_news(news, seen) || wanted;
    if (news->verbose)
        pr__event_print(news->cli, seen);
    else if (wanted)
        say(news->cli, seen);
    pthread_mutex_unlock(&news->mutex);
}

void pr__receive_news_init(pr__receive_news *news, const pr__cli *cli, bool verbose)
{
    *news = (pr__receive_news){.cli = cli, .verbose = verbose, .trouble = PR_ERROR_INIT};
    pthread_mutex_init(&news->mutex, NULL);
    news->observer =
        (pr_observer){.size = (uint32_t)sizeof(pr_observer), .observe = hear, .user = news};
}

void pr__receive_news_done(pr__receive_news *news)
{
    pthread_mutex_destroy(&news->mutex);
}

bool pr__receive_news_reached(pr__receive_news *news)
{
    pthread_mutex_lock(&news->mutex);
    bool reached = news->reached;
    pthread_mutex_unlock(&news->mutex);
    return reached;
}
