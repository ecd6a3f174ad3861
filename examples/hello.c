/*
 * Hello: a bus in a database file, with one endpoint; a message is published and handled. The first
 * call that does not answer PR_OK, which is 0, ends the chain, and err says what it was.
 */
#include <err.h>
#include <stdio.h>

#include <postroom/postroom.h>
#include <postroom/sqlite.h>

static pr_handled greet(void *out, pr_scope *scope)
{
    return pr_handled_if(fprintf(out, "hello, %s\n", pr_scope_message(scope)->key) > 0);
}

int main(void)
{
    pr_error err = PR_ERROR_INIT;
    pr_bus *bus = NULL;
    pr_message hello = PR_MESSAGE(.type = "urn:message:demo:hello", .key = "world");
    if (pr_bus_open(pr_sqlite_open, "hello.db", NULL, &bus, &err) ||
        pr_bus_on(bus, "greeter", hello.type, greet, stdout, &err) || pr_bus_start(bus, &err) ||
        pr_bus_publish(bus, &hello, NULL, &err) || pr_bus_wait_idle(bus, 10000, &err))
        errx(1, "%s", err.message);
    pr_bus_free(bus);
}
