/*
 * Request and reply: the price of an article is asked for, and told by an endpoint of the same bus.
 * There are two kinds of answer; who asked looks at the type. Who is never answered is told so.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <postroom/postroom.h>
#include <postroom/sqlite.h>

#define PRICE_ASKED "urn:message:shop:price-asked"
#define PRICE_TOLD  "urn:message:shop:price-told"
#define NOT_SOLD    "urn:message:shop:not-sold"

static void must(pr_status status, const char *what, const pr_error *err)
{
    if (status == PR_OK)
        return;
    fprintf(stderr, "%s: %s (%s)\n", what, err->message, pr_status_text(status));
    exit(EXIT_FAILURE);
}

static pr_message text_message(const char *type, const char *text)
{
    return (pr_message)PR_MESSAGE(.type = type, .content_type = "text/plain", .body = text,
                                  .body_size_bytes = strlen(text));
}

/* The answer is part of the handler's transaction, like everything that it sends. */
static pr_handled tell_price(void *user, pr_scope *scope)
{
    const pr_message *asked = pr_scope_message(scope);
    bool tea = asked->body_size_bytes == 3 && memcmp(asked->body, "tea", 3) == 0;
    pr_message answer = tea ? text_message(PRICE_TOLD, "3.50") : text_message(NOT_SOLD, "sorry");
    (void)user;
    return pr_handled_if(pr_scope_reply(scope, &answer, NULL, NULL) == PR_OK);
}

static pr_handled say_nothing(void *user, pr_scope *scope)
{
    (void)user;
    (void)scope;
    return PR_HANDLED_OK;
}

static void ask(pr_bus *bus, const char *whom, const char *article, int64_t timeout_ms)
{
    static const char *const answers[] = {PRICE_TOLD, NOT_SOLD};
    const pr_request_options options =
        PR_REQUEST_OPTIONS(.timeout_ms = timeout_ms, .reply_types = answers, .reply_type_count = 2);
    pr_message question = text_message(PRICE_ASKED, article);
    pr_error err = PR_ERROR_INIT;
    pr_reply *reply = NULL;
    pr_status status = pr_bus_request(bus, whom, &question, &options, &reply, &err);
    if (status != PR_OK) {
        printf("%s: %s\n", article, err.message);
        return;
    }
    const pr_message *told = pr_reply_message(reply);
    printf("%s: %s %.*s\n", article, strcmp(told->type, PRICE_TOLD) == 0 ? "costs" : "not sold,",
           (int)told->body_size_bytes, (const char *)told->body);
    pr_reply_free(reply);
}

int main(void)
{
    pr_error err = PR_ERROR_INIT;
    pr_bus *bus = NULL;
    must(pr_bus_open(pr_sqlite_open, "shop.db", NULL, &bus, &err), "open", &err);
    must(pr_bus_on(bus, "prices", PRICE_ASKED, tell_price, NULL, &err), "prices", &err);
    must(pr_bus_on(bus, "silent", NOT_SOLD, say_nothing, NULL, &err), "silent", &err);
    must(pr_bus_start(bus, &err), "start", &err); /* the relay carries the answers */

    ask(bus, "prices", "tea", 30000);
    ask(bus, "prices", "coffee", 30000);
    ask(bus, "silent", "milk", 200);

    pr_bus_free(bus);
    return EXIT_SUCCESS;
}
