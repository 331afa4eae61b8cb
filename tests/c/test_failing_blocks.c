/* test_failing_blocks.c: refused memory at every function of neap.h. A table has a scene a
 * function: what is made before, the call, what it gives. The call is made with its n-th block
 * refused, for n = 1, 2, .. until none is. A refusal is a MEMORY error, takes back every block that
 * the call had taken, and leaves all that the scene holds as it was; the same call then succeeds,
 * with the same result as where nothing was refused. A function without a status must not ask for
 * memory at all.
 *
 * The header and its parts are read: a function that they declare and the table lacks is a failure.
 */
#include "blocks/caffe.h"
#include "blocks/look.h"
#include "blocks/memonger.h"
#include "blocks/nets.h"
#include "blocks/onnx.h"
#include "blocks/plans.h"
#include "blocks/process.h"
#include "blocks/runs.h"
#include "blocks/tensors.h"
#include "blocks/tflite.h"
#include "blocks/workspaces.h"

#include <glob.h>
#include <unistd.h>

/* N_EACH: after each of the first so many refusals, and of one in so many later, the call is made
 * again and must succeed. */
enum { MOST_BLOCKS = 20000, N_EACH = 16 };

/* The tables of blocks/: together every function. */
static const struct group {
  const entry *list;
  int n;
} groups[] = {
  {process_entries, NEAP_COUNT(process_entries)},
  {nets_entries, NEAP_COUNT(nets_entries)},
  {workspaces_entries, NEAP_COUNT(workspaces_entries)},
  {tensors_entries, NEAP_COUNT(tensors_entries)},
  {plans_entries, NEAP_COUNT(plans_entries)},
  {runs_entries, NEAP_COUNT(runs_entries)},
  {memonger_entries, NEAP_COUNT(memonger_entries)},
  {onnx_entries, NEAP_COUNT(onnx_entries)},
  {caffe_entries, NEAP_COUNT(caffe_entries)},
  {tflite_entries, NEAP_COUNT(tflite_entries)},
};

/* ---- the sweep ------------------------------------------------------------------------------- */

/* Whether the texts are equal; else the line that differs is printed. */
static bool same_text(const entry *e, int n, const char *what, const char *want, const char *got) {
  if (strcmp(want, got) == 0) return true;
  int at = 0, line = 0;
  for (; want[at] == got[at]; at++)
    if (want[at] == '\n') line = at + 1;
  printf("  %s, block %d, %s:\n    %.*s\n  where it should be\n    %.*s\n", e->name, n, what,
         (int)strcspn(got + line, "\n"), got + line, (int)strcspn(want + line, "\n"), want + line);
  check_failures++;
  return false;
}

/* The call with its n-th block refused. False: nothing was refused. */
static bool refused(const entry *e, scene *s, int n, neap_status *status, neap_error *error) {
  *error = (neap_error){0};
  neap_memory_fail_nth_block(n);
  *status = e->call(s, error);
  bool failed = neap_memory_failed();
  neap_memory_fail_nth(0, false);
  return failed;
}

static void say(const entry *e, int n, const char *what) {
  printf("  %s, block %d: %s\n", e->name, n, what);
  check_failures++;
}

/* What the call makes where nothing is refused; the caller's, to be ended by free. */
static char *without_refusal(const entry *e) {
  scene s;
  neap_error error = {0};
  open_scene(&s, e->parts, e->options);
  if (e->call(&s, &error) != NEAP_OK) say(e, 0, error.message);
  char *text = look_at_all(&s);
  close_scene(&s);
  return text;
}

static bool said(neap_status status, const neap_error *error) {
  return status == NEAP_MEMORY && error->code == NEAP_MEMORY && error->message[0] != '\0';
}

/* A workspace may keep the room that a list of its own has grown to, or its pool: refused again at
 * the same block the call must come to leave nothing more. False: it passed meanwhile. */
static bool check_leaves_nothing(const entry *e, scene *s, int n, int64_t live) {
  int64_t now = neap_memory_read().n_live;
  for (int again = 0; again < 100 && now > live; again++) {
    neap_status status;
    neap_error error;
    live = now;
    refused(e, s, n, &status, &error);
    if (status == NEAP_OK) return false;
    now = neap_memory_read().n_live;
  }
  if (now > live) say(e, n, "blocks are left");
  return true;
}

/* The call again, where nothing is refused. */
static void check_succeeds(const entry *e, scene *s, int n, const char *want) {
  neap_error error = {0};
  if (e->call(s, &error) != NEAP_OK) say(e, n, error.message);
  char *got = look_at_all(s);
  same_text(e, n, "the second time", want, got);
  free(got);
}

/* The call of a scene with block n refused. *end: nothing was refused. Returns whether the scene
 * can be used for the next block. */
static bool refuse(const entry *e, scene *s, int n, const char *want, const char *before,
                   bool *end) {
  neap_status status;
  neap_error error;
  int64_t live = neap_memory_read().n_live;
  *end = !refused(e, s, n, &status, &error);
  if (status == NEAP_OK) { /* without the block, too: then it was not needed */
    char *got = look_at_all(s);
    if (!e->quiet) same_text(e, n, "as it passed", want, got);
    if (e->quiet && !*end) say(e, n, "asks for memory");
    free(got);
    return false;
  }
  if (!said(status, &error))
    say(e, n, error.message[0] != '\0' ? error.message : neap_status_text(status));
  if (has_results(s)) say(e, n, "a failed call gave something");
  bool grown = neap_memory_read().n_live > live;
  char *after = look(s, e->parts & RUN);
  same_text(e, n, "after the refusal", before, after);
  free(after);
  if (grown && !check_leaves_nothing(e, s, n, live)) return false;
  if (n >= N_EACH && n % N_EACH != 0) return !grown;
  if (!has_results(s)) check_succeeds(e, s, n, want);
  return false;
}

/* Refuses block 1, 2, .. of the call; returns how many it has. */
static int sweep(const entry *e) {
  int n = 0, failures = check_failures;
  bool open = false, end = false;
  char *want = without_refusal(e), *before = NULL;
  int64_t live = neap_memory_read().n_live;
  scene s;
  while (!end && n < MOST_BLOCKS && check_failures < failures + 3) {
    if (!open)
      open_scene(&s, e->parts, e->options), free(before), before = look(&s, e->parts & RUN);
    open = refuse(e, &s, ++n, want, before, &end);
    if (!open) close_scene(&s);
  }
  if (open) close_scene(&s);
  if (neap_memory_read().n_live > live) say(e, n, "blocks are left when all has ended");
  if (n == MOST_BLOCKS) say(e, n, "never passes");
  free(want);
  free(before);
  return n - 1;
}

TEST(every_function_passes_in_the_end_and_leaves_all_as_it_was_before) {
  for (int g = 0; g < NEAP_COUNT(groups); g++)
    for (int i = 0; i < groups[g].n; i++) {
      const entry *e = &groups[g].list[i];
      int n = sweep(e);
      if (getenv("NEAP_TEST_SHOW") != NULL)
        printf("  %-34s %5d blocks\n", e->name, n), fflush(stdout);
    }
}

/* ---- the header ------------------------------------------------------------------------------ */

static bool in_table(const char *name) {
  for (int g = 0; g < NEAP_COUNT(groups); g++)
    for (int i = 0; i < groups[g].n; i++)
      if (strcmp(groups[g].list[i].name, name) == 0) return true;
  return false;
}

/* The word before the first "(" of a line that begins with NEAP_API; false: another line. */
static bool declared(const char *line, char name[100]) {
  const char *end = strchr(line, '('), *begin = end;
  if (strncmp(line, "NEAP_API ", 9) != 0 || end == NULL) return false;
  while (begin[-1] == '_' || (begin[-1] >= 'a' && begin[-1] <= 'z') ||
         (begin[-1] >= '0' && begin[-1] <= '9'))
    begin--;
  snprintf(name, 100, "%.*s", (int)(end - begin), begin);
  return true;
}

/* How many functions the file declares. */
static int read_header(const char *path) {
  FILE *file = fopen(path, "r");
  char line[400], name[100];
  int n = 0;
  CHECK(file != NULL);
  if (file == NULL) return 0;
  while (fgets(line, sizeof line, file) != NULL) {
    if (!declared(line, name)) continue;
    n++;
    if (!in_table(name)) printf("  %s is not in the table\n", name), check_failures++;
  }
  fclose(file);
  return n;
}

TEST(every_function_of_the_header_has_a_scene) {
  glob_t parts;
  CHECK(read_header("src/neap.h") > 50);
  CHECK_EQ(glob("src/neap/*.h", 0, NULL, &parts), 0);
  CHECK(parts.gl_pathc > 0);
  for (size_t i = 0; i < parts.gl_pathc; i++) CHECK(read_header(parts.gl_pathv[i]) > 0);
  globfree(&parts);
}

static void make_file(char *path) {
  int descriptor = mkstemps(path, 12);
  if (descriptor < 0) abort();
  close(descriptor);
}

static void make_files(void) {
  scene s;
  make_file(checkpoint_path), make_file(export_path), make_file(saved_path);
  make_file(db_path), make_file(copy_path), make_file(idx_path);
  CHECK_OK(neap_io_write_text(idx_path, idx, sizeof idx - 1, &error));
  make_onnx_files();
  make_caffe_files();
  make_tflite_files();
  open_scene(&s, WS | NET | SESSION, NULL);
  CHECK_OK(neap_workspace_save(s.ws, checkpoint_path, 0, NULL, &error));
  close_scene(&s);
  open_scene(&s, WS | FORWARD | SESSION, NULL);
  CHECK_OK(neap_workspace_export(s.ws, s.net, export_path, &error));
  close_scene(&s);
}

int main(int argc, char **argv) {
  setenv("NEAP_CACHE", "all", 1);     /* cheap plans are read back, too */
  setenv("NEAP_NUM_THREADS", "1", 1); /* the same block is the n-th each time */
  make_files();
  int result = RUN(argc, argv, T(every_function_of_the_header_has_a_scene),
                   T(every_function_passes_in_the_end_and_leaves_all_as_it_was_before));
  unlink(checkpoint_path), unlink(export_path), unlink(saved_path);
  unlink(db_path), unlink(copy_path), unlink(idx_path);
  remove_onnx_files();
  remove_caffe_files();
  remove_tflite_files();
  return result;
}
