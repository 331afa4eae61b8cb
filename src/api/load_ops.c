/* load_ops.c: ops of plugins: shared libraries that export records (neap/record.h).
 *
 * A plugin calls Neap's helpers by name. In the program neap, and in programs that are linked with
 * libneap, those names are known to every library; where Neap itself is a module that Lua has
 * loaded for itself alone, they are made known first.
 *
 * INVARIANT: what has been loaded stays loaded, since nets and threads may have its functions; so
 * does a library that was refused, whose code has run.
 */
#include "api/api.h"
#include "neap/record.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* Makes the names of the library that this function is in known to those loaded from now on. */
static void export_own_names(void) {
  Dl_info own;
  if (dladdr((const void *)(uintptr_t)neap_load_ops, &own) == 0 || own.dli_fname == NULL) return;
  /* Not there under that name: it is the program itself, whose names are known already. The handle
   * is kept, with what it says. */
  (void)dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
}

/* All of them or none: the first that is refused takes the ones before it along. */
static neap_status add_all(const neap_op *const *ops, const char *path, neap_error *error) {
  int n = 0;
  neap_status status = NEAP_OK;
  for (; ops[n] != NULL; n++) {
    if (neap_op_find(ops[n]->name) == ops[n]) continue; /* loaded before */
    status = neap_op_add(ops[n], path, error);
    if (status != NEAP_OK) break;
  }
  /* Those that were there before this call have come with all the others: none of them is new. */
  if (status != NEAP_OK)
    for (int i = 0; i < n; i++) neap_op_remove(ops[i]);
  return status;
}

neap_status neap_load_ops(const char *path, const neap_op *const **ops, neap_error *error) {
  if (ops != NULL) *ops = NULL;

  /* A name without a slash would be looked for in the system's folders. */
  char here[1024];
  int n = snprintf(here, sizeof here, "%s%s", strchr(path, '/') != NULL ? "" : "./", path);
  if (n < 0 || n >= (int)sizeof here)
    return neap_fail(error, NEAP_IO, "%.60s..: the path is too long", path);
  export_own_names();

  /* Its own names are its own: two plugins may have a helper of one name. */
  void *library = dlopen(here, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return neap_fail(error, NEAP_IO, "%s", dlerror());

  /* It says for which Neap it was made before anything else of it is looked at. */
  const int *abi = dlsym(library, "neap_ops_abi");
  const neap_op *const *list = dlsym(library, "neap_ops");
  if (abi == NULL || list == NULL) {
    neap_fail(error, NEAP_ARGUMENT, "%s: is no plugin: it exports no %s", path,
              abi == NULL ? "neap_ops_abi" : "neap_ops");
    neap_hint(error,
              "const int neap_ops_abi = NEAP_OPS_ABI; const neap_op *const neap_ops[] = "
              "{&my_op, NULL};");
    return NEAP_ARGUMENT;
  }

  /* A record of another layout would be read as something else: the number tells before the first
   * record is looked at. */
  if (*abi != NEAP_OPS_ABI) {
    neap_fail(error, NEAP_ARGUMENT,
              "%s: was compiled for another Neap: its interface is %d, this one's %d", path, *abi,
              NEAP_OPS_ABI);
    neap_hint(error, "compile it again with this version's neap/record.h");
    return NEAP_ARGUMENT;
  }
  NEAP_TRY(add_all(list, path, error));
  if (ops != NULL) *ops = list;
  return NEAP_OK;
}
