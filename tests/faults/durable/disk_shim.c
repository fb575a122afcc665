/* A disk for tests, preloaded into a server: slow, or one that keeps only what was synced.

   DISK_SYNC_MS     every sync takes so long
   DISK_ROOT        with DISK_SYNCED: record what is synced below this folder
   DISK_SYNCED      folder of the records

   A synced file leaves its bytes in f-<id>; a synced folder leaves its entries in d-<id>, one a line: kind, id,
   name. An id is inode and time of birth, because inodes are used again. What is in no record was never synced:
   a strict file system may lose it with the power. See power_loss.py. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

static int id_of(int folder, const char *name, char *id, size_t room, mode_t *kind) {
    struct statx found;
    int flags = AT_SYMLINK_NOFOLLOW | (*name ? 0 : AT_EMPTY_PATH);
    if (statx(folder, name, flags, STATX_BASIC_STATS | STATX_BTIME, &found) != 0) return -1;
    snprintf(id, room, "%llu-%lld.%u", (unsigned long long)found.stx_ino, (long long)found.stx_btime.tv_sec,
             found.stx_btime.tv_nsec);
    *kind = found.stx_mode & S_IFMT;
    return 0;
}

static void record_folder(int fd, FILE *out) {
    int again = openat(fd, ".", O_RDONLY | O_DIRECTORY);
    DIR *folder = again < 0 ? NULL : fdopendir(again);
    if (folder == NULL) return;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char id[80];
        mode_t kind;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        if (id_of(fd, entry->d_name, id, sizeof id, &kind) == 0)
            fprintf(out, "%c %s %s\n", kind == S_IFDIR ? 'd' : 'f', id, entry->d_name);
    }
    closedir(folder);
}

static void record_file(const char *path, FILE *out) {
    char part[65536];
    ssize_t count;
    int fd = open(path, O_RDONLY);
    while (fd >= 0 && (count = read(fd, part, sizeof part)) > 0) fwrite(part, 1, (size_t)count, out);
    if (fd >= 0) close(fd);
}

static void record(int fd) {
    const char *root = getenv("DISK_ROOT"), *records = getenv("DISK_SYNCED");
    char link[64], path[PATH_MAX], id[80], draft[PATH_MAX + 100], final[PATH_MAX + 100];
    mode_t kind;
    if (root == NULL || records == NULL) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return;
    path[length] = 0;
    if (strncmp(path, root, strlen(root)) != 0 || id_of(fd, "", id, sizeof id, &kind) != 0) return;
    snprintf(draft, sizeof draft, "%s/draft", records);
    snprintf(final, sizeof final, "%s/%c-%s", records, kind == S_IFDIR ? 'd' : 'f', id);
    pthread_mutex_lock(&one_at_a_time);
    FILE *out = fopen(draft, "w");
    if (out != NULL) {
        if (kind == S_IFDIR) record_folder(fd, out);
        else record_file(link, out);
        fclose(out);
        rename(draft, final);
    }
    pthread_mutex_unlock(&one_at_a_time);
}

static int synced(const char *name, int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    const char *pause_ms = getenv("DISK_SYNC_MS");
    if (pause_ms != NULL) usleep((useconds_t)atoi(pause_ms) * 1000);
    int result = real(fd), error = errno;
    if (result == 0) record(fd);
    errno = error;
    return result;
}

int fsync(int fd) { return synced("fsync", fd); }

int fdatasync(int fd) { return synced("fdatasync", fd); }
