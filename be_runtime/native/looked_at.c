// Record the files that a program opens or checks, for a build that needs a list of its dependencies.
//
// The library is preloaded into compilers (https://man7.org/linux/man-pages/man8/ld.so.8.html, LD_PRELOAD). It wraps
// the functions of the C library that take a path, and appends records to the file that BE_LOOKED_AT names. A record is
// a letter and a path, ended by a zero byte:
//
//   +  the path was there       x  the program itself        l  a folder that was listed
//   -  the path was not there   w  written, made or removed
//
// Records are collected in memory and appended at once, when the program ends or is replaced: the program could close a
// descriptor that stayed open, and reuse its number. Nothing takes a lock, since a program may fork.

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CAPACITY = 1 << 18, KNOWN = 1 << 12, LONGEST = 2 * PATH_MAX };

static char records[CAPACITY];
static size_t used;
static unsigned long long known[KNOWN];
static char log_path[PATH_MAX];
static pid_t process;

// Define a function of the C library: run `before`, call the library's own by `real`, note its `result` by `after`.
#define WRAP(type, name, declared, passed, before, after)                     \
  type name declared {                                                        \
    static __typeof__(&name) real;                                            \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name);             \
    before;                                                                   \
    type result = real passed;                                                \
    after;                                                                    \
    return result;                                                            \
  }

// Define a function, and its variant with the suffix 64, by a macro for one function.
#define BOTH(row, name, ...) row(name, __VA_ARGS__) row(name##64, __VA_ARGS__)
#define BOTH_TYPES(row, name, type) row(name, type) row(name##64, type##64)

// Report an incomplete log on standard error, which needs no disk; `inputs.py` reads the message.
static void say_lost(void) {
  static const char full[] = "be_runtime: records of files are lost: No space left on device\n";
  static const char failed[] = "be_runtime: records of files are lost: Input/output error\n";
  if (errno == ENOSPC || errno == EDQUOT) syscall(SYS_write, STDERR_FILENO, full, sizeof full - 1);
  if (errno == EIO || errno == ESTALE) syscall(SYS_write, STDERR_FILENO, failed, sizeof failed - 1);
}

static void append(const char *data, size_t size) {
  // A link or a pipe is not the build's log.
  int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  int fd = (int)syscall(SYS_openat, AT_FDCWD, log_path, flags, 0600);
  if (fd < 0) say_lost();
  while (fd >= 0 && size > 0) {
    long written = syscall(SYS_write, fd, data, size);
    if (written <= 0) {
      say_lost();
      break;
    }
    data += written, size -= (size_t)written;
  }
  if (fd >= 0 && syscall(SYS_close, fd) != 0) say_lost();
}

static void flush(void) {
  size_t size = __atomic_exchange_n(&used, 0, __ATOMIC_RELAXED);
  if (log_path[0] && size > 0) append(records, size < CAPACITY ? size : CAPACITY);
}

// Return whether this record is new; a race lets one through twice, which is harmless.
static int is_new(char kind, const char *path) {
  unsigned long long hash = 14695981039346656037ULL ^ (unsigned char)kind;
  for (const char *at = path; *at; ++at) hash = (hash ^ (unsigned char)*at) * 1099511628211ULL;
  unsigned long long *place = &known[(hash >> 20) % KNOWN];
  if (*place == hash) return 0;
  *place = hash;
  return 1;
}

static void put(char kind, const char *path) {
  if (!is_new(kind, path)) return;
  size_t size = strlen(path) + 2;
  size_t at = __atomic_fetch_add(&used, size, __ATOMIC_RELAXED);
  if (at + size <= CAPACITY) {
    records[at] = kind;
    memcpy(records + at + 1, path, size - 1);
  } else {
    __atomic_fetch_sub(&used, size, __ATOMIC_RELAXED);
    char one[LONGEST + 2];
    one[0] = kind;
    memcpy(one + 1, path, size - 1);
    append(one, size);
  }
}

// Write the path of an open folder, without a zero at its end, and return its size; 0 or less if it has none.
static long folder_path(int folder, char *path) {
  char link[64];
  if (folder == AT_FDCWD) return syscall(SYS_getcwd, path, PATH_MAX) - 1;
  snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
  return syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
}

static void note_relative(int folder, const char *path, char kind) {
  char full[LONGEST];
  long size = folder_path(folder, full);
  if (size <= 0 || (size_t)size + strlen(path) + 2 > LONGEST || *full != '/') return;
  full[size] = '/';
  strcpy(full + size + 1, path);
  put(kind, full);
}

// Record a path as an absolute one; the folder is an open one, or AT_FDCWD. errno stays as it was.
static void note(int folder, const char *path, char kind) {
  int kept = errno;
  if (!log_path[0] || !path || !*path) return;
  if (*path != '/') note_relative(folder, path, kind);
  else if (strlen(path) < LONGEST) put(kind, path);
  errno = kept;
}

// Record a program; for a name without a slash, record the paths that the C library tries.
static void note_program(const char *file) {
  if (!file || !*file) return;
  int kept = errno;
  const char *path = strchr(file, '/') ? NULL : getenv("PATH");
  if (strchr(file, '/')) note(AT_FDCWD, file, syscall(SYS_faccessat, AT_FDCWD, file, X_OK) == 0 ? '+' : '-');
  while (path && *path) {
    size_t size = strcspn(path, ":");
    char full[LONGEST];
    if (size + strlen(file) + 2 <= sizeof full) {
      snprintf(full, sizeof full, "%.*s/%s", (int)size, size ? path : ".", file);
      int there = syscall(SYS_faccessat, AT_FDCWD, full, X_OK) == 0;
      note(AT_FDCWD, full, there ? '+' : '-');
      if (there) break;
    }
    path += size + (path[size] == ':');
  }
  errno = kept;
}

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("BE_LOOKED_AT");
  if (!path || *path != '/' || strlen(path) >= sizeof log_path) return;
  strcpy(log_path, path);
  process = getpid();
  int kept = errno;
  char self[PATH_MAX];
  long size = syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", self, sizeof self - 1);
  if (size > 0) {
    self[size] = 0;
    put('x', self);
  }
  errno = kept;
}

static int note_loaded(struct dl_phdr_info *library, size_t size, void *data) {
  (void)size, (void)data;
  if (*library->dlpi_name == '/') note(AT_FDCWD, library->dlpi_name, '+');
  return 0;
}

// The loader opens libraries and plugins by other functions; a forked child leaves them to its parent.
__attribute__((destructor)) static void end(void) {
  if (log_path[0] && process == getpid()) dl_iterate_phdr(note_loaded, NULL);
  flush();
}

// The end of a program, and its replacement by another.

#define ENDING(name)                                        \
  __attribute__((noreturn)) void name(int status) {         \
    end();                                                  \
    syscall(SYS_exit_group, status);                        \
    __builtin_unreachable();                                \
  }
ENDING(_exit)
ENDING(_Exit)

#define EXECUTES(name, declared, passed) WRAP(int, name, declared, passed, note_program(file); flush(), )
EXECUTES(execve, (const char *file, char *const argv[], char *const envp[]), (file, argv, envp))
EXECUTES(execvp, (const char *file, char *const argv[]), (file, argv))
EXECUTES(execvpe, (const char *file, char *const argv[], char *const envp[]), (file, argv, envp))
int execv(const char *file, char *const argv[]) { return execve(file, argv, environ); }

#define EXECUTES_LIST(name, last, call)                                                                       \
  int name(const char *file, const char *first, ...) {                                                        \
    char *argv[4096];                                                                                         \
    int count = 0;                                                                                            \
    va_list rest;                                                                                             \
    va_start(rest, first);                                                                                    \
    for (char *each = (char *)first; each && count < 4095; each = va_arg(rest, char *)) argv[count++] = each; \
    argv[count] = NULL;                                                                                       \
    last;                                                                                                     \
    va_end(rest);                                                                                             \
    return call;                                                                                              \
  }
EXECUTES_LIST(execl, , execv(file, argv))
EXECUTES_LIST(execlp, , execvp(file, argv))
EXECUTES_LIST(execle, char *const *envp = va_arg(rest, char *const *), execve(file, argv, envp))

#define SPAWNS(name)                                                                                              \
  WRAP(int, name,                                                                                                 \
       (pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes, \
        char *const argv[], char *const envp[]),                                                                  \
       (pid, file, actions, attributes, argv, envp), note_program(file), )
SPAWNS(posix_spawn)
SPAWNS(posix_spawnp)

// Opening.

static char opened(int is_written, int there) { return is_written ? 'w' : there ? '+' : '-'; }

#define MODE                                         \
  int mode = 0;                                      \
  if (flags & (O_CREAT | __O_TMPFILE)) {             \
    va_list rest;                                    \
    va_start(rest, flags);                           \
    mode = va_arg(rest, int);                        \
    va_end(rest);                                    \
  }
#define IS_WRITTEN ((flags & O_ACCMODE) == O_WRONLY || (flags & (O_CREAT | O_TRUNC)))
#define OPENS(name, declared, passed, folder) \
  WRAP(int, name, declared, passed, MODE, note(folder, path, opened(IS_WRITTEN, result >= 0)))
BOTH(OPENS, open, (const char *path, int flags, ...), (path, flags, mode), AT_FDCWD)
BOTH(OPENS, openat, (int folder, const char *path, int flags, ...), (folder, path, flags, mode), folder)
int creat(const char *path, mode_t mode) { return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

// The C library's headers call these with FORTIFY_SOURCE.
int __open_2(const char *path, int flags) { return open(path, flags, 0); }
int __open64_2(const char *path, int flags) { return open64(path, flags, 0); }
int __openat_2(int folder, const char *path, int flags) { return openat(folder, path, flags, 0); }
int __openat64_2(int folder, const char *path, int flags) { return openat64(folder, path, flags, 0); }

#define OPENS_FILE(name, declared, passed) \
  WRAP(FILE *, name, declared, passed, , note(AT_FDCWD, path, opened(*mode != 'r', result != NULL)))
BOTH(OPENS_FILE, fopen, (const char *path, const char *mode), (path, mode))
BOTH(OPENS_FILE, freopen, (const char *path, const char *mode, FILE *file), (path, mode, file))

static void note_folder(int folder) {
  int kept = errno;
  char path[PATH_MAX];
  long size = folder_path(folder, path);
  if (size > 0) path[size] = 0, note(AT_FDCWD, path, 'l');
  errno = kept;
}
WRAP(DIR *, opendir, (const char *path), (path), , note(AT_FDCWD, path, result ? 'l' : '-'))
WRAP(DIR *, fdopendir, (int folder), (folder), , note_folder(folder))

#define SCANS(name, entry)                                                                 \
  WRAP(int, name,                                                                          \
       (const char *path, struct entry ***names, int (*filter)(const struct entry *),      \
        int (*compare)(const struct entry **, const struct entry **)),                     \
       (path, names, filter, compare), , note(AT_FDCWD, path, result >= 0 ? 'l' : '-'))
BOTH_TYPES(SCANS, scandir, dirent)

// Queries of paths.

#define ASKS(type, name, declared, passed, folder, there) \
  WRAP(type, name, declared, passed, , note(folder, path, (there) ? '+' : '-'))
#define STATS(name, type) ASKS(int, name, (const char *path, struct type *to), (path, to), AT_FDCWD, result == 0)
BOTH_TYPES(STATS, stat, stat)
BOTH_TYPES(STATS, lstat, stat)

#define STATS_OLD(name, type) \
  ASKS(int, name, (int version, const char *path, struct type *to), (version, path, to), AT_FDCWD, result == 0)
BOTH_TYPES(STATS_OLD, __xstat, stat)
BOTH_TYPES(STATS_OLD, __lxstat, stat)

#define STATS_AT(name, type)                                                       \
  ASKS(int, name, (int folder, const char *path, struct type *to, int flags), (folder, path, to, flags), folder, \
       result == 0)
BOTH_TYPES(STATS_AT, fstatat, stat)

#define STATS_AT_OLD(name, type)                                                       \
  ASKS(int, name, (int version, int folder, const char *path, struct type *to, int flags), \
       (version, folder, path, to, flags), folder, result == 0)
BOTH_TYPES(STATS_AT_OLD, __fxstatat, stat)

// An older C library lacks statx; its programs look the function up by name, and work without it.
#define NO_STATX if (!real) { errno = ENOSYS; return -1; }
WRAP(int, statx, (int folder, const char *path, int flags, unsigned mask, struct statx *to),
     (folder, path, flags, mask, to), NO_STATX, note(folder, path, result == 0 ? '+' : '-'))

ASKS(int, access, (const char *path, int mode), (path, mode), AT_FDCWD, result == 0)
ASKS(int, euidaccess, (const char *path, int mode), (path, mode), AT_FDCWD, result == 0)
ASKS(int, eaccess, (const char *path, int mode), (path, mode), AT_FDCWD, result == 0)
ASKS(int, faccessat, (int folder, const char *path, int mode, int flags), (folder, path, mode, flags), folder,
     result == 0)

// A file that is not a link exists, too.
#define IS_READ result >= 0 || errno == EINVAL
ASKS(ssize_t, readlink, (const char *path, char *to, size_t size), (path, to, size), AT_FDCWD, IS_READ)
ASKS(ssize_t, readlinkat, (int folder, const char *path, char *to, size_t size), (folder, path, to, size), folder,
     IS_READ)
ssize_t __readlink_chk(const char *path, char *to, size_t size, size_t room) {
  if (size > room) abort();
  return readlink(path, to, size);
}
ssize_t __readlinkat_chk(int folder, const char *path, char *to, size_t size, size_t room) {
  if (size > room) abort();
  return readlinkat(folder, path, to, size);
}

ASKS(char *, realpath, (const char *path, char *to), (path, to), AT_FDCWD, result != NULL)
char *__realpath_chk(const char *path, char *to, size_t size) { return (void)size, realpath(path, to); }
char *canonicalize_file_name(const char *path) { return realpath(path, NULL); }

// Making and removing: a build does not depend on files that it wrote itself.

#define MAKES(name, type, declared, passed, folder) WRAP(type, name, declared, passed, , note(folder, path, 'w'))
MAKES(unlink, int, (const char *path), (path), AT_FDCWD)
MAKES(remove, int, (const char *path), (path), AT_FDCWD)
MAKES(rmdir, int, (const char *path), (path), AT_FDCWD)
MAKES(mkdir, int, (const char *path, mode_t mode), (path, mode), AT_FDCWD)
MAKES(rename, int, (const char *from, const char *path), (from, path), AT_FDCWD)
MAKES(link, int, (const char *from, const char *path), (from, path), AT_FDCWD)
MAKES(symlink, int, (const char *from, const char *path), (from, path), AT_FDCWD)
BOTH(MAKES, mkstemp, int, (char *path), (path), AT_FDCWD)
BOTH(MAKES, mkstemps, int, (char *path, int suffix), (path, suffix), AT_FDCWD)
BOTH(MAKES, mkostemp, int, (char *path, int flags), (path, flags), AT_FDCWD)
BOTH(MAKES, mkostemps, int, (char *path, int suffix, int flags), (path, suffix, flags), AT_FDCWD)
MAKES(mkdtemp, char *, (char *path), (path), AT_FDCWD)
MAKES(unlinkat, int, (int folder, const char *path, int flags), (folder, path, flags), folder)
MAKES(mkdirat, int, (int folder, const char *path, mode_t mode), (folder, path, mode), folder)
MAKES(symlinkat, int, (const char *from, int folder, const char *path), (from, folder, path), folder)
MAKES(renameat, int, (int of, const char *from, int folder, const char *path), (of, from, folder, path), folder)
MAKES(renameat2, int, (int of, const char *from, int folder, const char *path, unsigned flags),
      (of, from, folder, path, flags), folder)
MAKES(linkat, int, (int of, const char *from, int folder, const char *path, int flags),
      (of, from, folder, path, flags), folder)
