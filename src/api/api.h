/* api: the public C API, neap.h, on top of driver. Most of its functions are the rooms' own; here
 * are those that turn the public structs into the rooms' and back, one file a section of neap.h.
 *
 * INVARIANT: nothing of a room's private types crosses this room: a program that uses neap.h need
 * not be compiled again when a room changes.
 */
#ifndef NEAP_API_H
#define NEAP_API_H

#include "driver/driver.h"

/* The buffer's text, handed over to the caller; the buffer is ended either way. */
neap_status neap_api_give_text(neap_buffer *buffer, char **out, neap_error *error);

#endif
