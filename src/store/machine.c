/* machine.c: this machine as a row: what runs are measured on. Read from /proc once a handle. */
#include "store/store_int.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The value of the first line "key : value" of /proc/cpuinfo; "" when there is none. */
static void read_cpuinfo(const char *key, char *value, size_t size) {
  value[0] = '\0';
  FILE *file = fopen("/proc/cpuinfo", "r");
  if (file == NULL) return;
  char line[4096];

  /* The first line will do: the cores of a machine are alike, mostly. */
  while (value[0] == '\0' && fgets(line, sizeof line, file) != NULL) {
    char *colon = strchr(line, ':');
    /* Behind the key comes what separates it: a longer word is another key. */
    if (colon == NULL || strncmp(line, key, strlen(key)) != 0 ||
        strchr(" \t:", line[strlen(key)]) == NULL)
      continue;
    colon += 1 + strspn(colon + 1, " \t");
    snprintf(value, size, "%.*s", (int)strcspn(colon, "\n"), colon);
  }
  fclose(file);
}

/* Whether `flag` is one of the words of `flags`. */
static bool has_flag(const char *flags, const char *flag) {
  size_t n = strlen(flag);
  for (const char *at = flags; (at = strstr(at, flag)) != NULL; at += n)
    /* A word of its own: "avx" is not found in "avx2". */
    if ((at == flags || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0')) return true;
  return false;
}

/* Named as in meta data of builds: what decides speed, not the whole list of flags. */
static const char *widest_isa(void) {
  char flags[4096];
  read_cpuinfo("flags", flags, sizeof flags);
  if (has_flag(flags, "avx512f")) return "avx512";
  if (has_flag(flags, "avx2")) return "avx2";
  if (has_flag(flags, "avx")) return "avx";
  if (has_flag(flags, "sse4_2")) return "sse4";
  read_cpuinfo("Features", flags, sizeof flags); /* ARM */
  return has_flag(flags, "sve") ? "sve" : has_flag(flags, "asimd") ? "neon" : "plain";
}

neap_status neap_store_machine(neap_store *store, int64_t *machine_id, neap_error *error) {
  /* Looked up before, by this handle. */
  *machine_id = store->machine_id;
  if (*machine_id != 0) return NEAP_OK;
  char cpu[128];
  read_cpuinfo("model name", cpu, sizeof cpu);

  /* The update changes nothing; it makes RETURNING give the row that is there. */
  neap_sql sql =
    neap_sql_new(store,
                 "INSERT INTO machine (cpu, isa, n_core, ram_bytes) VALUES (?, ?, ?, ?) "
                 "ON CONFLICT DO UPDATE SET cpu = excluded.cpu RETURNING machine_id",
                 "the machine is not stored");
  neap_sql_text(&sql, cpu[0] != '\0' ? cpu : "unknown");
  neap_sql_text(&sql, widest_isa());

  /* Cores and bytes of memory, as the system counts them. */
  neap_sql_int(&sql, sysconf(_SC_NPROCESSORS_ONLN));
  neap_sql_int(&sql, (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
  bool row;
  neap_status status = neap_sql_step(&sql, &row, error);

  /* RETURNING gives one row; the statement is then run to its end. */
  if (row) *machine_id = sqlite3_column_int64(sql.stmt, 0);
  if (row) status = neap_sql_run(&sql, error);
  neap_sql_fini(&sql);

  /* Not kept in the handle here: the transaction around may yet fail. */
  return status;
}

neap_status neap_store_best_peaks(neap_store *store, const char *lost, neap_error *error) {
  return neap_store_exec(
    store,
    "UPDATE main.machine SET (peak_flop_per_s, peak_byte_per_s) = (SELECT max(iif(what = 'f32', "
    "per_second, NULL)), max(iif(what = 'memory', per_second, NULL)) FROM main.machine_peak p "
    "WHERE "
    "p.machine_id = machine.machine_id) WHERE machine_id IN (SELECT machine_id FROM "
    "main.machine_peak)",
    lost, error);
}

static neap_status put_peak(neap_store *store, int64_t machine_id, const char *what, int n_thread,
                            double per_second, const char *lost, neap_error *error) {
  /* One row for each number of threads, the largest: a later measurement that is lower was of a
   * machine that had other work beside it. */
  neap_sql sql =
    neap_sql_new(store,
                 "INSERT INTO machine_peak VALUES (?, ?, ?, ?, unixepoch()) ON CONFLICT DO UPDATE "
                 "SET per_second = excluded.per_second, measured_at = excluded.measured_at WHERE "
                 "excluded.per_second > per_second",
                 lost);
  neap_sql_int(&sql, machine_id);
  neap_sql_text(&sql, what);
  neap_sql_int(&sql, n_thread);
  neap_sql_real(&sql, per_second);
  neap_status status = neap_sql_run(&sql, error);
  neap_sql_fini(&sql);
  return status == NEAP_OK ? neap_store_best_peaks(store, lost, error) : status;
}

neap_status neap_db_note_peak(neap_db *db, const char *what, int n_thread, double per_second,
                              neap_error *error) {
  static const char lost[] = "what this machine reaches is not stored";
  static const char *const known[] = {"f32", "f64", "bf16", "i8", "memory"};

  /* Said in Neap's words, before the table's own check says it in SQLite's. */
  bool is_known = false;
  for (int i = 0; i < NEAP_COUNT(known); i++) is_known = is_known || strcmp(what, known[i]) == 0;
  if (!is_known || n_thread < 1 || !(per_second > 0))
    return neap_fail(
      error, NEAP_ARGUMENT,
      "a peak is of \"f32\", \"f64\", \"bf16\", \"i8\" or \"memory\", with one thread or "
      "more, and above 0; got \"%s\", %d, %g",
      what, n_thread, per_second);

  /* The machine's row and the peak's in one transaction, for a database that has neither. */
  int64_t machine_id = 0;
  NEAP_TRY(neap_store_begin(db, lost, error));
  neap_status status = neap_store_machine(db, &machine_id, error);
  if (status == NEAP_OK) status = put_peak(db, machine_id, what, n_thread, per_second, lost, error);

  NEAP_TRY(neap_store_end(db, status, lost, error));

  db->machine_id = machine_id;
  return NEAP_OK;
}
