/*
 * The operator of a command, taken from the user database when not given: a user without an entry
 * there is named by number.
 */
#include "cli/operator.h"

#include <pwd.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/output.h"

const char *pr__operator_who(const pr__operator *by, char memory[PR__WHO_SIZE])
{
    struct passwd entry, *found = NULL;
    char text[2048];
    if (!pr__text_empty(by->who))
        return by->who;
    if (getpwuid_r(geteuid(), &entry, text, sizeof(text), &found) == 0 && found)
        pr__format(memory, PR__WHO_SIZE, "%s", found->pw_name);
    else
        pr__format(memory, PR__WHO_SIZE, "uid %u", (unsigned)geteuid());
    return memory;
}

void pr__operator_done(pr__cli *cli, const char *verb, const char *id)
{
    AUTO_BUFFER out = PR_BUFFER_INIT;
    pr__json json;
    if (!cli->json) {
        pr__print(cli, "%s %s", verb, id);
        return;
    }
    pr__json_init(&json, &out);
    pr__json_object_begin(&json);
    pr__json_key(&json, "message_id");
    pr__json_text(&json, id);
    pr__json_key(&json, "done");
    pr__json_text(&json, verb);
    pr__json_object_end(&json);
    pr__print_buffer(cli, &out);
}
