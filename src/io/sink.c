/* sink.c: writing files whole or not at all.
 *
 * The bytes go to PATH.PID-N.tmp in the same directory, are forced to the disk, and take the name PATH by rename, which
 * POSIX makes atomic. A process that is killed leaves at most the temporary file.
 */
#include "io/io_int.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST_NAMES = 100, MOST_AT_ONCE = 1 << 30 };

/* IO error when the directory cannot be written to, or the path is a directory or a device. */
neap_status neap_io_sink_open(neap_io_sink *sink, const char *path, neap_error *error) {
  size_t room = strlen(path) + 40;
  *sink = (neap_io_sink){.path = path, .fd = -1, .temporary = neap_alloc(room)};
  if (sink->temporary == NULL) return neap_fail_memory(error, room, "a file name");
  struct stat info;
  bool exists = stat(path, &info) == 0;
  if (exists && !S_ISREG(info.st_mode)) {
    neap_free(sink->temporary);
    return neap_fail(error, NEAP_IO, "%s: cannot be written: it is there and is not a regular file", path);
  }
  for (int i = 0; i < MOST_NAMES && sink->fd < 0; i++) { /* another thread may be writing the same path */
    snprintf(sink->temporary, room, "%s.%ld-%d.tmp", path, (long)getpid(), i);
    sink->fd = open(sink->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (sink->fd < 0 && errno != EEXIST) break;
  }
  if (sink->fd < 0) {
    neap_status status = neap_fail(error, NEAP_IO, "%s: cannot be written: %s", path, strerror(errno));
    neap_free(sink->temporary);
    return status;
  }
  if (exists) (void)!fchmod(sink->fd, info.st_mode & 07777); /* who could read the old one may read the new one */
  return NEAP_OK;
}

/* As write(2), but a file above the process's limit (RLIMIT_FSIZE) is the error EFBIG only: the signal that comes with it, and
 * whose default is to end the process, is held off this thread and taken back. */
static ssize_t write_some(int fd, const void *data, size_t n) {
  sigset_t limit, before, pending;
  sigemptyset(&limit);
  sigaddset(&limit, SIGXFSZ);
  if (pthread_sigmask(SIG_BLOCK, &limit, &before) != 0) return write(fd, data, n);
  bool was_pending = sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
  ssize_t got = write(fd, data, n);
  int code = errno;
  if (got < 0 && code == EFBIG && !was_pending) (void)sigtimedwait(&limit, NULL, &(struct timespec){0});
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  errno = code;
  return got;
}

/* All n bytes, or an IO error; then the caller aborts. */
neap_status neap_io_sink_write(neap_io_sink *sink, const void *data, size_t n, neap_error *error) {
  for (size_t done = 0; done < n;) {
    ssize_t got = write_some(sink->fd, (const char *)data + done, NEAP_MIN(n - done, (size_t)MOST_AT_ONCE));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return neap_fail(error, NEAP_IO, "%s: cannot be written: %s", sink->path, strerror(got < 0 ? errno : ENOSPC));
    done += (size_t)got;
  }
  sink->n_bytes += (int64_t)n;
  return NEAP_OK;
}

/* Forces the directory's entry to the disk too. Some file systems cannot; the rename is done by then in any case. */
static void sync_directory(const char *path) {
  const char *slash = strrchr(path, '/');
  int n = slash == NULL ? 0 : (int)(slash - path);
  char directory[4096];
  if (n >= (int)sizeof directory) return;
  snprintf(directory, sizeof directory, "%.*s", slash == path ? 1 : n, slash == NULL ? "" : path);
  int fd = open(slash == NULL ? "." : directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  (void)!fsync(fd);
  close(fd);
}

/* fsync comes before rename: else a crash could leave the new name on empty bytes. */
neap_status neap_io_sink_commit(neap_io_sink *sink, neap_error *error) {
  bool written = fsync(sink->fd) == 0;
  if (close(sink->fd) != 0) written = false;
  sink->fd = -1;
  if (!written || rename(sink->temporary, sink->path) != 0) {
    neap_status status = neap_fail(error, NEAP_IO, "%s: cannot be written: %s", sink->path, strerror(errno));
    neap_io_sink_abort(sink);
    return status;
  }
  sync_directory(sink->path);
  neap_free(sink->temporary);
  sink->temporary = NULL;
  return NEAP_OK;
}

void neap_io_sink_abort(neap_io_sink *sink) {
  if (sink->temporary == NULL) return;
  if (sink->fd >= 0) close(sink->fd);
  unlink(sink->temporary);
  neap_free(sink->temporary);
  *sink = (neap_io_sink){.fd = -1};
}

neap_status neap_io_write_text(const char *path, const char *data, size_t n, neap_error *error) {
  neap_io_sink sink;
  NEAP_TRY(neap_io_sink_open(&sink, path, error));
  neap_status status = neap_io_sink_write(&sink, data, n, error);
  if (status == NEAP_OK) return neap_io_sink_commit(&sink, error);
  neap_io_sink_abort(&sink);
  return status;
}
