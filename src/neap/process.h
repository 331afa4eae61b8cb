/* neap/process.h: what a process with Neap in it can ask and say of the whole of itself. Part of
 * neap.h, which includes it.
 */
#include "neap.h"
#ifndef NEAP_PROCESS_H
#define NEAP_PROCESS_H

/* ---- files within ---------------------------------------------------------------------------- */

/* Files that are part of the library, under their paths in the sources: "lua/neap/..",
 * "db/queries/.." (questions for neap_db_query), "scripts/nets/..". The text, ended by a zero that
 * *n (may be NULL) does not count; NULL when there is no such file. */
NEAP_API const char *neap_embedded_find(const char *path, size_t *n);
/* The same by index, in order of their paths; NULL after the last. */
NEAP_API const char *neap_embedded_at(int index, size_t *n, const char **path);

#endif
