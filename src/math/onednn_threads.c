/* onednn_threads.c: oneDNN's parallel regions run on Neap's teams (base/team.c), not on OpenMP's.
 *
 * OpenMP's region may have fewer threads than a kernel was made for (OMP_THREAD_LIMIT, OMP_DYNAMIC,
 * a region around it), and the kernel then waits for the missing ones without end; and its threads
 * wait for each other by looking, which beside other busy processes costs many times the work. How
 * long is read once, when the library is loaded, before anything of Neap's runs. So the six
 * functions of OpenMP that oneDNN calls are replaced in the table through which it calls them, the
 * global offset table of that one library. Calls that are not Neap's go on to OpenMP: others in the
 * process may use oneDNN as well.
 *
 * INVARIANT: where a function can't be replaced (another oneDNN, another system) every kernel is
 * made for one thread.
 */
#include "math/onednn_int.h"

#include <omp.h>
#include <pthread.h>
#if defined(__linux__) && defined(__LP64__)
#include <link.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

/* ---- what oneDNN is told --------------------------------------------------------------------- */

/* Of this thread; all zero outside calls of Neap's. */
typedef struct standing {
  int most;           /* threads that a region may have */
  int share, n_share; /* of the region around; 0, 1 when there is none */
  bool meets, failed; /* see onednn_enter, onednn_leave */
  int before;         /* OpenMP's own number, where that counts */
} standing;
static _Thread_local standing here;
static bool is_replaced;

/* Calls don't nest: no kernel of oneDNN's calls Neap. Where nothing is replaced oneDNN asks OpenMP,
 * and n_thread is 1. */
void onednn_enter(int n_thread, bool meets) {
  here = (standing){.most = n_thread, .n_share = 1, .meets = meets};
  /* Else OpenMP's own number is all that can be told. */
  if (is_replaced) return;
  here.before = omp_get_max_threads();
  omp_set_num_threads(1);
}

bool onednn_leave(void) {
  bool good = !here.failed;
  if (here.before > 0) omp_set_num_threads(here.before);
  here = (standing){0};
  return good;
}

static int get_max_threads(void) { return here.most > 0 ? here.most : omp_get_max_threads(); }
static int get_num_threads(void) { return here.most > 0 ? here.n_share : omp_get_num_threads(); }
static int get_thread_num(void) { return here.most > 0 ? here.share : omp_get_thread_num(); }
static int in_parallel(void) { return here.most > 0 ? here.n_share > 1 : omp_in_parallel(); }

/* ---- regions --------------------------------------------------------------------------------- */

/* Of libgomp, by names that compilers know: the body on n threads, 0 for the usual number; and a
 * barrier among them. */
extern void GOMP_parallel(void (*body)(void *), void *data, unsigned n, unsigned flags);
extern void GOMP_barrier(void);

typedef struct region {
  void (*body)(void *data);
  void *data;
  int n;
  bool meets;
} region;

/* The caller's standing is that of a share while it runs one. Where the shares wait for each other
 * by looking, all begin together: who came first would look while the other has yet to get a
 * core. */
static void run_share(void *context, int share) {
  const region *r = context;
  standing saved = here;
  /* Kernels ask which share they are, and of how many. */
  here = (standing){.most = r->n, .share = share, .n_share = r->n};
  if (r->meets) neap_team_meet();
  r->body(r->data);
  here = saved;
}

/* A region inside a region has one thread, as OpenMP's. */
static void parallel(void (*body)(void *), void *data, unsigned n, unsigned flags) {
  /* Not a call of Neap's: another library in the process uses the same oneDNN. */
  if (here.most == 0) {
    GOMP_parallel(body, data, n, flags);
    return;
  }
  /* Threads that could not be had are noted, since a kernel can't fail: who called it asks. */
  region r = {.body = body, .data = data, .n = n > 0 ? (int)n : here.most, .meets = here.meets};
  if (r.n > 1 && here.n_share == 1) {
    if (!neap_team_run_together(r.n, run_share, &r)) here.failed = true;
    return;
  }
  /* A region within one: its body is told that it is alone. */
  int share = here.share;
  here.share = 0;
  body(data);
  here.share = share;
}

static void barrier(void) {
  if (here.most == 0)
    GOMP_barrier();
  else if (here.n_share > 1)
    neap_team_meet();
}

/* ---- the table ------------------------------------------------------------------------------- */

#if defined(__linux__) && defined(__LP64__)

typedef void (*function)(void);

static const struct {
  const char *name;
  function ours;
} replaced[] = {{"omp_get_max_threads", (function)get_max_threads},
                {"omp_get_num_threads", (function)get_num_threads},
                {"omp_get_thread_num", (function)get_thread_num},
                {"omp_in_parallel", (function)in_parallel},
                {"GOMP_parallel", (function)parallel},
                {"GOMP_barrier", (function)barrier}};

/* A loaded object, and which of the names (bits) have been replaced in it. */
typedef struct object {
  uintptr_t base, end; /* of its addresses */
  const ElfW(Dyn) * dynamic;
  uintptr_t fixed, fixed_end; /* what is made read-only after loading */
  unsigned found;
} object;

/* The loaded object that has oneDNN's code. */
static int find_object(struct dl_phdr_info *info, size_t size, void *context) {
  (void)size;
  object o = {.base = info->dlpi_addr};
  uintptr_t code = (uintptr_t)dnnl_engine_create;
  bool has_code = false;
  /* Its addresses, its table of symbols, and the part that is read-only. */
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *h = &info->dlpi_phdr[i];
    uintptr_t from = o.base + h->p_vaddr, to = from + h->p_memsz;
    if (h->p_type == PT_LOAD)
      has_code = has_code || (code >= from && code < to), o.end = NEAP_MAX(o.end, to);
    if (h->p_type == PT_DYNAMIC) o.dynamic = (const void *)from;
    if (h->p_type == PT_GNU_RELRO) o.fixed = from, o.fixed_end = to;
  }
  if (!has_code || o.dynamic == NULL) return 0;
  *(object *)context = o;
  return 1;
}

/* Writes one entry, in a page that may be read-only. The entry is read by other threads as it is
 * written. */
static bool write_entry(const object *o, function *entry, function value) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)entry / page * page;
  bool is_fixed = (uintptr_t)entry >= o->fixed && (uintptr_t)entry < o->fixed_end;
  if (is_fixed && mprotect((void *)at, page, PROT_READ | PROT_WRITE) != 0) return false;
  /* One word: whoever reads it sees the old function or the new one. */
  atomic_store((_Atomic(function) *)entry, value);
  if (is_fixed) mprotect((void *)at, page, PROT_READ);
  return true;
}

/* Replaces what a list of relocations binds to one of the names: entries that hold the address of a
 * symbol and nothing else. */
static void replace_in(object *o, const ElfW(Rela) * list, size_t bytes, const ElfW(Sym) * symbols,
                       const char *names) {
  for (const ElfW(Rela) *r = list; r < list + bytes / sizeof *r; r++) {
    const char *name = names + symbols[ELF64_R_SYM(r->r_info)].st_name;
    /* Relative entries and those with an offset name no function. */
    if (ELF64_R_SYM(r->r_info) == 0 || r->r_addend != 0) continue;
    for (int k = 0; k < NEAP_COUNT(replaced); k++)
      if (strcmp(name, replaced[k].name) == 0 &&
          write_entry(o, (function *)(o->base + r->r_offset), replaced[k].ours))
        o->found |= 1u << k;
  }
}

/* Addresses in the dynamic section are those of the file on some systems, those in memory on
 * others. */
static const void *address(const object *o, ElfW(Addr) value) {
  return (const void *)(value < o->base ? o->base + value : value);
}

static bool replace_all(void) {
  object o = {0};
  if (dl_iterate_phdr(find_object, &o) == 0) return false;
  const ElfW(Rela) *list = NULL, *calls = NULL;
  const ElfW(Sym) *symbols = NULL;
  const char *names = NULL;
  size_t list_bytes = 0, calls_bytes = 0;
  bool has_addend = true;
  /* Where the tables are. Relocations without addends are not read: systems of 64 bits have
   * none. */
  for (const ElfW(Dyn) *d = o.dynamic; d->d_tag != DT_NULL; d++) switch (d->d_tag) {
      case DT_SYMTAB: symbols = address(&o, d->d_un.d_ptr); break;
      case DT_STRTAB: names = address(&o, d->d_un.d_ptr); break;
      case DT_RELA: list = address(&o, d->d_un.d_ptr); break;
      case DT_RELASZ: list_bytes = d->d_un.d_val; break;
      case DT_JMPREL: calls = address(&o, d->d_un.d_ptr); break;
      case DT_PLTRELSZ: calls_bytes = d->d_un.d_val; break;
      case DT_PLTREL: has_addend = d->d_un.d_val == DT_RELA; break;
      default: break;
    }
  if (symbols == NULL || names == NULL || !has_addend) return false;
  /* Functions are bound through either list. */
  if (list != NULL) replace_in(&o, list, list_bytes, symbols, names);
  if (calls != NULL) replace_in(&o, calls, calls_bytes, symbols, names);
  /* All or none is of use: half of a region's functions would tell another number of threads. */
  return o.found == (1u << NEAP_COUNT(replaced)) - 1;
}

#else

static bool replace_all(void) { return false; }

#endif

static void start(void) { is_replaced = replace_all(); }

int onednn_threads(int n) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  return pthread_once(&once, start) == 0 && is_replaced ? NEAP_MAX(n, 1) : 1;
}
