/*
 * Settling, as far as no database is needed for it.
 *
 * Invariant: attempts are charged for a failure of the message only, and what holds nothing back is
 * never parked as held.
 */
#include "port/park.h"

#define EXPIRED_TEXT "expired before it could be sent"

bool pr__result_kept(pr__result result)
{
    return result == PR__RESULT_OPEN || result == PR__RESULT_LOST;
}

void pr__settle_report_count(pr__settle_report *report, pr__result result)
{
    switch (result) {
    case PR__RESULT_OPEN:
    case PR__RESULT_LOST:
        report->rest++;
        break;
    case PR__RESULT_PUBLISHED:
        report->published++;
        break;
    case PR__RESULT_FAILED:
        report->failed++;
        break;
    case PR__RESULT_DEFERRED:
        report->deferred++;
        break;
    case PR__RESULT_DEAD:
        report->dead++;
        break;
    case PR__RESULT_EXPIRED:
        report->expired++;
        break;
    case PR__RESULT_HELD:
        report->held++;
        break;
    }
}

void pr__settle_report_count_slice(pr__settle_report *report, const pr__batch *batch,
                                   uint32_t slice)
{
    for (uint32_t i = 0; i < batch->item_count; i++)
        if (batch->items[i].slice == slice)
            pr__settle_report_count(report, batch->items[i].result);
}

void pr__slice_fence(pr__batch *batch, uint32_t slice, pr__settle_report *report)
{
    batch->slices[slice].fenced = true;
    if (report)
        report->fenced_slices++;
    for (uint32_t i = 0; i < batch->item_count; i++) {
        if (batch->items[i].slice != slice)
            continue;
        batch->items[i].fenced = true;
        if (report)
            report->fenced_items++;
    }
}

pr__park pr__park_of(const pr__item *item, int64_t now)
{
    bool charged = item->result == PR__RESULT_FAILED || item->result == PR__RESULT_DEAD;
    pr__park park = {.state = "failed",
                     .attempts = (int64_t)item->attempts + charged,
                     .deferred = item->result == PR__RESULT_DEFERRED,
                     .next_attempt_at = now + item->retry_delay_ms * 1000,
                     .error = item->error,
                     .failed = item->result != PR__RESULT_HELD && !pr__result_kept(item->result)};
    if (item->result == PR__RESULT_DEAD || item->result == PR__RESULT_EXPIRED)
        park.state = "dead";
    if (item->result == PR__RESULT_EXPIRED && !park.error)
        park.error = EXPIRED_TEXT;
    if (item->result == PR__RESULT_HELD) {
        /* without a key nothing would ever free it */
        park.state = item->message.key ? "held" : "failed";
        park.next_attempt_at = now;
    }
    return park;
}
