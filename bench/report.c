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

static void sort_copy(double *sorted, const double *values, int count)
{
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, compare_doubles);
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
    return line->goal_kind == BENCH_AT_MOST ? line->ratio <= line->goal : line->ratio >= line->goal;
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
        pr__format(cell[4], sizeof cell[4], "%s %.3g",
                   line->goal_kind == BENCH_AT_MOST ? "<=" : ">=", line->goal);
        pr__format(cell[5], sizeof cell[5], "%d", line->rounds);
        const char *data[] = {
            line->name, cell[0], cell[1], line->unit, line->baseline_name,
            cell[2],    cell[3], cell[4], cell[5],    bench_line_met(line) ? "yes" : "NO"};
        for (size_t c = 0; c < sizeof data / sizeof *data; c++)
            scols_line_set_data(row, c, data[c]);
    }
    int failed = scols_print_table(table);
    scols_unref_table(table);
    return failed;
}

static void write_line(pr__json *json, const bench_line *line)
{
    pr__json_object_begin(json);
    pr__json_key(json, "name");
    pr__json_text(json, line->name);
    pr__json_key(json, "unit");
    pr__json_text(json, line->unit);
    pr__json_key(json, "baseline_name");
    pr__json_text(json, line->baseline_name);
    pr__json_key(json, "ours");
    pr__json_double(json, line->ours);
    pr__json_key(json, "baseline");
    pr__json_double(json, line->baseline);
    pr__json_key(json, "ratio");
    pr__json_double(json, line->ratio);
    pr__json_key(json, "ratio_low");
    pr__json_double(json, line->ratio_low);
    pr__json_key(json, "ratio_high");
    pr__json_double(json, line->ratio_high);
    pr__json_key(json, "goal");
    pr__json_double(json, line->goal);
    pr__json_key(json, "goal_kind");
    pr__json_text(json, line->goal_kind == BENCH_AT_MOST ? "at_most" : "at_least");
    pr__json_key(json, "met");
    pr__json_bool(json, bench_line_met(line));
    pr__json_key(json, "rounds");
    pr__json_int(json, line->rounds);
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
