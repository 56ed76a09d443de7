#define _GNU_SOURCE
#include "process.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "options.h"

enum { LINE = 1024 };

/* Read a small file of /proc; return its length, 0 if it does not exist (a process may exit). */
static size_t slurp(char *into, size_t room, const char *format, int pid) {
    char path[64];
    snprintf(path, sizeof path, format, pid);
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    size_t n = fread(into, 1, room - 1, f);
    into[n] = 0;
    fclose(f);
    return n;
}

static bool known(int pid) {
    for (int i = 0; i < options.pid_count; i++)
        if (options.pids[i] == pid) return true;
    return false;
}

/* Return /proc/PID/stat after the name, which may contain parentheses itself. NULL: no such process. */
static const char *stat_of(int pid, char *text) {
    if (!slurp(text, LINE, "/proc/%d/stat", pid)) return NULL;
    const char *end = strrchr(text, ')');
    return end ? end + 2 : NULL;
}

void processes_find(void) {
    char text[LINE];
    for (bool grew = options.pid_count > 0; grew;) {
        grew = false;
        DIR *d = opendir("/proc");
        for (struct dirent *e; d && (e = readdir(d));) {
            int pid = atoi(e->d_name), parent;
            if (pid <= 0 || known(pid) || options.pid_count == MAX_PIDS) continue;
            const char *stat = stat_of(pid, text);
            if (!stat || sscanf(stat, "%*c %d", &parent) != 1 || !known(parent)) continue;
            options.pids[options.pid_count++] = pid;
            grew = true;
        }
        if (d) closedir(d);
    }
}

struct cpu process_cpu(int pid) {
    char text[LINE];
    unsigned long long user, system;
    double tick = (double)sysconf(_SC_CLK_TCK);
    const char *stat = stat_of(pid, text);
    if (!stat || sscanf(stat, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &system) != 2)
        return (struct cpu){0};
    return (struct cpu){(double)user / tick, (double)system / tick};
}

struct cpu processes_cpu(void) {
    struct cpu sum = {0};
    for (int i = 0; i < options.pid_count; i++) {
        struct cpu one = process_cpu(options.pids[i]);
        sum.user += one.user;
        sum.system += one.system;
    }
    return sum;
}

uint64_t processes_rss(void) {
    uint64_t sum = 0, page = (uint64_t)sysconf(_SC_PAGESIZE) / 1024;
    char text[LINE];
    for (int i = 0; i < options.pid_count; i++) {
        unsigned long pages;
        if (slurp(text, sizeof text, "/proc/%d/statm", options.pids[i]) && sscanf(text, "%*u %lu", &pages) == 1)
            sum += pages * page;
    }
    return sum;
}

uint64_t processes_pss(void) {
    uint64_t sum = 0;
    char text[4 * LINE];
    for (int i = 0; i < options.pid_count; i++) {
        if (!slurp(text, sizeof text, "/proc/%d/smaps_rollup", options.pids[i])) continue;
        const char *line = strstr(text, "\nPss:");
        if (line) sum += strtoull(line + 5, NULL, 10);
    }
    return sum;
}

/* Return the inode of the loopback socket at the other end of `fd`; 0 if there is none. */
static unsigned long peer_inode(int fd) {
    struct sockaddr_in mine, peers;
    socklen_t n = sizeof mine, m = sizeof peers;
    char line[LINE];
    unsigned long found = 0;
    FILE *f = fopen("/proc/net/tcp", "r");
    if (!f || getsockname(fd, (struct sockaddr *)&mine, &n) || getpeername(fd, (struct sockaddr *)&peers, &m)) {
        if (f) fclose(f);
        return 0;
    }
    while (!found && fgets(line, sizeof line, f)) {
        unsigned local, remote;
        unsigned long inode;
        if (sscanf(line, " %*d: %*x:%x %*x:%x %*x %*x:%*x %*x:%*x %*x %*u %*u %lu", &local, &remote, &inode) == 3 &&
            local == ntohs(peers.sin_port) && remote == ntohs(mine.sin_port))
            found = inode;
    }
    fclose(f);
    return found;
}

int process_of_peer(int fd) {
    unsigned long inode = peer_inode(fd);
    char wanted[64], path[512], target[64];
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    for (int i = options.pid_count - 1; inode && i >= 0; i--) { /* children first: a parent may keep a copy */
        snprintf(path, sizeof path, "/proc/%d/fd", options.pids[i]);
        DIR *d = opendir(path);
        for (struct dirent *e; d && (e = readdir(d));) {
            snprintf(path, sizeof path, "/proc/%d/fd/%s", options.pids[i], e->d_name);
            ssize_t n = readlink(path, target, sizeof target - 1);
            if (n <= 0) continue;
            target[n] = 0;
            if (strcmp(target, wanted)) continue;
            closedir(d);
            return options.pids[i];
        }
        if (d) closedir(d);
    }
    return 0;
}
