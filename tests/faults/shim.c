/* Makes the n-th call of a kind fail, hang or kill the process, below SQLite. For LD_PRELOAD; Linux and glibc.

   Files count whose path holds FAULTS_IN; memory counts that libsqlite3 asks for. fault_arm() begins to count. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum kind { WRITE, SYNC, READ, NAME, GROW, MEMORY, KINDS };
enum mode { FAIL, HANG, KILL };

#define MOST_FILES 4096
static atomic_char ours[MOST_FILES];
static atomic_int armed_kind = -1, armed_mode, hanging, released, gave_up;
static atomic_long armed_first, armed_last, counts[KINDS];
static uintptr_t sqlite_begin, sqlite_end;

static int find_sqlite(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size, (void)data;
    if (!info->dlpi_name || !strstr(info->dlpi_name, "libsqlite3")) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD) continue;
        uintptr_t begin = info->dlpi_addr + part->p_vaddr, end = begin + part->p_memsz;
        if (!sqlite_begin || begin < sqlite_begin) sqlite_begin = begin;
        if (end > sqlite_end) sqlite_end = end;
    }
    return 1;
}

void fault_arm(int kind, long first, long times, int mode) {
    for (int i = 0; i < KINDS; i++) counts[i] = 0;
    if (!sqlite_begin) dl_iterate_phdr(find_sqlite, NULL);
    hanging = released = gave_up = 0;
    armed_first = first;
    armed_last = times < 0 ? INT64_MAX : first + times - 1;
    armed_mode = mode;
    armed_kind = kind;
}

void fault_disarm(void) { armed_kind = -1; released = 1; }
long fault_count(int kind) { return counts[kind]; }
int fault_hanging(void) { return hanging; }
int fault_gave_up(void) { return gave_up; }
int fault_sees_sqlite(void) { return sqlite_begin != 0; }

/* True where the call at hand is to fail. */
static int fault(int kind) {
    if (armed_kind != kind) return 0;
    long count = ++counts[kind];
    if (count < armed_first || count > armed_last) return 0;
    if (armed_mode == KILL) kill(getpid(), SIGKILL);
    if (armed_mode == FAIL) return 1;
    hanging = 1;
    struct timespec moment = {0, 1000000};
    for (int i = 0; i < 30000 && !released; i++) nanosleep(&moment, NULL);
    if (!released) gave_up = 1;
    hanging = 0;
    return 0;
}

static int is_ours(int fd) { return fd >= 0 && fd < MOST_FILES && ours[fd]; }
static int is_marked(const char *path) {
    const char *mark = getenv("FAULTS_IN");
    return mark && path && strstr(path, mark);
}

#define REAL(name) ((__typeof__(&name))real(&real_##name, #name))
#define SLOT(name) static void *real_##name
static void *real(void **slot, const char *name) {
    if (!*slot) *slot = dlsym(RTLD_NEXT, name);
    return *slot;
}

SLOT(open); SLOT(open64); SLOT(close); SLOT(pwrite64); SLOT(pwrite); SLOT(write); SLOT(pread64); SLOT(pread);
SLOT(read); SLOT(fsync); SLOT(fdatasync); SLOT(ftruncate64); SLOT(ftruncate); SLOT(rename); SLOT(unlink);

static int opened(int fd, const char *path) {
    if (fd >= 0 && fd < MOST_FILES) ours[fd] = is_marked(path);
    return fd;
}
static mode_t mode_of(int flags, va_list more) { return flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; }

int open(const char *path, int flags, ...) {
    va_list more; va_start(more, flags); mode_t mode = mode_of(flags, more); va_end(more);
    return opened(REAL(open)(path, flags, mode), path);
}
int open64(const char *path, int flags, ...) {
    va_list more; va_start(more, flags); mode_t mode = mode_of(flags, more); va_end(more);
    return opened(REAL(open64)(path, flags, mode), path);
}
int close(int fd) {
    if (fd >= 0 && fd < MOST_FILES) ours[fd] = 0;
    return REAL(close)(fd);
}

#define FAILS(fd, kind, why) if (is_ours(fd) && fault(kind)) { errno = why; return -1; }

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { FAILS(fd, WRITE, ENOSPC) return REAL(pwrite64)(fd, data, size, at); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { FAILS(fd, WRITE, ENOSPC) return REAL(pwrite)(fd, data, size, at); }
ssize_t write(int fd, const void *data, size_t size) { FAILS(fd, WRITE, ENOSPC) return REAL(write)(fd, data, size); }
ssize_t pread64(int fd, void *data, size_t size, off64_t at) { FAILS(fd, READ, EIO) return REAL(pread64)(fd, data, size, at); }
ssize_t pread(int fd, void *data, size_t size, off_t at) { FAILS(fd, READ, EIO) return REAL(pread)(fd, data, size, at); }
ssize_t read(int fd, void *data, size_t size) { FAILS(fd, READ, EIO) return REAL(read)(fd, data, size); }
int fsync(int fd) { FAILS(fd, SYNC, EIO) return REAL(fsync)(fd); }
int fdatasync(int fd) { FAILS(fd, SYNC, EIO) return REAL(fdatasync)(fd); }
int ftruncate64(int fd, off64_t size) { FAILS(fd, GROW, ENOSPC) return REAL(ftruncate64)(fd, size); }
int ftruncate(int fd, off_t size) { FAILS(fd, GROW, ENOSPC) return REAL(ftruncate)(fd, size); }
int rename(const char *from, const char *to) {
    if (is_marked(from) && fault(NAME)) { errno = EIO; return -1; }
    return REAL(rename)(from, to);
}
int unlink(const char *path) {
    if (is_marked(path) && fault(NAME)) { errno = EIO; return -1; }
    return REAL(unlink)(path);
}

extern void *__libc_malloc(size_t);
extern void *__libc_realloc(void *, size_t);
static int from_sqlite(void *caller) { return (uintptr_t)caller >= sqlite_begin && (uintptr_t)caller < sqlite_end; }
void *malloc(size_t size) {
    if (armed_kind == MEMORY && from_sqlite(__builtin_return_address(0)) && fault(MEMORY)) return NULL;
    return __libc_malloc(size);
}
void *realloc(void *data, size_t size) {
    if (armed_kind == MEMORY && from_sqlite(__builtin_return_address(0)) && fault(MEMORY)) return NULL;
    return __libc_realloc(data, size);
}
