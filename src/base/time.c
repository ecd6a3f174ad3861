/*
 * Instants and clocks of the host.
 *
 * Owns: the calendar arithmetic (proleptic Gregorian, no leap seconds, as in POSIX time).
 * Keeps: text is RFC 3339 in UTC with six digits, so it sorts as the instants do.
 * Must not know: whose clock counts. Safety is always decided by the database's clock.
 */
#include "base/time.h"

#include <errno.h>
#include <time.h>

#include "base/text.h"

#define US_PER_SECOND 1000000LL
#define US_PER_DAY    86400000000LL

static int64_t clock_us(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * US_PER_SECOND + now.tv_nsec / 1000;
}

int64_t pr__wall_us(void)
{
    return clock_us(CLOCK_REALTIME);
}

int64_t pr__monotonic_us(void)
{
    return clock_us(CLOCK_MONOTONIC);
}

void pr__sleep_us(int64_t us)
{
    if (us <= 0)
        return;
    struct timespec rest = {.tv_sec = (time_t)(us / US_PER_SECOND),
                            .tv_nsec = (long)(us % US_PER_SECOND * 1000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &rest, &rest) == EINTR)
        ;
}

bool pr__instant_valid(int64_t instant_us)
{
    return instant_us >= PR_INSTANT_MIN_US && instant_us <= PR_INSTANT_MAX_US;
}

/* Days since 1970-01-01; years are counted from March, so that leap days come last. */
static int64_t days_of_date(int64_t year, int64_t month, int64_t day)
{
    year -= month <= 2;
    int64_t era = (year >= 0 ? year : year - 399) / 400;
    int64_t year_of_era = year - era * 400;
    int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return era * 146097 + day_of_era - 719468;
}

static void date_of_days(int64_t days, int64_t *year, int64_t *month, int64_t *day)
{
    days += 719468;
    int64_t era = (days >= 0 ? days : days - 146096) / 146097;
    int64_t day_of_era = days - era * 146097;
    int64_t year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t shifted = (5 * day_of_year + 2) / 153;
    *day = day_of_year - (153 * shifted + 2) / 5 + 1;
    *month = shifted < 10 ? shifted + 3 : shifted - 9;
    *year = year_of_era + era * 400 + (*month <= 2);
}

/* Two, four or six digits, with leading zeros. */
static char *put_digits(char *at, int64_t value, int count)
{
    for (int i = count - 1; i >= 0; i--) {
        at[i] = (char)('0' + value % 10);
        value /= 10;
    }
    return at + count;
}

void pr__instant_text(int64_t instant_us, char out[PR_INSTANT_TEXT_SIZE])
{
    if (instant_us < PR_INSTANT_MIN_US)
        instant_us = PR_INSTANT_MIN_US;
    if (instant_us > PR_INSTANT_MAX_US)
        instant_us = PR_INSTANT_MAX_US;
    int64_t days = instant_us / US_PER_DAY;
    int64_t in_day = instant_us % US_PER_DAY;
    if (in_day < 0) {
        in_day += US_PER_DAY;
        days--;
    }
    int64_t year, month, day;
    date_of_days(days, &year, &month, &day);
    int64_t seconds = in_day / US_PER_SECOND;
    char *at = put_digits(out, year, 4);
    *at++ = '-';
    at = put_digits(at, month, 2);
    *at++ = '-';
    at = put_digits(at, day, 2);
    *at++ = 'T';
    at = put_digits(at, seconds / 3600, 2);
    *at++ = ':';
    at = put_digits(at, seconds / 60 % 60, 2);
    *at++ = ':';
    at = put_digits(at, seconds % 60, 2);
    *at++ = '.';
    at = put_digits(at, in_day % US_PER_SECOND, 6);
    *at++ = 'Z';
    *at = '\0';
}

typedef struct cursor {
    const char *at;
    const char *end;
} cursor;

static bool take_number(cursor *c, int count, int64_t min, int64_t max, int64_t *ret_value)
{
    int64_t value = 0;
    for (int i = 0; i < count; i++) {
        if (c->at == c->end || *c->at < '0' || *c->at > '9')
            return false;
        value = value * 10 + (*c->at++ - '0');
    }
    *ret_value = value;
    return value >= min && value <= max;
}

static bool take_char(cursor *c, char a, char b)
{
    if (c->at == c->end || (*c->at != a && *c->at != b))
        return false;
    c->at++;
    return true;
}

static int64_t days_in_month(int64_t year, int64_t month)
{
    static const int64_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    return days[month - 1] + (month == 2 && leap);
}

/* ".123456789": at least one digit; what is finer than a microsecond is dropped. */
static bool take_fraction(cursor *c, int64_t *ret_us)
{
    int64_t us = 0;
    int digits = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++, digits++) {
        if (digits < 6)
            us = us * 10 + (*c->at - '0');
    }
    for (int i = digits; i < 6; i++)
        us *= 10;
    *ret_us = us;
    return digits > 0 && digits <= 9;
}

/* "Z" or an offset in seconds. */
static bool take_zone(cursor *c, int64_t *ret_offset)
{
    *ret_offset = 0;
    if (take_char(c, 'Z', 'z'))
        return true;
    int64_t sign = c->at < c->end && *c->at == '-' ? -1 : 1;
    int64_t hours, minutes;
    if (!take_char(c, '+', '-') || !take_number(c, 2, 0, 23, &hours) || !take_char(c, ':', ':') ||
        !take_number(c, 2, 0, 59, &minutes))
        return false;
    *ret_offset = sign * (hours * 3600 + minutes * 60);
    return true;
}

bool pr__instant_parse(const char *text, size_t size, int64_t *ret_instant_us)
{
    cursor c = {text, text + size};
    int64_t year, month, day, hour, minute, second, us = 0, offset;
    if (!take_number(&c, 4, 1, 9999, &year) || !take_char(&c, '-', '-') ||
        !take_number(&c, 2, 1, 12, &month) || !take_char(&c, '-', '-') ||
        !take_number(&c, 2, 1, days_in_month(year, month), &day) || !take_char(&c, 'T', 't') ||
        !take_number(&c, 2, 0, 23, &hour) || !take_char(&c, ':', ':') ||
        !take_number(&c, 2, 0, 59, &minute) || !take_char(&c, ':', ':') ||
        !take_number(&c, 2, 0, 59, &second))
        return false;
    if (take_char(&c, '.', '.') && !take_fraction(&c, &us))
        return false;
    if (!take_zone(&c, &offset) || c.at != c.end)
        return false;
    int64_t seconds = hour * 3600 + minute * 60 + second - offset;
    int64_t instant = days_of_date(year, month, day) * US_PER_DAY + seconds * US_PER_SECOND + us;
    if (!pr__instant_valid(instant))
        return false;
    *ret_instant_us = instant;
    return true;
}

void pr__duration_text(int64_t us, char *out, size_t size)
{
    const char *sign = us < 0 ? "-" : "";
    uint64_t rest = us < 0 ? 0 - (uint64_t)us : (uint64_t)us;
    unsigned long long ms = rest / 1000;
    unsigned long long s = rest / 1000000;
    if (rest < 1000)
        pr__format(out, size, "%s%llu us", sign, (unsigned long long)rest);
    else if (ms < 1000)
        pr__format(out, size, "%s%llu ms", sign, ms);
    else if (s < 60)
        pr__format(out, size, "%s%llu.%llu s", sign, s, ms / 100 % 10);
    else if (s < 3600)
        pr__format(out, size, "%s%llu min %llu s", sign, s / 60, s % 60);
    else if (s < 86400)
        pr__format(out, size, "%s%llu h %llu min", sign, s / 3600, s / 60 % 60);
    else
        pr__format(out, size, "%s%llu d %llu h", sign, s / 86400, s / 3600 % 24);
}
