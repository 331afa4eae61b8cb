/* workspace.c: the life of a workspace, its table of names, and the nets it stores.
 *
 * Look-up order: own names, forwarded names, then (unless names are forwarded) the parent's. Names
 * are interned, so that a look-up is one hash access a workspace on the way up, and comparing names
 * is comparing pointers.
 */
#include "workspace/workspace_int.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

atomic_int neap_interrupted;

/* ---- life ------------------------------------------------------------------------------------ */

static neap_status refused(neap_error *error) {
  return neap_fail_memory(error, sizeof(neap_workspace), "a workspace");
}

/* All workspaces that are alive: a list that makes the one global state of this room. */
static pthread_mutex_t live_lock = PTHREAD_MUTEX_INITIALIZER;
static neap_workspace *first_live;

/* In front: the order means nothing. */
static void enter_live(neap_workspace *ws) {
  pthread_mutex_lock(&live_lock);
  ws->next_live = first_live;
  if (first_live != NULL) first_live->last_live = ws;
  first_live = ws;
  pthread_mutex_unlock(&live_lock);
}

/* Before the first byte of the workspace goes, so that whoever walks the list meets none that is
 * ending. */
static void leave_live(neap_workspace *ws) {
  pthread_mutex_lock(&live_lock);
  if (ws->last_live != NULL) ws->last_live->next_live = ws->next_live;
  if (ws->next_live != NULL) ws->next_live->last_live = ws->last_live;
  if (first_live == ws) first_live = ws->next_live;
  pthread_mutex_unlock(&live_lock);
}

/* Whoever looks is about to change what only children could see besides; frames are not among
 * them. */
bool neap_workspace_has_child(const neap_workspace *ws) {
  bool found = false;
  pthread_mutex_lock(&live_lock);
  for (const neap_workspace *at = first_live; at != NULL && !found; at = at->next_live)
    found = at->parent == ws;
  pthread_mutex_unlock(&live_lock);
  return found;
}

/* False when its last reference has just gone. The count never comes back from 0: who has taken it
 * there is ending the workspace. */
static bool try_retain(neap_workspace *ws) {
  int n = atomic_load(&ws->n_ref);
  /* A failed exchange has put the present count into n. */
  while (n > 0)
    if (atomic_compare_exchange_weak(&ws->n_ref, &n, n + 1)) return true;
  return false;
}

/* No workspace ends while the lock is held, so that a list that is refused half way can be given up
 * only behind it. */
neap_status neap_workspace_list(neap_workspace ***out, int *n, neap_error *error) {
  neap_workspace **list = NULL;
  int cap = 0;
  bool refused = false;
  *n = 0;
  pthread_mutex_lock(&live_lock);
  for (neap_workspace *ws = first_live; ws != NULL && !refused; ws = ws->next_live) {
    refused = !neap_list_grow(&list, &cap, *n + 1, sizeof *list);
    if (!refused && try_retain(ws)) list[(*n)++] = ws;
  }
  pthread_mutex_unlock(&live_lock);
  *out = list;
  if (!refused) return NEAP_OK;
  for (int i = 0; i < *n; i++) neap_workspace_release(list[i]);
  neap_free(list);
  *out = NULL;
  *n = 0;
  return neap_fail_memory(error, sizeof *list, "a list of workspaces");
}

/* A child's numbers repeat when its parent's do. */
static void choose_seed(neap_workspace *ws, const neap_workspace_options *options) {
  neap_workspace *parent = options->parent;
  enum { STREAM = 0xc41d }; /* of no op */
  uint32_t word[4];
  ws->seed = options->seed;
  if (!options->unseeded) return;

  /* A parent that was given a seed makes its children repeat, too: each takes the next number of a
   * stream of the parent's. */
  ws->draws_by_thread = parent == NULL || parent->draws_by_thread;
  if (parent == NULL) {
    ws->seed = neap_draw_new_seed();
  } else {
    neap_philox(parent->seed, STREAM, ++parent->n_child, 0, word);
    ws->seed = (uint64_t)word[0] << 32 | word[1];
  }
}

/* NEAP_POISON in the environment is the default of the workspace; neap_workspace_set_poison
 * overrules it. */
neap_status neap_workspace_new(const neap_workspace_options *options, neap_workspace **out,
                               neap_error *error) {
  *out = NULL;
  neap_workspace *ws = neap_alloc_zeroed(sizeof *ws);
  if (ws == NULL) return refused(error);
  const char *poison = getenv("NEAP_POISON");
  atomic_store(&ws->n_ref, 1);
  choose_seed(ws, options);
  ws->budget_bytes = options->budget_bytes;
  ws->total_bytes = options->total_bytes;
  ws->poison = poison != NULL && strcmp(poison, "0") != 0 && poison[0] != '\0';
  if (options->parent != NULL) ws->parent = neap_workspace_retain(options->parent);
  ws->forwards_only = options->forwards_only || options->n_forward > 0;

  /* Others may see it from here on, and ending it takes it from the list again. */
  enter_live(ws);
  neap_status status = neap_workspace_add_forwards(ws, options->n_forward, options->forward_name,
                                                   options->forward_target, error);
  if (status != NEAP_OK) {
    neap_workspace_release(ws);
    return status;
  }
  *out = ws;
  return NEAP_OK;
}

neap_workspace *neap_workspace_retain(neap_workspace *ws) {
  atomic_fetch_add(&ws->n_ref, 1);
  return ws;
}

/* Programs are detached, not freed: they belong to their sessions, which hold a reference, so
 * usually none is left. */
void neap_workspace_release(neap_workspace *ws) {
  if (ws == NULL || atomic_fetch_sub(&ws->n_ref, 1) > 1) return;

  /* What points to the workspace's bytes lets go first; then the bytes, then the tables. */
  leave_live(ws);
  neap_workspace_finish_moves(ws);
  while (ws->n_attachment > 0) neap_workspace_detach(ws, ws->attachment[0].program);
  neap_workspace_orphan_frames(ws);
  for (int c = 0; c < ws->n_cell; c++) neap_cell_clear(&ws->cell[c]);
  for (int i = 0; i < ws->n_net; i++) neap_net_free(ws->net[i]);

  /* All that pointed to arena, pool and banks is gone. */
  neap_storage_release(ws->arena);
  neap_storage_release(ws->undo);
  for (int b = 0; b < ws->n_bank; b++) neap_storage_release(ws->bank[b].arena);
  neap_free(ws->bank);
  neap_pool_free(ws->pool);
  if (!ws->is_frame) neap_workspace_release(ws->parent);

  /* The tables were needed until the last cell was cleared. */
  neap_map_fini(&ws->index);
  neap_free(ws->cell);
  neap_free(ws->attachment);
  neap_free((void *)ws->forward_name);
  neap_free((void *)ws->forward_target);
  neap_free((void *)ws->net);
  neap_free(ws);
}

neap_workspace *neap_workspace_parent(const neap_workspace *ws) { return ws->parent; }
const char *neap_workspace_forwarded_at(const neap_workspace *ws, int i) {
  return i >= 0 && i < ws->n_forward ? ws->forward_name[i] : NULL;
}
uint64_t neap_workspace_seed(const neap_workspace *ws) { return ws->seed; }
uint32_t neap_workspace_step(const neap_workspace *ws) { return ws->step; }
void neap_workspace_rewind_step(neap_workspace *ws, uint32_t step) { ws->step = step; }
void neap_workspace_give_draw(neap_workspace *ws, const neap_draw *draw) { ws->given = draw; }
void neap_workspace_set_step(neap_workspace *ws, uint32_t step) {
  ws->step = ws->draw = step;
  ws->draws_by_thread = false;
}
void neap_workspace_set_seed(neap_workspace *ws, uint64_t seed) {
  ws->seed = seed;
  ws->draw = 0;
  ws->draws_by_thread = false;
}
void neap_workspace_set_poison(neap_workspace *ws, bool poison) { ws->poison = poison; }
size_t neap_workspace_budget(const neap_workspace *ws) { return ws->budget_bytes; }
size_t neap_workspace_total(const neap_workspace *ws) { return ws->total_bytes; }
size_t neap_workspace_limit_total(neap_workspace *ws, size_t bytes) {
  const size_t before = ws->total_bytes;
  ws->total_bytes = bytes;
  return before;
}
size_t neap_workspace_arena_bytes(const neap_workspace *ws) {
  return ws->arena_bytes + neap_workspace_bank_bytes(ws, NULL);
}
neap_pool_stats neap_workspace_pool(const neap_workspace *ws) {
  return ws->pool != NULL ? neap_pool_read(ws->pool) : (neap_pool_stats){0};
}
void neap_workspace_set_pool_soft(neap_workspace *ws, size_t bytes) { ws->pool_soft_bytes = bytes; }
size_t neap_workspace_pool_soft(const neap_workspace *ws) { return ws->pool_soft_bytes; }
size_t neap_workspace_trim_pool(neap_workspace *ws) {
  return ws->pool != NULL ? neap_pool_trim(ws->pool) : 0;
}
uint64_t neap_workspace_generation(const neap_workspace *ws) { return ws->n_run; }

/* ---- names ----------------------------------------------------------------------------------- */

/* One walk up the chain. Forwarding renames on the way; where nothing else falls through, it ends
 * the walk. */
neap_found neap_workspace_find(const neap_workspace *ws, const char *name) {
  return neap_workspace_find_key(ws, neap_intern(name));
}

neap_found neap_workspace_find_key(const neap_workspace *ws, const char *key) {
  for (const neap_workspace *at = ws; at != NULL && key != NULL; at = at->parent) {
    /* Ending a move changes where bytes are, not what a name means: a const workspace may. */
    if (at->move != NULL) neap_workspace_finish_moves((neap_workspace *)(uintptr_t)at);
    int cell = neap_map_get(&at->index, key, -1);
    /* the caller's constness is not its parents' */
    if (cell >= 0) return (neap_found){(neap_workspace *)(uintptr_t)at, cell};
    /* A forwarded name is another one from here up; where names are forwarded the rest ends. */
    int i = 0;
    while (i < at->n_forward && at->forward_name[i] != key) i++;
    if (i < at->n_forward)
      key = at->forward_target[i];
    else if (at->forwards_only)
      break;
  }
  return (neap_found){NULL, -1};
}

/* One number for the workspace and all above it, compared before each run. */
uint64_t neap_workspace_chain_version(const neap_workspace *ws) {
  uint64_t version = 0;
  /* versions only grow, so the sum tells any change */
  for (; ws != NULL; ws = ws->parent) version += ws->version;
  return version;
}

bool neap_workspace_reserve(neap_workspace *ws, int n) {
  return neap_list_grow(&ws->cell, &ws->cap_cell, ws->n_cell + n, sizeof *ws->cell);
}

void neap_workspace_check(const neap_workspace *ws) {
  if (!NEAP_DEBUG) return;
  NEAP_ASSERT(ws->index.n == ws->n_cell, "the index holds exactly the names of %d cells: %d",
              ws->n_cell, ws->index.n);
  for (int c = 0; c < ws->n_cell; c++) {
    const neap_cell *cell = &ws->cell[c];
    NEAP_ASSERT(neap_map_get(&ws->index, cell->name, -1) == c, "\"%s\" leads to its cell, %d: %d",
                cell->name, c, neap_map_get(&ws->index, cell->name, -1));
    int n_value = (cell->tensor.storage != NULL) + (cell->text != NULL) + (cell->scope != NULL);
    NEAP_ASSERT(n_value <= 1, "\"%s\" has at most one of tensor, text and scope: %d", cell->name,
                n_value);
  }

  /* A name has one meaning: it is forwarded once, and so is a net stored once. */
  for (int i = 0; i < ws->n_forward; i++)
    for (int j = 0; j < i; j++)
      NEAP_ASSERT(ws->forward_name[i] != ws->forward_name[j], "\"%s\" is forwarded once",
                  ws->forward_name[i]);
  for (int i = 0; i < ws->n_net; i++)
    for (int j = 0; j < i; j++)
      NEAP_ASSERT(strcmp(neap_net_name(ws->net[i]), neap_net_name(ws->net[j])) != 0,
                  "the names of own nets differ: \"%s\"", neap_net_name(ws->net[i]));
}

/* Room, then the index, then the cell: a refusal leaves all as it was. */
int neap_workspace_add_cell(neap_workspace *ws, const char *name) {
  const char *key = neap_intern(name);
  if (key == NULL || !neap_workspace_reserve(ws, 1) || !neap_map_set(&ws->index, key, ws->n_cell))
    return -1;
  ws->cell[ws->n_cell] = (neap_cell){.name = key, .region = NEAP_REGION_IO};
  ws->version++;
  return ws->n_cell++;
}

neap_status neap_workspace_new_cell(neap_workspace *ws, const char *name, int *cell,
                                    neap_error *error) {
  NEAP_TRY(neap_net_check_name("blob", name, error));
  *cell = neap_workspace_add_cell(ws, name);
  return *cell >= 0 ? NEAP_OK : neap_fail_memory(error, sizeof(neap_cell), "a blob");
}

/* The last cell takes the place of the dropped one: cells have no order that anyone may rely on. */
void neap_workspace_drop_cell(neap_workspace *ws, int cell) {
  neap_cell_clear(&ws->cell[cell]);
  neap_map_remove(&ws->index, ws->cell[cell].name);
  ws->cell[cell] = ws->cell[--ws->n_cell];
  /* present: takes no memory */
  if (cell < ws->n_cell) neap_map_set(&ws->index, ws->cell[cell].name, cell);
  ws->version++;
  if (NEAP_DEBUG) neap_workspace_check(ws);
}

/* Looks for a near name where look-up would have looked. */
neap_status neap_workspace_fail_unknown(const neap_workspace *ws, const char *verb,
                                        const char *name, neap_error *error) {
  /* The first near name wins among equals: it is nearest to where the look-up began. */
  const char *near = NULL;
  int least = neap_text_reach(name);
  for (const neap_workspace *at = ws; at != NULL; at = at->forwards_only ? NULL : at->parent)
    for (int c = 0; c < at->n_cell; c++) {
      int d = neap_text_distance(name, at->cell[c].name);
      if (d > least || (near != NULL && d == least)) continue;
      near = at->cell[c].name;
      least = d;
    }
  if (error != NULL && error->code == NEAP_OK)
    snprintf(error->blob, sizeof error->blob, "%s", name);
  neap_fail(error, NEAP_NAME, "%s \"%s\": the workspace has no such blob", verb, name);
  if (near != NULL) neap_hint(error, "did you mean \"%s\"?", near);
  return NEAP_NAME;
}

bool neap_workspace_type(const neap_workspace *ws, const char *name, neap_type *type) {
  neap_found found = neap_workspace_find(ws, name);
  if (found.ws == NULL || found.ws->cell[found.cell].tensor.storage == NULL) return false;
  *type = neap_tensor_type(&found.ws->cell[found.cell].tensor);
  return true;
}

bool neap_workspace_has(const neap_workspace *ws, const char *name) {
  return neap_workspace_find(ws, name).ws != NULL;
}

/* A local blob hides the parent's of the same name from here down. */
neap_status neap_workspace_create(neap_workspace *ws, const char *name, bool local,
                                  neap_error *error) {
  neap_found found = neap_workspace_find(ws, name);
  if (found.ws == ws || (found.ws != NULL && !local)) return NEAP_OK;
  int cell;
  return neap_workspace_new_cell(ws, name, &cell, error);
}

/* Bytes live on while another name or a view refers to them; programs let go of them. */
bool neap_workspace_remove(neap_workspace *ws, const char *name) {
  const char *key = neap_intern(name);
  int cell = key != NULL ? neap_map_get(&ws->index, key, -1) : -1;
  if (cell < 0) return false;
  neap_workspace_leave_bytes(ws, &ws->cell[cell]);
  neap_workspace_drop_cell(ws, cell);
  return true;
}

/* The new name must mean nothing from here, or the blob would hide another one unasked. */
neap_status neap_workspace_rename(neap_workspace *ws, const char *from, const char *to,
                                  neap_error *error) {
  const char *old = neap_intern(from), *new = neap_intern(to);
  neap_workspace_finish_moves(ws); /* which know blobs by their names */
  if (old == NULL || new == NULL) return refused(error);

  /* Only own cells, and only to a name that nobody uses, here or above. */
  int cell = neap_map_get(&ws->index, old, -1);
  if (cell < 0 && neap_workspace_has(ws, from))
    return neap_fail(error, NEAP_NAME,
                     "rename \"%s\": it is the parent's; only own blobs can be renamed", from);
  if (cell < 0) return neap_workspace_fail_unknown(ws, "rename", from, error);
  if (neap_workspace_has(ws, to))
    return neap_fail(error, NEAP_NAME, "rename \"%s\": there is a blob \"%s\" already", from, to);
  NEAP_TRY(neap_net_check_name("blob", to, error));

  /* The new key is added before the old one goes: if it is refused, the blob has its old name. */
  if (!neap_map_set(&ws->index, new, cell)) return refused(error);
  neap_map_remove(&ws->index, old);
  ws->cell[cell].name = new;
  ws->version++;
  if (NEAP_DEBUG) neap_workspace_check(ws);
  return NEAP_OK;
}

/* ---- reports --------------------------------------------------------------------------------- */

/* Where a cell's bytes begin and end in their storage. */
static void extent(const neap_tensor *t, int64_t *begin, int64_t *end) {
  neap_type type = neap_tensor_type(t);
  *begin = t->offset_bytes;
  *end = t->offset_bytes + (int64_t)neap_type_bytes(&type);
}

/* Bytes of the cell that no earlier cell of the workspace covers: storage that is shared under two
 * names, or of which one name has a part, is counted once. Walks from one covered stretch to the
 * next; each step looks at all earlier cells, so a report of all cells is quadratic in them. */
static size_t counted_bytes(const neap_workspace *ws, int cell) {
  const neap_tensor *t = &ws->cell[cell].tensor;
  int64_t at, end, begin, to;
  extent(t, &at, &end);
  size_t bytes = 0;
  while (at < end) {
    /* How far earlier cells cover what begins here; and where the next of them begins. */
    int64_t covered_to = at, next = end;
    for (int c = 0; c < cell; c++) {
      if (ws->cell[c].tensor.storage != t->storage) continue;
      extent(&ws->cell[c].tensor, &begin, &to);
      if (begin <= at && to > covered_to) covered_to = to;
      if (begin > at && begin < next) next = begin;
    }
    /* Nobody covers it: it counts up to the next one. */
    if (covered_to == at) {
      bytes += (size_t)(next - at);
      covered_to = next;
    }
    at = covered_to;
  }
  return bytes;
}

/* `name` may differ from the cell's own, where it is forwarded. */
static void describe(const neap_workspace *ws, int cell, const char *name, bool borrowed,
                     neap_blob_info *info) {
  const neap_cell *c = &ws->cell[cell];
  neap_blob_kind kind = neap_cell_kind(c);
  *info = (neap_blob_info){.name = name,
                           .kind = kind,
                           .role = c->role,
                           .region = c->region,
                           .bank = c->bank,
                           .borrowed = borrowed};
  if (kind == NEAP_BLOB_STRING) info->bytes = info->counted_bytes = c->text_bytes;
  if (kind == NEAP_BLOB_SCOPE) info->bytes = info->counted_bytes = neap_scope_held_bytes(c->scope);
  if (kind != NEAP_BLOB_TENSOR) return;

  /* Shared bytes are counted where they are met first. */
  info->type = neap_tensor_type(&c->tensor);
  info->bytes = neap_type_bytes(&info->type);
  info->counted_bytes = counted_bytes(ws, cell);
  info->shares = info->counted_bytes < info->bytes;
}

/* Whether a workspace from `from` up to `to` (exclusive) owns the name, so that `to`'s is
 * hidden. */
static bool is_hidden(const neap_workspace *from, const neap_workspace *to, const char *name) {
  for (; from != to; from = from->parent)
    if (neap_map_get(&from->index, name, -1) >= 0) return true;
  return false;
}

/* Blobs of the arena that no cell answers for; whether their bytes are intact, fetch says. */
static void visit_transient(const neap_workspace *ws, void (*visit)(void *, const neap_blob_info *),
                            void *context) {
  if (ws->last == NULL) return;
  const neap_graph *graph = neap_program_graph(ws->last);
  for (int v = 0; v < graph->n_value; v++) {
    const neap_value *value = &graph->value[v];
    int blob;
    size_t offset;

    /* Last versions in the arena, of names that no own cell has. */
    if (!value->is_blob || !value->is_last || value->region != NEAP_REGION_ARENA) continue;
    if (!neap_program_where(ws->last, v, &blob, &offset)) continue;
    if (neap_map_get(&ws->index, value->name, -1) >= 0) continue;
    visit(context, &(neap_blob_info){.name = value->name,
                                     .kind = NEAP_BLOB_TRANSIENT,
                                     .role = value->role,
                                     .type = value->type,
                                     .region = NEAP_REGION_ARENA,
                                     .bytes = value->bytes});
  }
}

/* Own cells, transient values, forwarded names, then the parents' that nobody hides. */
void neap_workspace_each(const neap_workspace *ws,
                         void (*visit)(void *context, const neap_blob_info *info), void *context) {
  neap_blob_info info;
  for (int c = 0; c < ws->n_cell; c++) {
    describe(ws, c, ws->cell[c].name, false, &info);
    visit(context, &info);
  }
  visit_transient(ws, visit, context);

  /* A forwarded blob is described as its owner has it, under the name that it has here. */
  for (int i = 0; i < ws->n_forward; i++) {
    neap_found found = neap_workspace_find(ws->parent, ws->forward_target[i]);
    if (found.ws == NULL || neap_map_get(&ws->index, ws->forward_name[i], -1) >= 0) continue;
    describe(found.ws, found.cell, ws->forward_name[i], true, &info);
    visit(context, &info);
  }

  /* Where names are forwarded nothing else of the parents is seen. */
  const neap_workspace *at = ws;
  while (!at->forwards_only && at->parent != NULL) {
    at = at->parent;
    for (int c = 0; c < at->n_cell; c++) {
      if (is_hidden(ws, at, at->cell[c].name)) continue;
      describe(at, c, at->cell[c].name, true, &info);
      visit(context, &info);
    }
  }
}

/* Rounded as allocated. Segments count by their cells, which lie in them without gaps. Frames of
 * scopes are its own too. */
size_t neap_workspace_held_bytes(const neap_workspace *ws) {
  size_t bytes = neap_workspace_arena_bytes(ws) + neap_workspace_pool(ws).reserved_bytes +
                 neap_workspace_left_bytes(ws);
  for (int c = 0; c < ws->n_cell; c++) {
    size_t own = ws->cell[c].tensor.storage != NULL ? counted_bytes(ws, c) : 0;
    bytes += neap_align(own > 0 ? NEAP_MAX(own, ws->cell[c].reserve_bytes) : 0);
    if (ws->cell[c].scope != NULL) bytes += neap_scope_held_bytes(ws->cell[c].scope);
  }

  /* What no name leads to: copies for undoing, and constants of programs. */
  if (ws->undo != NULL) bytes += neap_storage_bytes(ws->undo);
  for (int a = 0; a < ws->n_attachment; a++)
    if (ws->attachment[a].constants != NULL)
      bytes += neap_storage_bytes(ws->attachment[a].constants);
  return bytes;
}

/* ---- nets ------------------------------------------------------------------------------------ */

static int net_index(const neap_workspace *ws, const char *name) {
  for (int i = 0; i < ws->n_net; i++)
    if (strcmp(neap_net_name(ws->net[i]), name) == 0) return i;
  return -1;
}

/* Sessions compiled from a net that is overwritten do not need it any more. */
neap_status neap_workspace_add_net(neap_workspace *ws, neap_net *net, bool overwrite,
                                   neap_error *error) {
  const char *name = neap_net_name(net);
  if (name == NULL || name[0] == '\0')
    return neap_fail(error, NEAP_NAME, "workspace: a net needs a name to be stored under");

  /* Room first, so that the old net is only freed when the new one has its place. */
  int i = net_index(ws, name);
  if (i >= 0 && !overwrite) {
    neap_hint(error, "overwrite it, or delete it first");
    return neap_fail(error, NEAP_NAME, "workspace: there is a net \"%s\" already", name);
  }
  if (i < 0 && !neap_list_grow(&ws->net, &ws->cap_net, ws->n_net + 1, sizeof(neap_net *)))
    return neap_fail_memory(error, sizeof(neap_net *), "a net's name");
  if (i >= 0)
    neap_net_free(ws->net[i]);
  else
    i = ws->n_net++;
  ws->net[i] = net;
  return NEAP_OK;
}

neap_net *neap_workspace_net(const neap_workspace *ws, const char *name) {
  for (; ws != NULL; ws = ws->parent) {
    int i = net_index(ws, name);
    if (i >= 0) return ws->net[i];
  }
  return NULL;
}

neap_net *neap_workspace_net_at(const neap_workspace *ws, int index) {
  return index >= 0 && index < ws->n_net ? ws->net[index] : NULL;
}

bool neap_workspace_delete_net(neap_workspace *ws, const char *name) {
  int i = net_index(ws, name);
  if (i < 0) return false;
  neap_net_free(ws->net[i]);
  for (ws->n_net--; i < ws->n_net; i++) ws->net[i] = ws->net[i + 1];
  return true;
}
