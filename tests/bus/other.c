/*
 * Other processes, as the test sees them: started, heard, killed, stopped.
 */
#include "bus/other.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

other other_start_with(world *w, const char *mode, const char *threads, const char *fault)
{
    other o = {.w = w};
    int ends[2], inputs[2];
    posix_spawn_file_actions_t actions;
    char self[] = "/proc/self/exe", flag[] = "--child";
    char *argv[] = {self,
                    flag,
                    (char *)(uintptr_t)mode,
                    w->address,
                    (char *)(uintptr_t)threads,
                    (char *)(uintptr_t)fault,
                    NULL};
    /* closed in children that come later: they must not keep this one waiting */
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(pipe2(inputs, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, inputs[0], STDIN_FILENO);
    assert_int_equal(posix_spawn(&o.pid, self, &actions, NULL, argv, environ), 0);
    world_other(w, o.pid);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    close(inputs[0]);
    o.said = ends[0];
    o.told = inputs[1];
    return o;
}

other other_start(world *w, const char *mode, const char *threads)
{
    return other_start_with(w, mode, threads, "");
}

char other_hear(const other *o)
{
    char word = 0;
    struct pollfd of = {.fd = o->said, .events = POLLIN};
    int ready = 0;
    while ((ready = poll(&of, 1, (int)PATIENCE_MS)) < 0 && errno == EINTR)
        ;
    if (ready == 0)
        fail_msg("the other process says nothing");
    while (read(o->said, &word, 1) < 0 && errno == EINTR)
        ;
    return word;
}

int other_wait(const other *o)
{
    int status = 0;
    assert_int_equal(waitpid(o->pid, &status, 0), o->pid);
    world_other_ended(o->w, o->pid);
    close(o->said);
    return status;
}

void other_tell(other *o)
{
    if (o->told >= 0)
        close(o->told);
    o->told = -1;
}

int other_end(other *o, int number)
{
    assert_int_equal(kill(o->pid, number), 0);
    other_tell(o);
    return other_wait(o);
}

/* The test's own endpoint reads the same log, or the same queue. */
void other_world(world *w)
{
    pr_error err = PR_ERROR_INIT;
    w->receiver = pr_transport_free(w->receiver);
    w->sender = pr_transport_free(w->sender);
    if (bus_carrier_in_use) {
        bus_carrier_in_use->fresh();
        assert_int_equal(setenv(BUS_CARRIER_ADDRESS, bus_carrier_in_use->address(), 1), 0);
    }
    w->receiver = other_transport(w);
    w->sender = other_transport(w);
    check_ok(pr_transport_open(w->sender, 5000, &err), &err, "open");
    w->opt.lease_ms = 600;
    world_start(w);
}

pr_transport *other_transport(world *w)
{
    pr_error err = PR_ERROR_INIT;
    pr_transport *transport = NULL;
    if (bus_carrier_in_use)
        check_ok(bus_carrier_in_use->make(&transport, &err), &err, "carrier");
    else
        check_ok(pr_database_transport_new(w->store, NULL, &transport, &err), &err, "database");
    return transport;
}

void other_send(world *w, const char *id)
{
    char destination[80];
    (void)snprintf(destination, sizeof destination, "%s://topic/" TYPE_ORDER, w->sender->name);
    pr_message message =
        PR_MESSAGE(.id = id, .type = TYPE_ORDER, .type_version = 1,
                   .content_type = "application/json", .destination = destination, .body = "{}",
                   .body_size_bytes = 2, .occurred_at_us = 1767225600000000);
    world_send_message(w, &message);
}
