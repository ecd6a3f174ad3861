/*
 * Events of relays and endpoints as lines on standard error.
 *
 * Keeps: one event is one line, whatever stands in its text; several threads may print at once.
 * Must not know: which events there are, or what they mean.
 */
#include "cli/event.h"

#include <stdio.h>
#include <string.h>

#include <postroom/clock.h>
#include <postroom/status.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "base/time.h"
#include "cli/output.h"

void pr__event_print(const pr__cli *cli, const pr_observation *seen)
{
    AUTO_BUFFER line = PR_BUFFER_INIT;
    char when[PR_INSTANT_TEXT_SIZE], text[PR_ERROR_MESSAGE_SIZE];
    pr__instant_text(pr_clock_system()->wall_us(pr_clock_system()->user), when);
    pr__one_line(text, sizeof(text), seen->text ? seen->text : "",
                 seen->text ? strlen(seen->text) : 0);
    if (cli->json) {
        pr__json json;
        pr__json_init(&json, &line);
        pr__json_object_begin(&json);
        pr__json_member_text(&json, "at", when);
        pr__json_member_text(&json, "event", pr_observation_name(seen->kind));
        pr__json_member_uint(&json, "count", seen->count);
        pr__json_member_text(&json, "message_id", seen->message_id);
        pr__json_member_text(&json, "type", seen->type);
        pr__json_member_text(&json, "destination", seen->destination);
        pr__json_member_text(&json, "subject", seen->subject);
        pr__json_member_text(&json, "status", pr_status_text(seen->status));
        pr__json_member_text(&json, "text", seen->text ? text : NULL);
        pr__json_object_end(&json);
    } else {
        pr__buffer_printf(&line, "%s %s %llu", when, pr_observation_name(seen->kind),
                          (unsigned long long)seen->count);
        if (seen->message_id)
            pr__buffer_printf(&line, " id=%s", seen->message_id);
        if (seen->destination)
            pr__buffer_printf(&line, " to=%s", seen->destination);
        if (seen->subject)
            pr__buffer_printf(&line, " of=%s", seen->subject);
        if (seen->status != PR_OK)
            pr__buffer_printf(&line, " status=%s", pr_status_text(seen->status));
        if (text[0])
            pr__buffer_printf(&line, ": %s", text);
    }
    pr__buffer_append_char(&line, '\n');
    if (pr__buffer_text(&line))
        fputs(pr__buffer_text(&line), stderr);
}
