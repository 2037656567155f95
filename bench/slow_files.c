/* Makes each operation on files below $SLOW_FOLDER wait, as a network file system does: loaded by bench/scale.py. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define FILES 65536

int slow_microseconds = 0;
static char is_slow[FILES];

static int below(const char *path) {
    const char *folder = getenv("SLOW_FOLDER");
    return folder && strncmp(path, folder, strlen(folder)) == 0;
}

static void wait_if(int slow) {
    struct timespec pause = {0, slow_microseconds * 1000L};
    if (slow && slow_microseconds)
        nanosleep(&pause, NULL);
}

static int known(int file) {
    return file >= 0 && file < FILES && is_slow[file];
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int open64(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    int mode = va_arg(more, int);
    va_end(more);
    int slow = below(path);
    wait_if(slow);
    int file = NEXT(open64)(path, flags, mode);
    if (file >= 0 && file < FILES)
        is_slow[file] = slow;
    return file;
}

int close(int file) {
    if (known(file))
        is_slow[file] = 0;
    return NEXT(close)(file);
}

#define ON_FILE(name, ...) \
    wait_if(known(file)); \
    return NEXT(name)(file, __VA_ARGS__)

ssize_t read(int file, void *to, size_t size) { ON_FILE(read, to, size); }
ssize_t write(int file, const void *from, size_t size) { ON_FILE(write, from, size); }
ssize_t pread64(int file, void *to, size_t size, off64_t at) { ON_FILE(pread64, to, size, at); }
int fstat64(int file, struct stat64 *to) { ON_FILE(fstat64, to); }

int fsync(int file) {
    wait_if(known(file));
    return NEXT(fsync)(file);
}

#define ON_PATH(name, ...) \
    wait_if(below(path)); \
    return NEXT(name)(path, ##__VA_ARGS__)

int stat64(const char *path, struct stat64 *to) { ON_PATH(stat64, to); }
int lstat64(const char *path, struct stat64 *to) { ON_PATH(lstat64, to); }
int rename(const char *path, const char *to) { ON_PATH(rename, to); }
int unlink(const char *path) { ON_PATH(unlink); }
DIR *opendir(const char *path) { ON_PATH(opendir); }
