/* Fault injection for calls of the C library by the extension modules of this project.

   An extension calls malloc or recv through its import table. `faults_install` replaces the entries by the functions
   below. So modules need not be built specially, and calls by Python and other libraries are not affected. A pattern
   determines the result of each call; see faults.pyx. */

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#if defined(__x86_64__)
#define IS_IMPORT(type) ((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT)
#elif defined(__aarch64__)
#define IS_IMPORT(type) ((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT)
#else
#define IS_IMPORT(type) 0
#endif

enum { PASS = '.', AGAIN = 'a', INTERRUPTED = 'i', ONE = '1', FEW = 'f', BROKEN_CALL = 'x' };
enum { CALL_RECV, CALL_SEND, CALL_WAIT, CALL_WRITE, CALL_KINDS };
enum { FEW_MOST = 7 };

typedef struct {
    const char *pattern; /* one letter for each call, repeated; NULL: all calls pass */
    size_t size, at;
    uint64_t changed; /* calls whose letter was not PASS */
} Calls;

static Calls faults_calls[CALL_KINDS];
static uint64_t faults_allocations; /* since fail_allocations */
static uint64_t faults_first, faults_count; /* `count` allocations fail from number `first` on; first 0: none */
static uint64_t faults_failed;

static int allocation_fails(void)
{
    faults_allocations++;
    if (faults_first == 0 || faults_allocations < faults_first || faults_allocations - faults_first >= faults_count)
        return 0;
    faults_failed++;
    errno = ENOMEM;
    return 1;
}

static void *faulty_malloc(size_t size) { return allocation_fails() ? NULL : malloc(size); }
static void *faulty_calloc(size_t n, size_t size) { return allocation_fails() ? NULL : calloc(n, size); }
static void *faulty_realloc(void *old, size_t size) { return allocation_fails() ? NULL : realloc(old, size); }
static int faulty_memalign(void **memory, size_t alignment, size_t size)
{
    return allocation_fails() ? ENOMEM : posix_memalign(memory, alignment, size);
}

/* Apply the pattern to the next call. True: it fails with errno. Otherwise `*most` may be reduced. */
static int call_fails(int kind, size_t *most)
{
    Calls *calls = &faults_calls[kind];
    char what;
    if (calls->pattern == NULL)
        return 0;
    what = calls->pattern[calls->at++ % calls->size];
    calls->changed += what != PASS;
    switch (what) {
    case AGAIN:
        errno = EAGAIN;
        return 1;
    case INTERRUPTED:
        errno = EINTR;
        return 1;
    case BROKEN_CALL:
        errno = ECONNRESET;
        return 1;
    case ONE:
        *most = *most > 1 ? 1 : *most;
        return 0;
    case FEW:
        *most = *most > FEW_MOST ? 1 + calls->at % FEW_MOST : *most;
        return 0;
    default:
        return 0;
    }
}

static ssize_t faulty_recv(int fd, void *data, size_t size, int flags)
{
    return call_fails(CALL_RECV, &size) ? -1 : recv(fd, data, size, flags);
}

static ssize_t faulty_send(int fd, const void *data, size_t size, int flags)
{
    return call_fails(CALL_SEND, &size) ? -1 : send(fd, data, size, flags);
}

static int faulty_epoll_wait(int epoll, struct epoll_event *events, int most, int timeout)
{
    size_t room = (size_t)most;
    return call_fails(CALL_WAIT, &room) ? -1 : epoll_wait(epoll, events, (int)room, timeout);
}

static ssize_t faulty_write(int fd, const void *data, size_t size)
{
    size_t whole = size; /* a write to an eventfd always has all eight octets */
    return call_fails(CALL_WRITE, &whole) ? -1 : write(fd, data, size);
}

static const struct {
    const char *name;
    void *ours;
} faults_imports[] = {
    {"malloc", faulty_malloc},         {"calloc", faulty_calloc}, {"realloc", faulty_realloc},
    {"posix_memalign", faulty_memalign},
    {"recv", faulty_recv},             {"send", faulty_send},     {"write", faulty_write},
    {"epoll_wait", faulty_epoll_wait},
};

typedef struct {
    const char *path; /* path of the module to change */
    int found;        /* number of imports replaced */
} Module;

static void change_imports(Module *module, ElfW(Addr) base, const ElfW(Rela) *entries, size_t size,
                           const ElfW(Sym) *symbols, const char *strings)
{
    long page = sysconf(_SC_PAGESIZE);
    size_t i, k;
    for (i = 0; i < size / sizeof(*entries); i++) {
        const char *name = strings + symbols[ELF64_R_SYM(entries[i].r_info)].st_name;
        if (!IS_IMPORT(ELF64_R_TYPE(entries[i].r_info)))
            continue;
        for (k = 0; k < sizeof(faults_imports) / sizeof(faults_imports[0]); k++) {
            void **slot = (void **)(base + entries[i].r_offset);
            char *begin = (char *)((uintptr_t)slot & ~(uintptr_t)(page - 1));
            if (strcmp(name, faults_imports[k].name) != 0)
                continue;
            if (*slot != faults_imports[k].ours) {
                if (mprotect(begin, (size_t)page, PROT_READ | PROT_WRITE) != 0)
                    continue;
                *slot = faults_imports[k].ours;
            }
            module->found++;
        }
    }
}

static int change_module(struct dl_phdr_info *info, size_t size, void *data)
{
    Module *module = data;
    const ElfW(Dyn) *entry = NULL;
    const ElfW(Rela) *jumps = NULL, *others = NULL;
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    size_t jumps_size = 0, others_size = 0;
    int i;
    (void)size;
    if (strcmp(info->dlpi_name, module->path) != 0)
        return 0;
    for (i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            entry = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    for (; entry != NULL && entry->d_tag != DT_NULL; entry++) {
        switch (entry->d_tag) {
        case DT_JMPREL: jumps = (const ElfW(Rela) *)entry->d_un.d_ptr; break;
        case DT_PLTRELSZ: jumps_size = entry->d_un.d_val; break;
        case DT_RELA: others = (const ElfW(Rela) *)entry->d_un.d_ptr; break;
        case DT_RELASZ: others_size = entry->d_un.d_val; break;
        case DT_SYMTAB: symbols = (const ElfW(Sym) *)entry->d_un.d_ptr; break;
        case DT_STRTAB: strings = (const char *)entry->d_un.d_ptr; break;
        default: break;
        }
    }
    if (symbols != NULL && strings != NULL) {
        if (jumps != NULL)
            change_imports(module, info->dlpi_addr, jumps, jumps_size, symbols, strings);
        if (others != NULL)
            change_imports(module, info->dlpi_addr, others, others_size, symbols, strings);
    }
    return 1;
}

/* Replace imports of the module at `path`. Return the number of replaced imports, or -1 if the module is not loaded. */
static int faults_install(const char *path)
{
    Module module = {path, 0};
    return dl_iterate_phdr(change_module, &module) ? module.found : -1;
}
