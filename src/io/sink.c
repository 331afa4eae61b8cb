/* sink.c: writing files whole or not at all.
 *
 * The bytes go to PATH.PID-N.tmp in the same directory, are forced to the disk, and take the name
 * PATH by rename, which POSIX makes atomic. A process that is killed leaves at most the temporary
 * file; the next writer of PATH removes it.
 *
 * INVARIANT: from just after its making until it has its name, a temporary file is locked (flock)
 * by whoever writes it. So one that can be locked is nobody's: the kernel lets go of a dead
 * process's locks, and a number of a process, which another one may have by then (in a container it
 * is the same each time), is never asked about. Only the holder of the lock unlinks or renames.
 */
#include "io/io_int.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST_NAMES = 100, MOST_AT_ONCE = 1 << 30 };

/* The directory of a path, "." where it names none. False when it is too long. */
static bool directory_of(const char *path, char out[4096]) {
  const char *slash = strrchr(path, '/');
  int n = slash == NULL ? 0 : NEAP_MAX((int)(slash - path), 1);
  return snprintf(out, 4096, "%.*s", slash == NULL ? 1 : n, slash == NULL ? "." : path) < 4096;
}

/* Whether `name` is BASE.DIGITS-DIGITS.tmp, as the files of this room are called. */
static bool is_temporary(const char *name, const char *base) {
  size_t n = strlen(base);
  if (strncmp(name, base, n) != 0 || name[n] != '.') return false;
  const char *at = name + n + 1;
  size_t pid = strspn(at, "0123456789"),
         number = at[pid] == '-' ? strspn(at + pid + 1, "0123456789") : 0;
  return pid > 0 && number > 0 && strcmp(at + pid + 1 + number, ".tmp") == 0;
}

/* Unlinks a temporary file that nobody writes. Once it is locked its name can't come to mean
 * another file: who would take the name away must hold the lock. What can't be opened, locked or
 * removed stays. */
static void remove_stale(int directory, const char *name) {
  struct stat opened, named;
  int fd = openat(directory, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return;
  /* Locked: nobody writes it. Then the name must still mean the file that was opened, and a regular
   * one. */
  if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &opened) == 0 && S_ISREG(opened.st_mode) &&
      fstatat(directory, name, &named, AT_SYMLINK_NOFOLLOW) == 0 && named.st_ino == opened.st_ino &&
      named.st_dev == opened.st_dev)
    (void)unlinkat(directory, name, 0);
  close(fd);
}

/* Those that killed writers of `path` have left. It comes before writing: a disk that they have
 * filled is free again. */
static void remove_left_behind(const char *path) {
  char folder[4096];
  DIR *directory = directory_of(path, folder) ? opendir(folder) : NULL;
  if (directory == NULL) return;
  const char *slash = strrchr(path, '/'), *base = slash != NULL ? slash + 1 : path;
  for (const struct dirent *entry; (entry = readdir(directory)) != NULL;)
    if (is_temporary(entry->d_name, base)) remove_stale(dirfd(directory), entry->d_name);
  closedir(directory);
}

/* Makes and locks the file `name`; -1 with errno EEXIST when the name is taken, also by whoever has
 * locked the new file first, in the belief that it was left behind, and unlinks it. Where the file
 * system has no locks nothing is ever removed either. */
static int make_locked(const char *name) {
  struct stat info;
  int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return -1;
  /* Between the making and the locking another process may have taken it for one that was left
   * behind. */
  bool taken = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (!taken && fstat(fd, &info) == 0 && info.st_nlink > 0) return fd;
  close(fd);
  errno = EEXIST;
  return -1;
}

/* IO error when the directory cannot be written to, or the path is a directory or a device. */
neap_status neap_io_sink_open(neap_io_sink *sink, const char *path, neap_error *error) {
  size_t room = strlen(path) + 40;
  *sink = (neap_io_sink){.path = path, .fd = -1, .temporary = neap_alloc(room)};
  if (sink->temporary == NULL) return neap_fail_memory(error, room, "a file name");
  /* A directory, a device or a pipe of that name is not to be replaced. */
  struct stat info;
  bool exists = stat(path, &info) == 0;
  if (exists && !S_ISREG(info.st_mode)) {
    neap_free(sink->temporary);
    return neap_fail(error, NEAP_IO, "%s: cannot be written: it is there and is not a regular file",
                     path);
  }
  remove_left_behind(path);
  /* another thread may be writing the same path */
  for (int i = 0; i < MOST_NAMES && sink->fd < 0; i++) {
    snprintf(sink->temporary, room, "%s.%ld-%d.tmp", path, (long)getpid(), i);
    sink->fd = make_locked(sink->temporary);
    if (sink->fd < 0 && errno != EEXIST) break;
  }
  /* No name was free, or none may be made here. */
  if (sink->fd < 0) {
    neap_status status =
      neap_fail(error, NEAP_IO, "%s: cannot be written: %s", path, strerror(errno));
    neap_free(sink->temporary);
    return status;
  }
  /* who could read the old one may read the new one */
  if (exists) (void)!fchmod(sink->fd, info.st_mode & 07777);
  return NEAP_OK;
}

/* As write(2), but a file above the process's limit (RLIMIT_FSIZE) is the error EFBIG only: the
 * signal that comes with it, and whose default is to end the process, is held off this thread and
 * taken back. */
static ssize_t write_some(int fd, const void *data, size_t n) {
  sigset_t limit, before, pending;
  sigemptyset(&limit);
  sigaddset(&limit, SIGXFSZ);
  if (pthread_sigmask(SIG_BLOCK, &limit, &before) != 0) return write(fd, data, n);
  /* A signal that was waiting before is not ours to take back. */
  bool was_pending = sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
  ssize_t got = write(fd, data, n);
  int code = errno;
  if (got < 0 && code == EFBIG && !was_pending)
    (void)sigtimedwait(&limit, NULL, &(struct timespec){0});
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  errno = code;
  return got;
}

/* All n bytes, or an IO error; then the caller aborts. */
neap_status neap_io_sink_write(neap_io_sink *sink, const void *data, size_t n, neap_error *error) {
  for (size_t done = 0; done < n;) {
    ssize_t got =
      write_some(sink->fd, (const char *)data + done, NEAP_MIN(n - done, (size_t)MOST_AT_ONCE));
    /* A signal came in between: what is left is written once more. Some bytes, and no error: go on
     * behind them. */
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      return neap_fail(error, NEAP_IO, "%s: cannot be written: %s", sink->path,
                       strerror(got < 0 ? errno : ENOSPC));
    done += (size_t)got;
  }
  sink->n_bytes += (int64_t)n;
  return NEAP_OK;
}

/* Forces the directory's entry to the disk too. Some file systems cannot; the rename is done by
 * then in any case. */
static void sync_directory(const char *path) {
  char directory[4096];
  if (!directory_of(path, directory)) return;
  int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  (void)!fsync(fd);
  close(fd);
}

/* fsync comes before rename: else a crash could leave the new name on empty bytes. The descriptor,
 * and with it the lock, goes last; what it could still report of the bytes fsync has. */
neap_status neap_io_sink_commit(neap_io_sink *sink, neap_error *error) {
  NEAP_ASSERT(sink->fd >= 0 && sink->temporary != NULL, "a file is open until it has its name");
  if (fsync(sink->fd) != 0 || rename(sink->temporary, sink->path) != 0) {
    neap_status status =
      neap_fail(error, NEAP_IO, "%s: cannot be written: %s", sink->path, strerror(errno));
    neap_io_sink_abort(sink);
    return status;
  }
  close(sink->fd);
  sink->fd = -1;
  sync_directory(sink->path);
  neap_free(sink->temporary);
  sink->temporary = NULL;
  return NEAP_OK;
}

void neap_io_sink_abort(neap_io_sink *sink) {
  if (sink->temporary == NULL) return;
  unlink(sink->temporary); /* while it is locked: its name is this file's */
  if (sink->fd >= 0) close(sink->fd);
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
