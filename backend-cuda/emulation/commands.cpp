// Reads commands from standard input and writes replies to standard output; or reads recorded
// commands from the file that the first argument names, for a debugger. Integers are
// little-endian, as are this program's machines.

#include "emulator.h"
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <unistd.h>

constexpr int MAX_LIBRARIES = 1 << 12;

// Compiled sources, in the order in which they were opened.
static struct {
    const link_map* map;
    const FlKernel* kernels;
    uint32_t n_kernels;
} libraries[MAX_LIBRARIES];
static uint32_t n_libraries;

// Standard output belongs to the replies.
static FILE *in, *out;
bool replaying = false;

void reply(const void* data, size_t bytes) { fwrite(data, 1, bytes, out); }
void end_reply() { fflush(out); }

void reply_place(uint64_t pc) {
    uint32_t library = UINT32_MAX;
    uint64_t place = pc;
    Dl_info info = {};
    if (pc && dladdr((void*)pc, &info)) {
        for (uint32_t i = 0; i < n_libraries; i++) {
            if ((uint64_t)info.dli_fbase != libraries[i].map->l_addr) continue;
            library = i;
            place = pc - libraries[i].map->l_addr;
        }
    }
    reply(&library, 4);
    reply(&place, 8);
}

static void get(void* data, size_t bytes) {
    if (fread(data, 1, bytes, in) == bytes) return;
    // The driver has gone, or the recorded commands are over.
    if (feof(in)) _exit(0);
    perror("commands cannot be read");
    _exit(4);
}
template <class T> static T get() {
    T x;
    get(&x, sizeof x);
    return x;
}
static Buffer& get_range(uint64_t* at, uint64_t* bytes) {
    Buffer& own = buffer(get<uint32_t>());
    *at = get<uint64_t>();
    *bytes = get<uint64_t>();
    if (*at > own.bytes || *bytes > own.bytes - *at) {
        fprintf(stderr, "a command is about bytes that a buffer has not\n");
        _exit(4);
    }
    return own;
}

[[noreturn]] static void impossible(const char* text, const char* name) {
    fprintf(stderr, "%s: %s\n", name, text);
    _exit(4);
}

static void open_library() {
    char path[4096];
    const uint32_t bytes = get<uint32_t>();
    if (bytes >= sizeof path) impossible("the path is too long", "?");
    get(path, bytes);
    path[bytes] = 0;
    void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle || n_libraries == MAX_LIBRARIES) impossible(handle ? "too many sources" : dlerror(), path);
    const FlKernel* kernels = (const FlKernel*)dlsym(handle, "fl_kernels");
    const int* n_kernels = (const int*)dlsym(handle, "fl_n_kernels");
    if (!kernels || !n_kernels) impossible("the library has no table of kernels", path);
    libraries[n_libraries++] = {(const link_map*)handle, kernels, (uint32_t)*n_kernels};
}

static void launch() {
    const uint32_t library = get<uint32_t>(), index = get<uint32_t>();
    const uint32_t n_blocks = get<uint32_t>(), n_threads = get<uint32_t>(), shared = get<uint32_t>();
    const uint32_t seconds = get<uint32_t>(), n = get<uint32_t>();
    if (library >= n_libraries || index >= libraries[library].n_kernels) {
        impossible("there is no such kernel", "?");
    }
    const FlKernel& kernel = libraries[library].kernels[index];
    if (n != strlen(kernel.parameters) || n > MAX_PARAMETERS) {
        impossible("the launch has another number of arguments", kernel.name);
    }
    if (n_blocks == 0 || n_blocks > INT32_MAX) {
        impossible("a grid has 1 to 2^31 - 1 blocks", kernel.name);
    }
    if (n_threads == 0 || n_threads > 1024 || n_threads % 32 != 0) {
        impossible("a block has 32 to 1024 threads, a multiple of 32", kernel.name);
    }
    static View views[MAX_PARAMETERS];
    static uint64_t values[MAX_PARAMETERS];
    static void* places[MAX_PARAMETERS];
    for (uint32_t i = 0; i < n; i++) {
        const char letter = kernel.parameters[i];
        if (get<char>() != letter) impossible("an argument has another type", kernel.name);
        views[i] = {};
        if (letter == 'i' || letter == 'f') {
            values[i] = get<uint32_t>();
        } else {
            uint64_t at, bytes;
            Buffer& own = get_range(&at, &bytes);
            views[i] = {&own, at, bytes, letter == 'w'};
            values[i] = (uint64_t)pointer_of((int)i);
        }
        places[i] = &values[i];
    }
    running.launch++;
    running.block = 0;
    running.thread = 0;
    set_views(views, (int)n);
    set_shared(shared);
    // A debugger's user takes time.
    limit_seconds(replaying ? 0 : seconds);
    run_grid(kernel, places, (int)n_blocks, (int)n_threads);
    limit_seconds(0);
    reply("", 1);
    end_reply();
}

// Who wrote the byte last in a launch: whether anybody did, block, thread, instruction.
static void writer() {
    uint64_t at, bytes;
    const Buffer& own = get_range(&at, &bytes);
    Access write = {};
    if (own.cells && bytes > 0) {
        const Cell& cell = own.cells[at / own.granule];
        const Access& atomic = cell.atomic;
        write = cell.write;
        const bool later = atomic.launch == write.launch ? atomic.epoch >= write.epoch
                                                         : atomic.launch > write.launch;
        if (later) write = atomic;
    }
    const uint8_t known = write.launch != 0;
    const uint32_t thread = write.thread;
    reply(&known, 1);
    reply(&write.block, 4);
    reply(&thread, 4);
    reply_place(write.pc);
    end_reply();
}

int main(int n_arguments, char** arguments) {
    in = n_arguments > 1 ? fopen(arguments[1], "rb") : stdin;
    if (!in) {
        perror(arguments[1]);
        return 4;
    }
    replaying = n_arguments > 1;
    // What else is printed must not come between replies; nobody waits for those to recorded
    // commands.
    out = replaying ? fopen("/dev/null", "wb") : fdopen(dup(1), "wb");
    dup2(2, 1);
    if (!out) return 4;
    catch_crashes();
    for (;;) {
        const char command = get<char>();
        uint64_t at, bytes;
        switch (command) {
            case 'B': {  // a buffer: its number, bytes, bytes of an element, whether it is all written
                const uint32_t id = get<uint32_t>();
                bytes = get<uint64_t>();
                const uint32_t granule = get<uint32_t>();
                make_buffer(id, bytes, granule, get<uint8_t>() != 0);
                break;
            }
            case 'F': free_buffer(get<uint32_t>()); break;
            case 'W': {  // bytes for a buffer
                Buffer& own = get_range(&at, &bytes);
                get(own.data + at, bytes);
                mark(own, at, bytes, true);
                break;
            }
            case 'U': {  // bytes that are unwritten from now on
                Buffer& own = get_range(&at, &bytes);
                memset(own.data + at, 0xff, bytes);
                mark(own, at, bytes, false);
                break;
            }
            case 'O': open_library(); break;
            case 'L': launch(); break;
            case 'R': {  // bytes of a buffer
                const Buffer& own = get_range(&at, &bytes);
                reply(own.data + at, bytes);
                end_reply();
                break;
            }
            case 'V': {  // the first unwritten byte of a range
                const Buffer& own = get_range(&at, &bytes);
                const uint64_t first = first_unwritten(own, at, bytes);
                reply(&first, 8);
                end_reply();
                break;
            }
            case 'P': writer(); break;
            default:
                fprintf(stderr, "there is no command %d\n", command);
                return 4;
        }
    }
}
