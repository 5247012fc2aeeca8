// Notes which files a program looks at, for a build that wants to know what it depends on.
//
// The library is preloaded into compilers (https://man7.org/linux/man-pages/man8/ld.so.8.html, LD_PRELOAD). It wraps the
// functions of the C library that take a path, and appends records to the file that BE_LOOKED_AT names. A record is a
// letter and a path, ended by a zero byte:
//
//   +  the path was there       x  the program itself        l  a folder that was listed
//   -  the path was not there   w  written, made or removed
//
// Records are collected in memory and appended at once, when the program ends or is replaced: a descriptor that stayed
// open could be closed by the program and mean another file then. Nothing takes a lock, since a program may fork.

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

#define REAL(name)                                                           \
  static __typeof__(&name) real;                                             \
  if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

// What a call leaves in errno is the caller's.
#define KEEP(...)        \
  do {                   \
    int kept = errno;    \
    __VA_ARGS__;         \
    errno = kept;        \
  } while (0)

// Says on the one way that needs no disk that the log is not complete; `observe.py` reads it.
static void say_lost(void) {
  static const char full[] = "be_runtime: records of files are lost: No space left on device\n";
  static const char failed[] = "be_runtime: records of files are lost: Input/output error\n";
  if (errno == ENOSPC || errno == EDQUOT) syscall(SYS_write, STDERR_FILENO, full, sizeof full - 1);
  if (errno == EIO || errno == ESTALE) syscall(SYS_write, STDERR_FILENO, failed, sizeof failed - 1);
}

static void append(const char *data, size_t size) {
  // A log that is a link or a pipe is none of ours.
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

// Whether this record is new; a race lets one through twice, which does no harm.
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

// The path as an absolute one; relative paths are relative to a folder that is open, or to the current one.
static void note_at(int folder, const char *path, char kind) {
  if (!log_path[0] || !path || !*path) return;
  if (*path == '/') {
    if (strlen(path) < LONGEST) put(kind, path);
    return;
  }
  char full[LONGEST];
  long size;
  if (folder == AT_FDCWD) {
    size = syscall(SYS_getcwd, full, PATH_MAX) - 1;
  } else {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    size = syscall(SYS_readlinkat, AT_FDCWD, link, full, PATH_MAX);
  }
  if (size <= 0 || (size_t)size + strlen(path) + 2 > LONGEST || *full != '/') return;
  full[size] = '/';
  strcpy(full + size + 1, path);
  put(kind, full);
}

static void note(const char *path, int there) {
  KEEP(note_at(AT_FDCWD, path, there ? '+' : '-'));
}

static void note_opened(int folder, const char *path, int flags, int there) {
  int writes = (flags & O_ACCMODE) == O_WRONLY || (flags & (O_CREAT | O_TRUNC));
  KEEP(note_at(folder, path, writes ? 'w' : there ? '+' : '-'));
}

// A program without a slash is looked for by the C library itself.
static void note_program(const char *file) {
  if (!file || !*file) return;
  if (strchr(file, '/')) return note(file, syscall(SYS_faccessat, AT_FDCWD, file, X_OK) == 0);
  const char *path = getenv("PATH");
  while (path && *path) {
    size_t size = strcspn(path, ":");
    char full[LONGEST];
    if (size + strlen(file) + 2 <= sizeof full) {
      snprintf(full, sizeof full, "%.*s/%s", (int)size, size ? path : ".", file);
      int there = syscall(SYS_faccessat, AT_FDCWD, full, X_OK) == 0;
      note(full, there);
      if (there) return;
    }
    path += size + (path[size] == ':');
  }
}

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("BE_LOOKED_AT");
  if (!path || *path != '/' || strlen(path) >= sizeof log_path) return;
  strcpy(log_path, path);
  process = getpid();
  char self[PATH_MAX];
  KEEP(long size = syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", self, sizeof self - 1);
       if (size > 0) { self[size] = 0; put('x', self); });
}

static int note_loaded(struct dl_phdr_info *library, size_t size, void *data) {
  (void)size, (void)data;
  if (*library->dlpi_name == '/') note(library->dlpi_name, 1);
  return 0;
}

// The loader itself finds libraries and plugins; a child that runs no program of its own leaves them to its parent.
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

int execve(const char *path, char *const argv[], char *const envp[]) {
  REAL(execve);
  note_program(path);
  flush();
  return real(path, argv, envp);
}
int execv(const char *path, char *const argv[]) { return execve(path, argv, environ); }
int execvp(const char *file, char *const argv[]) {
  REAL(execvp);
  note_program(file);
  flush();
  return real(file, argv);
}
int execvpe(const char *file, char *const argv[], char *const envp[]) {
  REAL(execvpe);
  note_program(file);
  flush();
  return real(file, argv, envp);
}

#define COLLECT(first)                                                       \
  char *argv[4096];                                                          \
  int count = 0;                                                             \
  va_list rest;                                                              \
  va_start(rest, first);                                                     \
  for (char *each = (char *)first; each && count < 4095; each = va_arg(rest, char *)) argv[count++] = each; \
  argv[count] = NULL

int execl(const char *path, const char *first, ...) {
  COLLECT(first);
  va_end(rest);
  return execv(path, argv);
}
int execlp(const char *file, const char *first, ...) {
  COLLECT(first);
  va_end(rest);
  return execvp(file, argv);
}
int execle(const char *path, const char *first, ...) {
  COLLECT(first);
  char *const *envp = va_arg(rest, char *const *);
  va_end(rest);
  return execve(path, argv, envp);
}

#define SPAWN(name)                                                                                           \
  int name(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes, \
           char *const argv[], char *const envp[]) {                                                          \
    REAL(name);                                                                                               \
    note_program(file);                                                                                       \
    return real(pid, file, actions, attributes, argv, envp);                                                  \
  }
SPAWN(posix_spawn)
SPAWN(posix_spawnp)

// Opening.

#define MODE(flags)                                  \
  int mode = 0;                                      \
  if ((flags) & (O_CREAT | __O_TMPFILE)) {           \
    va_list rest;                                    \
    va_start(rest, flags);                           \
    mode = va_arg(rest, int);                        \
    va_end(rest);                                    \
  }

#define OPEN(name)                                   \
  int name(const char *path, int flags, ...) {       \
    REAL(name);                                      \
    MODE(flags)                                      \
    int result = real(path, flags, mode);            \
    note_opened(AT_FDCWD, path, flags, result >= 0); \
    return result;                                   \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                       \
  int name(int folder, const char *path, int flags, ...) { \
    REAL(name);                                            \
    MODE(flags)                                            \
    int result = real(folder, path, flags, mode);          \
    note_opened(folder, path, flags, result >= 0);         \
    return result;                                         \
  }
OPENAT(openat)
OPENAT(openat64)

// What the C library's headers call with FORTIFY_SOURCE.
#define OPEN_2(name, to)                                              \
  extern int name(const char *, int);                                 \
  int name(const char *path, int flags) { return to(path, flags, 0); }
OPEN_2(__open_2, open)
OPEN_2(__open64_2, open64)
#define OPENAT_2(name, to)                                                                    \
  extern int name(int, const char *, int);                                                    \
  int name(int folder, const char *path, int flags) { return to(folder, path, flags, 0); }
OPENAT_2(__openat_2, openat)
OPENAT_2(__openat64_2, openat64)

int creat(const char *path, mode_t mode) { return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

#define FOPEN(name)                                                                                  \
  FILE *name(const char *path, const char *mode) {                                                   \
    REAL(name);                                                                                      \
    FILE *result = real(path, mode);                                                                 \
    note_opened(AT_FDCWD, path, *mode == 'r' ? O_RDONLY : O_WRONLY, result != NULL);                 \
    return result;                                                                                   \
  }
FOPEN(fopen)
FOPEN(fopen64)

#define FREOPEN(name)                                                                                \
  FILE *name(const char *path, const char *mode, FILE *file) {                                       \
    REAL(name);                                                                                      \
    FILE *result = real(path, mode, file);                                                           \
    note_opened(AT_FDCWD, path, *mode == 'r' ? O_RDONLY : O_WRONLY, result != NULL);                 \
    return result;                                                                                   \
  }
FREOPEN(freopen)
FREOPEN(freopen64)

DIR *opendir(const char *path) {
  REAL(opendir);
  DIR *result = real(path);
  KEEP(note_at(AT_FDCWD, path, result ? 'l' : '-'));
  return result;
}
DIR *fdopendir(int folder) {
  REAL(fdopendir);
  DIR *result = real(folder);
  char link[64], path[PATH_MAX];
  KEEP(snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
       long size = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
       if (size > 0) { path[size] = 0; note_at(AT_FDCWD, path, 'l'); });
  return result;
}
#define SCANDIR(name, entry)                                                                              \
  int name(const char *path, struct entry ***names, int (*filter)(const struct entry *),                  \
           int (*compare)(const struct entry **, const struct entry **)) {                                \
    REAL(name);                                                                                           \
    int result = real(path, names, filter, compare);                                                      \
    KEEP(note_at(AT_FDCWD, path, result >= 0 ? 'l' : '-'));                                               \
    return result;                                                                                        \
  }
SCANDIR(scandir, dirent)
SCANDIR(scandir64, dirent64)

// Asking.

#define STAT(name, type)                       \
  int name(const char *path, struct type *to) { \
    REAL(name);                                \
    int result = real(path, to);               \
    note(path, result == 0);                   \
    return result;                             \
  }
STAT(stat, stat)
STAT(lstat, stat)
STAT(stat64, stat64)
STAT(lstat64, stat64)

#define XSTAT(name, type)                                       \
  extern int name(int, const char *, struct type *);            \
  int name(int version, const char *path, struct type *to) {    \
    REAL(name);                                                 \
    int result = real(version, path, to);                       \
    note(path, result == 0);                                    \
    return result;                                              \
  }
XSTAT(__xstat, stat)
XSTAT(__lxstat, stat)
XSTAT(__xstat64, stat64)
XSTAT(__lxstat64, stat64)

#define FSTATAT(name, type)                                                    \
  int name(int folder, const char *path, struct type *to, int flags) {         \
    REAL(name);                                                                \
    int result = real(folder, path, to, flags);                                \
    KEEP(note_at(folder, path, result == 0 ? '+' : '-'));                      \
    return result;                                                             \
  }
FSTATAT(fstatat, stat)
FSTATAT(fstatat64, stat64)

#define FXSTATAT(name, type)                                                   \
  extern int name(int, int, const char *, struct type *, int);                 \
  int name(int version, int folder, const char *path, struct type *to, int flags) { \
    REAL(name);                                                                \
    int result = real(version, folder, path, to, flags);                       \
    KEEP(note_at(folder, path, result == 0 ? '+' : '-'));                      \
    return result;                                                             \
  }
FXSTATAT(__fxstatat, stat)
FXSTATAT(__fxstatat64, stat64)

int statx(int folder, const char *path, int flags, unsigned mask, struct statx *to) {
  REAL(statx);
  if (!real) {  // an older C library's programs ask for it by name, and do without
    errno = ENOSYS;
    return -1;
  }
  int result = real(folder, path, flags, mask, to);
  KEEP(note_at(folder, path, result == 0 ? '+' : '-'));
  return result;
}

#define ACCESS(name)                          \
  int name(const char *path, int mode) {      \
    REAL(name);                               \
    int result = real(path, mode);            \
    note(path, result == 0);                  \
    return result;                            \
  }
ACCESS(access)
ACCESS(euidaccess)
ACCESS(eaccess)

int faccessat(int folder, const char *path, int mode, int flags) {
  REAL(faccessat);
  int result = real(folder, path, mode, flags);
  KEEP(note_at(folder, path, result == 0 ? '+' : '-'));
  return result;
}

ssize_t readlink(const char *path, char *to, size_t size) {
  REAL(readlink);
  ssize_t result = real(path, to, size);
  note(path, result >= 0 || errno == EINVAL);
  return result;
}
ssize_t readlinkat(int folder, const char *path, char *to, size_t size) {
  REAL(readlinkat);
  ssize_t result = real(folder, path, to, size);
  KEEP(note_at(folder, path, result >= 0 || kept == EINVAL ? '+' : '-'));
  return result;
}
extern ssize_t __readlink_chk(const char *, char *, size_t, size_t);
ssize_t __readlink_chk(const char *path, char *to, size_t size, size_t room) {
  if (size > room) abort();
  return readlink(path, to, size);
}
extern ssize_t __readlinkat_chk(int, const char *, char *, size_t, size_t);
ssize_t __readlinkat_chk(int folder, const char *path, char *to, size_t size, size_t room) {
  if (size > room) abort();
  return readlinkat(folder, path, to, size);
}
char *realpath(const char *path, char *to) {
  REAL(realpath);
  char *result = real(path, to);
  note(path, result != NULL);
  return result;
}
extern char *__realpath_chk(const char *, char *, size_t);
char *__realpath_chk(const char *path, char *to, size_t size) {
  (void)size;
  return realpath(path, to);
}
char *canonicalize_file_name(const char *path) { return realpath(path, NULL); }

// Making and removing: what a build itself wrote is nothing that it depends on.

#define MAKES_AT(name, declared, folder, ...) \
  int name declared {                         \
    REAL(name);                               \
    int result = real(__VA_ARGS__);           \
    KEEP(note_at(folder, path, 'w'));         \
    return result;                            \
  }
#define MAKES(name, declared, ...) MAKES_AT(name, declared, AT_FDCWD, __VA_ARGS__)
MAKES(unlink, (const char *path), path)
MAKES(remove, (const char *path), path)
MAKES(rmdir, (const char *path), path)
MAKES(mkdir, (const char *path, mode_t mode), path, mode)
MAKES(rename, (const char *from, const char *path), from, path)
MAKES(link, (const char *from, const char *path), from, path)
MAKES(symlink, (const char *from, const char *path), from, path)
MAKES(mkstemp, (char *path), path)
MAKES(mkstemp64, (char *path), path)
MAKES(mkstemps, (char *path, int suffix), path, suffix)
MAKES(mkstemps64, (char *path, int suffix), path, suffix)
MAKES(mkostemp, (char *path, int flags), path, flags)
MAKES(mkostemps, (char *path, int suffix, int flags), path, suffix, flags)
MAKES(mkostemp64, (char *path, int flags), path, flags)
MAKES(mkostemps64, (char *path, int suffix, int flags), path, suffix, flags)
MAKES_AT(unlinkat, (int folder, const char *path, int flags), folder, folder, path, flags)
MAKES_AT(mkdirat, (int folder, const char *path, mode_t mode), folder, folder, path, mode)
MAKES_AT(symlinkat, (const char *from, int folder, const char *path), folder, from, folder, path)
MAKES_AT(renameat, (int of, const char *from, int folder, const char *path), folder, of, from, folder, path)
MAKES_AT(linkat, (int of, const char *from, int folder, const char *path, int flags), folder, of, from, folder, path,
         flags)

extern int renameat2(int, const char *, int, const char *, unsigned);
MAKES_AT(renameat2, (int of, const char *from, int folder, const char *path, unsigned flags), folder, of, from, folder,
         path, flags)

char *mkdtemp(char *path) {
  REAL(mkdtemp);
  char *result = real(path);
  KEEP(note_at(AT_FDCWD, path, 'w'));
  return result;
}
