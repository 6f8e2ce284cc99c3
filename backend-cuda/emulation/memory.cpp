// Every access of a kernel comes through here. Beside each element that kernels write stands who
// wrote and who read it last, which is enough to see two accesses that nothing puts in order.

#include "emulator.h"
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>


constexpr uint32_t SHARED_BYTES = 1 << 18, STATIC_BASE = SHARED_BYTES;
// Bytes of an element of shared memory; less, once templates keep narrower ones there.
constexpr unsigned SHARED_GRANULE = 4;
// A pointer's upper 16 bits are the parameter's number, from 1 on; the lower 48 the byte, with
// room before the first one. No such pointer is an address.
constexpr int NUMBER_SHIFT = 48;
constexpr uint64_t FIRST_BYTE = 1ull << 47, BYTE_MASK = (1ull << NUMBER_SHIFT) - 1;

// By number. They are small, and there are ever more: freed ones keep their place.
static Buffer* buffers;
static uint32_t n_buffers;
static View views[MAX_PARAMETERS];
static int n_views;

[[noreturn]] static void refuse(const char* text) {
    fprintf(stderr, "%s\n", text);
    _exit(4);
}

// Zeros, which cost nothing until they are touched.
static void* zeros(uint64_t bytes) {
    void* memory = mmap(nullptr, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) refuse("the emulator has no memory left");
    return memory;
}

Buffer& buffer(uint32_t id) {
    if (id >= n_buffers || !buffers[id].data) refuse("a command names a buffer that there is not");
    return buffers[id];
}

void free_buffer(uint32_t id) {
    Buffer& old = buffer(id);
    const uint64_t n = old.bytes / old.granule + 1;
    munmap(old.data, old.bytes ? old.bytes : 1);
    if (old.cells) munmap(old.cells, n * sizeof(Cell));
    if (old.written) munmap(old.written, n);
    old = {};
}

void make_buffer(uint32_t id, uint64_t bytes, unsigned granule, bool written) {
    if (granule == 0 || id > n_buffers) refuse("a command makes an impossible buffer");
    if (id == n_buffers) {
        if ((n_buffers & (n_buffers - 1)) == 0) {
            const size_t room = n_buffers ? 2 * (size_t)n_buffers : 1;
            buffers = (Buffer*)realloc(buffers, room * sizeof(Buffer));
            if (!buffers) refuse("the emulator has no memory left");
        }
        buffers[n_buffers++] = {};
    }
    Buffer& made = buffers[id];
    if (made.data) free_buffer(id);
    made = {(char*)zeros(bytes), bytes, granule, nullptr, nullptr};
    if (!written) {
        // What nobody wrote is NaN in every type.
        memset(made.data, 0xff, bytes);
        made.written = (uint8_t*)zeros(bytes / granule + 1);
    }
}

void mark(Buffer& own, uint64_t at, uint64_t bytes, bool written) {
    const uint64_t n = own.bytes / own.granule + 1;
    if (!own.written) {
        if (written) return;
        own.written = (uint8_t*)zeros(n);
        memset(own.written, 1, n);
    }
    if (bytes == 0) return;
    const uint64_t first = at / own.granule, last = (at + bytes - 1) / own.granule;
    memset(own.written + first, written, last - first + 1);
}

uint64_t first_unwritten(const Buffer& own, uint64_t at, uint64_t bytes) {
    if (!own.written) return UINT64_MAX;
    for (uint64_t byte = at; byte < at + bytes; byte += own.granule) {
        if (!own.written[byte / own.granule]) return byte;
    }
    return UINT64_MAX;
}

void set_views(const View* given, int n) {
    if (n > MAX_PARAMETERS) refuse("a kernel has too many parameters");
    for (int i = 0; i < n; i++) {
        views[i] = given[i];
        Buffer* own = given[i].buffer;
        if (own && given[i].writable && !own->cells) {
            own->cells = (Cell*)zeros((own->bytes / own->granule + 1) * sizeof(Cell));
        }
    }
    n_views = n;
    // The pointers are declared `__restrict__`.
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            const View &a = views[i], &b = views[j];
            if (i == j || !a.buffer || a.buffer != b.buffer || !a.writable) continue;
            if (a.at < b.at + b.bytes && b.at < a.at + a.bytes) {
                Fault what = {FaultKind::Alias};
                what.parameter = i;
                what.extent = a.bytes;
                static char text[64];
                snprintf(text, sizeof text, "%d", j);
                what.text = text;
                fault(what);
            }
        }
    }
}

void* pointer_of(int n) { return (void*)((uint64_t)(n + 1) << NUMBER_SHIFT | FIRST_BYTE); }

// ---- who touched what

// Whether what a thread of this block did is seen by the running thread.
static bool ordered(const Access& a) {
    if (a.epoch != running.epoch) return true;
    return !a.warps && a.thread / 32 == running.thread / 32 && a.warp_epoch != running.warp_epoch;
}
static bool conflicts(const Access& a, uint32_t launch) {
    if (a.launch != launch) return false;
    if (a.abroad || a.block != running.block) return true;
    return (a.several || a.thread != running.thread) && !ordered(a);
}
static Where where(const Access& a) { return {a.block, a.thread, a.pc}; }

// Adds the running thread to those that did the same.
static void join(Access& a, uint32_t launch, uint64_t pc) {
    const bool same_launch = a.launch == launch;
    if (same_launch && a.block != running.block) {
        a.abroad = true;
    } else if (!same_launch || ordered(a)) {
        const bool abroad = same_launch && a.abroad;
        a = {pc, launch, running.block, running.epoch, running.warp_epoch, (uint16_t)running.thread,
             false, abroad, false};
    } else {
        a.several |= a.thread != running.thread;
        a.warps |= a.thread / 32 != running.thread / 32;
    }
}
enum class Kind { Read, Write, Atomic };
// Notes an access; gives the one that it conflicts with, or null.
static const Access* note(Cell& cell, uint32_t launch, uint64_t pc, Kind kind) {
    if (conflicts(cell.write, launch)) return &cell.write;
    if (kind != Kind::Read && conflicts(cell.read, launch)) return &cell.read;
    if (kind != Kind::Atomic && conflicts(cell.atomic, launch)) return &cell.atomic;
    Access& own = kind == Kind::Read ? cell.read : kind == Kind::Write ? cell.write : cell.atomic;
    join(own, launch, pc);
    return nullptr;
}

// ---- global memory

// Checks what only memory that kernels write, or that is not all written, needs.
static void check_cells(const View& view, int number, uint64_t at, unsigned bytes, Kind kind,
                        uint64_t pc) {
    Buffer& own = *view.buffer;
    const uint64_t begin = view.at + at;
    for (uint64_t byte = begin; byte < begin + bytes; byte += own.granule) {
        const uint64_t i = byte / own.granule;
        if (kind != Kind::Write && own.written && !own.written[i]) {
            Fault what = {FaultKind::Uninitialized, number, (int64_t)at, bytes, view.bytes};
            fault(what);
        }
        if (own.cells) {
            const Access* other = note(own.cells[i], running.launch, pc, kind);
            if (other) {
                Fault what = {FaultKind::Race, number, (int64_t)at, bytes, view.bytes};
                what.text = other == &own.cells[i].read ? "read" : "wrote";
                what.has_other = true;
                what.other = where(*other);
                fault(what);
            }
        }
        if (kind != Kind::Read && own.written) own.written[i] = 1;
    }
}

static inline void* access(const void* p, unsigned bytes, Kind kind, uint64_t pc) {
    const uint64_t number = (uint64_t)p >> NUMBER_SHIFT;
    const int64_t at = (int64_t)(((uint64_t)p & BYTE_MASK) - FIRST_BYTE);
    if (number == 0 || number > (uint64_t)n_views || !views[number - 1].buffer) {
        Fault what = {FaultKind::Undefined};
        what.text = "a load or store of a pointer that is none of the kernel's parameters";
        fault(what);
    }
    const View& view = views[number - 1];
    if (at < 0 || (uint64_t)at + bytes > view.bytes) {
        Fault what = {FaultKind::OutOfBounds, (int32_t)number - 1, at, bytes, view.bytes};
        fault(what);
    }
    if ((view.at + (uint64_t)at) % bytes != 0) {
        Fault what = {FaultKind::Misaligned, (int32_t)number - 1, at, bytes, view.bytes};
        fault(what);
    }
    if (kind != Kind::Read && !view.writable) {
        Fault what = {FaultKind::ReadOnly, (int32_t)number - 1, at, bytes, view.bytes};
        fault(what);
    }
    if (view.buffer->cells || view.buffer->written) {
        check_cells(view, (int)number - 1, (uint64_t)at, bytes, kind, pc);
    }
    return view.buffer->data + view.at + at;
}

// The instruction before the one that the caller goes on with.
#define CALLER ((uint64_t)__builtin_return_address(0) - 1)

const void* fl_read(const void* p, unsigned bytes) { return access(p, bytes, Kind::Read, CALLER); }
void* fl_write(void* p, unsigned bytes) { return access(p, bytes, Kind::Write, CALLER); }
void* fl_atomic(void* p, unsigned bytes) { return access(p, bytes, Kind::Atomic, CALLER); }

// ---- shared memory: what the launch asked for, then the kernel's static arrays

alignas(256) static char shared[2 * SHARED_BYTES];
static Cell shared_cells[2 * SHARED_BYTES / SHARED_GRANULE];
static unsigned shared_bytes, static_bytes;
// Blocks are numbered over all launches: what an earlier block left is as good as unwritten.
static uint32_t shared_turn;
static struct {
    const void* key;
    unsigned base;
} statics[64];
static int n_statics;

void set_shared(unsigned bytes) {
    if (bytes > SHARED_BYTES) refuse("a launch asks for more shared memory than any GPU has");
    shared_bytes = bytes;
    static_bytes = 0;
    n_statics = 0;
}

// A copy on its way to shared memory.
struct Copy {
    unsigned base;
    long long i;
    int n;
    unsigned element, bytes;
    const char* name;
    uint64_t pc;
    char data[16];
};
// Those of a thread, oldest first, and how many its groups have.
struct Copies {
    std::vector<Copy> asked;
    std::vector<unsigned> groups;
    unsigned open = 0;
};
static std::vector<Copies> copies;

void clear_shared() {
    shared_turn++;
    copies.clear();
}

unsigned fl_shared_static(const void* key, unsigned bytes) {
    for (int i = 0; i < n_statics; i++) {
        if (statics[i].key == key) return statics[i].base;
    }
    const unsigned base = STATIC_BASE + static_bytes;
    static_bytes = (static_bytes + bytes + 15) / 16 * 16;
    if (n_statics == 64 || static_bytes > SHARED_BYTES) refuse("too many static shared arrays");
    statics[n_statics++] = {key, base};
    return base;
}

static inline void* access_shared(unsigned base, long long i, int n, unsigned bytes, const char* name,
                                  bool writes, uint64_t pc) {
    const uint64_t at = base + (uint64_t)i * bytes;
    const unsigned end = base < STATIC_BASE ? shared_bytes : STATIC_BASE + static_bytes;
    if (i < 0 || i >= n || at + bytes > end) {
        Fault what = {FaultKind::SharedOutOfBounds, -1, (int64_t)(i * bytes), bytes,
                      (uint64_t)n * bytes};
        what.text = name;
        fault(what);
    }
    for (uint64_t byte = at; byte < at + bytes; byte += SHARED_GRANULE) {
        Cell& cell = shared_cells[byte / SHARED_GRANULE];
        if (!writes && cell.write.launch != shared_turn) {
            Fault what = {FaultKind::SharedUninitialized, -1, (int64_t)(i * bytes), bytes,
                          (uint64_t)n * bytes};
            what.text = name;
            fault(what);
        }
        const Access* other =
            note(cell, shared_turn, pc, writes ? Kind::Write : Kind::Read);
        if (other) {
            Fault what = {FaultKind::SharedRace, -1, (int64_t)(i * bytes), bytes,
                          (uint64_t)n * bytes};
            static char text[256];
            snprintf(text, sizeof text, "%s %s", other == &cell.write ? "wrote" : "read", name);
            what.text = text;
            what.has_other = true;
            what.other = where(*other);
            fault(what);
        }
    }
    return shared + at;
}

const void* fl_shared_read(unsigned base, long long i, int n, unsigned bytes, const char* name) {
    return access_shared(base, i, n, bytes, name, false, CALLER);
}
void* fl_shared_write(unsigned base, long long i, int n, unsigned bytes, const char* name) {
    return access_shared(base, i, n, bytes, name, true, CALLER);
}

// ---- copies to shared memory that arrive later

static Copies& own_copies() {
    if (copies.size() <= (size_t)running.thread) copies.resize(running.thread + 1);
    return copies[running.thread];
}

void fl_copy_ask(unsigned base, long long i, int n, unsigned element, unsigned bytes,
                 const char* name, const void* from) {
    Copy copy = {base, i, n, element, bytes, name, CALLER, {}};
    memcpy(copy.data, from, bytes);
    // What is on its way there is not to be read.
    const uint64_t at = base + (uint64_t)i * element;
    for (uint64_t byte = at; byte < at + bytes && byte < 2 * SHARED_BYTES; byte += SHARED_GRANULE) {
        shared_cells[byte / SHARED_GRANULE].write.launch = 0;
    }
    Copies& own = own_copies();
    own.asked.push_back(copy);
    own.open++;
}

void fl_copy_commit() {
    Copies& own = own_copies();
    own.groups.push_back(own.open);
    own.open = 0;
}

void fl_copy_arrive(int n) {
    Copies& own = own_copies();
    unsigned arrived = 0;
    while (own.groups.size() > (size_t)n) {
        for (unsigned end = arrived + own.groups[0]; arrived < end; arrived++) {
            const Copy& copy = own.asked[arrived];
            for (unsigned done = 0; done < copy.bytes; done += copy.element) {
                void* place = access_shared(copy.base, copy.i + done / copy.element, copy.n,
                                            copy.element, copy.name, true, copy.pc);
                memcpy(place, copy.data + done, copy.element);
            }
        }
        own.groups.erase(own.groups.begin());
    }
    own.asked.erase(own.asked.begin(), own.asked.begin() + arrived);
}
