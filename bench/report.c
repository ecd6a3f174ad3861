/*
 * Medians, ratios, a table and JSON. A ratio is taken within each round, so that a machine that was
 * slow for a while was slow for both sides; the line shows the median and the spread of the ratios.
 */
#include "report.h"

#include <libsmartcols.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/text.h"

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void bench_sort(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare_doubles);
}

double bench_percentile(const double *sorted, size_t count, unsigned percent)
{
    size_t at = (count * percent + 99) / 100;
    return count == 0 ? 0 : sorted[at > 0 ? at - 1 : 0];
}

static void sort_copy(double *sorted, const double *values, int count)
{
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    bench_sort(sorted, (size_t)count);
}

double bench_median(const double *values, int count)
{
    double sorted[BENCH_ROUNDS_MAX];
    sort_copy(sorted, values, count);
    return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

void bench_report_add(bench_report *report, const char *name, const char *unit,
                      const char *baseline_name, const double *ours, const double *baseline,
                      int rounds, bench_goal goal_kind, double goal)
{
    if (report->count == BENCH_LINES_MAX)
        return;
    bench_line *line = &report->lines[report->count++];
    double ratios[BENCH_ROUNDS_MAX];
    for (int i = 0; i < rounds; i++)
        ratios[i] = baseline ? ours[i] / baseline[i] : ours[i];
    pr__format(line->name, sizeof line->name, "%s", name);
    pr__format(line->unit, sizeof line->unit, "%s", unit);
    pr__format(line->baseline_name, sizeof line->baseline_name, "%s", baseline_name);
    line->ours = bench_median(ours, rounds);
    line->baseline = baseline ? bench_median(baseline, rounds) : 0;
    line->ratio = bench_median(ratios, rounds);
    double sorted[BENCH_ROUNDS_MAX];
    sort_copy(sorted, ratios, rounds);
    line->ratio_low = sorted[0];
    line->ratio_high = sorted[rounds - 1];
    line->goal = goal;
    line->goal_kind = goal_kind;
    line->rounds = rounds;
}

bool bench_line_met(const bench_line *line)
{
    switch (line->goal_kind) {
    case BENCH_AT_MOST:
        return line->ratio <= line->goal;
    case BENCH_AT_LEAST:
        return line->ratio >= line->goal;
    case BENCH_OURS_AT_MOST:
        return line->ours <= line->goal;
    case BENCH_NO_GOAL:
        break;
    }
    return true;
}

void bench_report_series(bench_report *report, const char *name, const char *unit,
                         bench_point *points, size_t count)
{
    if (report->series_count < BENCH_SERIES_MAX)
        report->series[report->series_count++] = (bench_series){name, unit, points, count};
}

void bench_report_phase(bench_report *report, const char *name, double from_s)
{
    if (report->phase_count < BENCH_SERIES_MAX)
        report->phases[report->phase_count++] = (bench_phase){name, from_s};
}

static void format_goal(const bench_line *line, char *out, size_t size)
{
    if (line->goal_kind == BENCH_NO_GOAL)
        pr__format(out, size, "-");
    else
        pr__format(out, size, "%s%s %.3g", line->goal_kind == BENCH_OURS_AT_MOST ? "ours " : "",
                   line->goal_kind == BENCH_AT_LEAST ? ">=" : "<=", line->goal);
}

static const char *met_word(const bench_line *line)
{
    if (line->goal_kind == BENCH_NO_GOAL)
        return "-";
    return bench_line_met(line) ? "yes" : "NO";
}

static int print_table(const bench_report *report)
{
    static const char *const columns[] = {"what",  "ours",   "baseline", "unit",   "against",
                                          "ratio", "spread", "goal",     "rounds", "met"};
    struct libscols_table *table = scols_new_table();
    if (!table)
        return 1;
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        scols_table_new_column(table, columns[i], 0, 0);
    for (size_t i = 0; i < report->count; i++) {
        const bench_line *line = &report->lines[i];
        struct libscols_line *row = scols_table_new_line(table, NULL);
        char cell[8][64];
        if (!row)
            break;
        pr__format(cell[0], sizeof cell[0], "%.4g", line->ours);
        pr__format(cell[1], sizeof cell[1], line->baseline > 0 ? "%.4g" : "-", line->baseline);
        pr__format(cell[2], sizeof cell[2], "%.3g", line->ratio);
        pr__format(cell[3], sizeof cell[3], "%.3g-%.3g", line->ratio_low, line->ratio_high);
        format_goal(line, cell[4], sizeof cell[4]);
        pr__format(cell[5], sizeof cell[5], "%d", line->rounds);
        const char *data[] = {line->name, cell[0], cell[1], line->unit, line->baseline_name,
                              cell[2],    cell[3], cell[4], cell[5],    met_word(line)};
        for (size_t c = 0; c < sizeof data / sizeof *data; c++)
            scols_line_set_data(row, c, data[c]);
    }
    int failed = scols_print_table(table);
    scols_unref_table(table);
    return failed;
}

static const char *const goal_words[] = {[BENCH_AT_MOST] = "at_most",
                                         [BENCH_AT_LEAST] = "at_least",
                                         [BENCH_OURS_AT_MOST] = "ours_at_most",
                                         [BENCH_NO_GOAL] = "none"};

static void write_series(pr__json *json, const bench_series *series)
{
    pr__json_object_begin(json);
    pr__json_member_text(json, "name", series->name);
    pr__json_member_text(json, "unit", series->unit);
    pr__json_key(json, "points");
    pr__json_array_begin(json);
    for (size_t i = 0; i < series->count; i++) {
        pr__json_array_begin(json);
        pr__json_double(json, series->points[i].at_s);
        pr__json_double(json, series->points[i].value);
        pr__json_array_end(json);
    }
    pr__json_array_end(json);
    pr__json_object_end(json);
}

static void write_phase(pr__json *json, const bench_phase *phase)
{
    pr__json_object_begin(json);
    pr__json_member_text(json, "name", phase->name);
    pr__json_member_double(json, "from_s", phase->from_s);
    pr__json_object_end(json);
}

static void write_line(pr__json *json, const bench_line *line)
{
    pr__json_object_begin(json);
    pr__json_member_text(json, "name", line->name);
    pr__json_member_text(json, "unit", line->unit);
    pr__json_member_text(json, "baseline_name", line->baseline_name);
    pr__json_member_double(json, "ours", line->ours);
    pr__json_member_double(json, "baseline", line->baseline);
    pr__json_member_double(json, "ratio", line->ratio);
    pr__json_member_double(json, "ratio_low", line->ratio_low);
    pr__json_member_double(json, "ratio_high", line->ratio_high);
    pr__json_member_double(json, "goal", line->goal);
    pr__json_member_text(json, "goal_kind", goal_words[line->goal_kind]);
    pr__json_member_bool(json, "met", bench_line_met(line));
    pr__json_member_int(json, "rounds", line->rounds);
    pr__json_object_end(json);
}

static int write_json(const bench_report *report, const char *path)
{
    AUTO_BUFFER buffer = PR_BUFFER_INIT;
    pr__json json;
    pr__json_init(&json, &buffer);
    pr__json_object_begin(&json);
    pr__json_key(&json, "lines");
    pr__json_array_begin(&json);
    for (size_t i = 0; i < report->count; i++)
        write_line(&json, &report->lines[i]);
    pr__json_array_end(&json);
    pr__json_key(&json, "phases");
    pr__json_array_begin(&json);
    for (size_t i = 0; i < report->phase_count; i++)
        write_phase(&json, &report->phases[i]);
    pr__json_array_end(&json);
    pr__json_key(&json, "series");
    pr__json_array_begin(&json);
    for (size_t i = 0; i < report->series_count; i++)
        write_series(&json, &report->series[i]);
    pr__json_array_end(&json);
    pr__json_object_end(&json);
    FILE *file = fopen(path, "w");
    if (!file)
        return 1;
    fprintf(file, "%s\n", pr__buffer_text(&buffer));
    return fclose(file);
}

int bench_report_print(const bench_report *report, const char *json_path)
{
    int failed = print_table(report);
    if (json_path && write_json(report, json_path) != 0) {
        fprintf(stderr, "postroom-bench: cannot write '%s'\n", json_path);
        failed = 1;
    }
    return failed;
}
