/* source.c: reading files: opening, mapping, and reads that check their bounds.
 *
 * Copies use pread rather than a mapping: a file that shrinks meanwhile is then an error, not a
 * signal.
 */
#include "io/io_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_AT_ONCE = 1 << 30 }; /* Linux reads at most 2 GiB in a call */

neap_status neap_io_source_fail(const neap_io_source *source, neap_error *error, neap_status code,
                                const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  neap_format_list(text, sizeof text, format, args);
  va_end(args);
  /* Of an archive the member is named too. */
  if (source->member == NULL) return neap_fail(error, code, "%s: %s", source->path, text);
  return neap_fail(error, code, "%s, member \"%s\": %s", source->path, source->member, text);
}

static _Atomic int64_t mapped_bytes;

int64_t neap_io_mapped_bytes(void) { return atomic_load(&mapped_bytes); }

/* The owner of a mapping, kept until its storage goes. */
typedef struct mapping {
  void *data;
  size_t bytes;
} mapping;

/* The storage's release function. */
static void unmap(void *owner) {
  mapping *m = owner;
  munmap(m->data, m->bytes);
  atomic_fetch_sub(&mapped_bytes, (int64_t)m->bytes);
  neap_free(m);
}

/* Maps the whole open file. Private and writable in both modes: a stray write to a read-only
 * storage, which neap_tensor_copy refuses, then spoils a view and not the process or the file. */
static neap_status map_file(neap_io_source *source, neap_io_map map, neap_error *error) {
  mapping *m = neap_alloc(sizeof *m);
  if (m == NULL) return neap_fail_memory(error, sizeof *m, "a file mapping");
  m->bytes = (size_t)source->n_bytes;
  m->data =
    mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, source->fd, 0);
  if (m->data == MAP_FAILED) {
    neap_free(m);
    return neap_io_source_fail(source, error, NEAP_IO, "cannot be mapped: %s", strerror(errno));
  }
  atomic_fetch_add(&mapped_bytes, (int64_t)m->bytes);
  /* The storage owns the mapping from here on, and ends it with its last tensor. */
  source->memory = neap_storage_borrow(m->data, m->bytes, unmap, m);
  if (source->memory == NULL) {
    unmap(m);
    return neap_fail_memory(error, sizeof *m, "a file mapping");
  }
  if (map == NEAP_IO_MAP_READ) neap_storage_set_read_only(source->memory);
  return NEAP_OK;
}

/* O_NONBLOCK only so that opening a pipe by mistake does not hang; regular files do not know it. */
neap_status neap_io_source_open(neap_io_source *source, const char *path, neap_io_map map,
                                neap_error *error) {
  *source = (neap_io_source){.path = path, .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  /* Only a regular file has a size that can be trusted. */
  struct stat info;
  neap_status status = NEAP_OK;
  if (source->fd < 0 || fstat(source->fd, &info) != 0)
    status = neap_io_source_fail(source, error, NEAP_IO, "cannot be opened: %s", strerror(errno));
  else if (!S_ISREG(info.st_mode))
    status = neap_io_source_fail(
      source, error, NEAP_IO, S_ISDIR(info.st_mode) ? "is a directory" : "is not a regular file");
  else
    source->n_bytes = info.st_size;
  /* An empty file can't be mapped, and has nothing to map. */
  if (status == NEAP_OK && map != NEAP_IO_COPY && source->n_bytes > 0)
    status = map_file(source, map, error);
  if (status != NEAP_OK) neap_io_source_fini(source);
  return status;
}

/* The mapping lives on while tensors see it. */
void neap_io_source_fini(neap_io_source *source) {
  if (source->fd >= 0) close(source->fd);
  neap_storage_release(source->memory);
  *source = (neap_io_source){.fd = -1};
}

neap_status neap_io_source_check(const neap_io_source *source, int64_t offset, int64_t n,
                                 const char *what, neap_error *error) {
  /* By subtraction: a sum of numbers from a file could overflow. */
  if (offset >= 0 && n >= 0 && offset <= source->n_bytes && n <= source->n_bytes - offset)
    return NEAP_OK;
  return neap_io_source_fail(
    source, error, NEAP_DATA,
    "truncated or damaged: %s needs %lld bytes from offset %lld, and there are %lld in all", what,
    (long long)n, (long long)offset, (long long)source->n_bytes);
}

neap_status neap_io_source_read(const neap_io_source *source, int64_t offset, void *out, int64_t n,
                                const char *what, neap_error *error) {
  NEAP_TRY(neap_io_source_check(source, offset, n, what, error));
  if (source->memory != NULL) {
    NEAP_ASSERT(
      (size_t)(source->memory_offset + source->n_bytes) <= neap_storage_bytes(source->memory),
      "%s: its %lld bytes lie in its memory", source->path, (long long)source->n_bytes);
    if (n > 0)
      memcpy(out, neap_storage_data(source->memory) + source->memory_offset + offset, (size_t)n);
    return NEAP_OK;
  }
  NEAP_ASSERT(source->fd >= 0, "%s: a source without memory is open", source->path);
  for (int64_t done = 0; done < n;) {
    /* A call may give fewer bytes, and none at the end, where the file was longer before. */
    ssize_t got = pread(source->fd, (char *)out + done,
                        (size_t)NEAP_MIN(n - done, (int64_t)MOST_AT_ONCE), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return neap_io_source_fail(source, error, NEAP_IO, "cannot be read: %s", strerror(errno));
    if (got == 0)
      return neap_io_source_fail(source, error, NEAP_IO, "became shorter while it was read");
    done += got;
  }
  return NEAP_OK;
}

neap_status neap_io_source_storage(const neap_io_source *source, int64_t offset, int64_t n,
                                   const char *what, neap_storage **out, neap_error *error) {
  NEAP_TRY(neap_io_source_check(source, offset, n, what, error));
  /* Checked first: no file makes Neap allocate more than it has. */
  neap_storage *storage = neap_storage_new((size_t)n);
  if (storage == NULL) return neap_fail_memory(error, (size_t)n, what);
  neap_status status =
    neap_io_source_read(source, offset, neap_storage_data(storage), n, what, error);
  if (status == NEAP_OK)
    *out = storage;
  else
    neap_storage_release(storage);
  return status;
}

neap_status neap_io_map_file(const char *path, neap_storage **out, int64_t *n_bytes,
                             neap_error *error) {
  neap_io_source source;
  *out = NULL;
  NEAP_TRY(neap_io_source_open(&source, path, NEAP_IO_MAP_READ, error));
  *n_bytes = source.n_bytes;
  if (source.memory != NULL) *out = neap_storage_retain(source.memory);
  neap_io_source_fini(&source);
  return NEAP_OK;
}

/* One read of the size the file has when it is opened. */
neap_status neap_io_read_text(const char *path, neap_io_bytes *out, neap_error *error) {
  neap_io_source source;
  NEAP_TRY(neap_io_source_open(&source, path, NEAP_IO_COPY, error));
  size_t n = (size_t)source.n_bytes;
  char *data = neap_alloc(n + 1);
  neap_status status = data == NULL
                         ? neap_fail_memory(error, n + 1, path)
                         : neap_io_source_read(&source, 0, data, source.n_bytes, "the file", error);
  neap_io_source_fini(&source);
  if (status != NEAP_OK) {
    neap_free(data);
    return status;
  }
  /* A text for C too. */
  data[n] = '\0';
  *out = (neap_io_bytes){data, n};
  return NEAP_OK;
}
