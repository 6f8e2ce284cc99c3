// The threads of a block are fibers of one thread: each runs until it must wait for others.

#include "emulator.h"
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

constexpr int MAX_THREADS = 1024, WARP = 32;
// Frames are large when nothing is optimized and the sanitizer guards every variable.
constexpr size_t STACK_BYTES = 1 << 18, GUARD_BYTES = 1 << 14;

Running running = {};

// ---- switching stacks

#if defined(__x86_64__)
// Saves what a function must keep, on the stack, and goes on where `to` was saved.
extern "C" void fl_switch(void** from, void* to);
asm(R"(
.text
.globl fl_switch
.type fl_switch, @function
fl_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size fl_switch, .-fl_switch
)");
// The state of a fiber that has not begun: six registers, where to begin, no caller.
static void* prepare(char* stack, size_t bytes, void (*begin)()) {
    // A function begins 8 bytes below a multiple of 16, where its return address is.
    void** top = (void**)(stack + bytes) - 1;
    *top = nullptr;
    *--top = (void*)begin;
    for (int i = 0; i < 6; i++) *--top = nullptr;
    return top;
}
#elif defined(__aarch64__)
extern "C" void fl_switch(void** from, void* to);
asm(R"(
.text
.globl fl_switch
.type fl_switch, %function
fl_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
.size fl_switch, .-fl_switch
)");
static void* prepare(char* stack, size_t bytes, void (*begin)()) {
    void** top = (void**)(stack + bytes) - 20;
    for (int i = 0; i < 20; i++) top[i] = nullptr;
    top[11] = (void*)begin;  // the link register
    return top;
}
#else
// Slower: every switch asks the system about signals.
#include <ucontext.h>
static ucontext_t contexts[MAX_THREADS + 1];
static int n_contexts = 0;
static void fl_switch(void** from, void* to) {
    if (!*from) *from = &contexts[n_contexts++];
    swapcontext((ucontext_t*)*from, (ucontext_t*)to);
}
static void* prepare(char* stack, size_t bytes, void (*begin)()) {
    ucontext_t* context = (ucontext_t*)stack;
    const size_t header = (sizeof(ucontext_t) + 63) / 64 * 64;
    getcontext(context);
    context->uc_stack.ss_sp = stack + header;
    context->uc_stack.ss_size = bytes - header;
    context->uc_link = nullptr;
    makecontext(context, begin, 0);
    return context;
}
#endif

// The frame of the function that switched away, if the state's layout is known.
static uintptr_t frame_of(void* state) {
#if defined(__x86_64__)
    return ((uintptr_t*)state)[5];
#elif defined(__aarch64__)
    return ((uintptr_t*)state)[10];
#else
    (void)state;
    return 0;
#endif
}

// ---- waiting

// Threads that wait for each other.
struct Group {
    int size, arrived, returned;
    int line;       // where the first of them waits
    FlWait kind;    // and for what
    int first;      // and which it is
    uint64_t turn;  // how often all have arrived
};

struct Fiber {
    void* state;
    char* stack;
    const Group* waits_for;  // null if it can go on
    uint64_t turn;
    bool done;
};

static Fiber fibers[MAX_THREADS];
static Group all, warps[MAX_THREADS / WARP];
static uint32_t warp_epochs[MAX_THREADS / WARP];
// What lanes brought: a warp's next exchange may begin before the last is read.
static unsigned brought[2][MAX_THREADS];
static unsigned brought_words[2][MAX_THREADS][FL_EXCHANGED];
static void* scheduler;
static int n_block_threads;
static const FlKernel* kernel_of_grid;
static void* const* places_of_grid;
static uint64_t n_done;

static Group& own_warp() { return warps[running.thread / WARP]; }
static const char* place_name(const Group& group) {
    return &group == &all ? "barrier" : "warp operation";
}
static FaultKind kind_of(const Group& group) {
    return &group == &all ? FaultKind::DivergentBarrier : FaultKind::InactiveLane;
}

// Where in the source a waiting thread is: in the function that called the one that waits.
static uint64_t place_of(int thread) {
    const uintptr_t* frame = (const uintptr_t*)frame_of(fibers[thread].state);
    if (fibers[thread].done || !frame) return 0;
    return ((const uintptr_t*)frame[0])[1] - 1;
}

// A thread and another that wait for each other cannot both go on.
[[noreturn]] static void diverged(const Group& group, const char* text, int other) {
    Fault what = {kind_of(group)};
    what.text = text;
    what.has_other = true;
    what.other = {running.block, (uint32_t)other, place_of(other)};
    if (fibers[running.thread].waits_for) what.frame = frame_of(fibers[running.thread].state);
    fault(what);
}

static char message[256];

// Waits; whether the thread is the last, before which none goes on.
static bool wait(Group& group, FlWait kind, int line) {
    if (group.returned > 0) {
        const int begin = &group == &all ? 0 : running.thread / WARP * WARP;
        int other = begin;
        while (!fibers[other].done) other++;
        snprintf(message, sizeof message, "thread %d has returned before this %s", other,
                 place_name(group));
        diverged(group, message, other);
    }
    if (group.arrived == 0) {
        group.line = line;
        group.kind = kind;
        group.first = running.thread;
    } else if (group.line != line || group.kind != kind) {
        snprintf(message, sizeof message, "thread %d waits at the %s of line %d", group.first,
                 place_name(group), group.line);
        diverged(group, message, group.first);
    }
    if (++group.arrived == group.size) {
        group.arrived = 0;
        group.turn++;
        return true;
    }
    Fiber& fiber = fibers[running.thread];
    fiber.waits_for = &group;
    fiber.turn = group.turn;
    fl_switch(&fiber.state, scheduler);
    return false;
}

static void leave(Group& group) {
    group.returned++;
    if (group.arrived > 0) {
        snprintf(message, sizeof message,
                 "the thread returns while thread %d waits at the %s of line %d", group.first,
                 place_name(group), group.line);
        diverged(group, message, group.first);
    }
}

void fl_wait_block(int line) {
    if (wait(all, FlWait::Barrier, line)) running.epoch++;
}

const unsigned* fl_wait_warp(unsigned own, FlWait kind, int line) {
    Group& group = own_warp();
    unsigned* slots = brought[group.turn % 2];
    slots[running.thread] = own;
    wait(group, kind, line);
    return slots + running.thread / WARP * WARP;
}

const unsigned* fl_wait_warp_words(const unsigned* own, int n, FlWait kind, int line) {
    Group& group = own_warp();
    auto* slots = brought_words[group.turn % 2];
    for (int i = 0; i < n; i++) slots[running.thread][i] = own[i];
    wait(group, kind, line);
    return slots[running.thread / WARP * WARP];
}

void fl_order_warp(int line) {
    // The others learn of it when they go on.
    if (wait(own_warp(), FlWait::Barrier, line)) running.warp_epoch = ++warp_epochs[running.thread / WARP];
}

int fl_block() { return (int)running.block; }
int fl_thread() { return running.thread; }

bool on_stack(uintptr_t place) {
    const uintptr_t stack = (uintptr_t)fibers[running.thread].stack;
    return place >= stack && place <= stack + STACK_BYTES - 16;
}

bool near_stack_end(uintptr_t place) {
    const uintptr_t stack = (uintptr_t)fibers[running.thread].stack;
    return place < stack && place >= stack - GUARD_BYTES;
}

// ---- running

static void begin() {
    kernel_of_grid->call(places_of_grid);
    leave(all);
    leave(own_warp());
    fibers[running.thread].done = true;
    n_done++;
    static void* nowhere = nullptr;
    fl_switch(&nowhere, scheduler);
    __builtin_unreachable();
}

// Nobody can go on: some wait where others never come.
[[noreturn]] static void stuck() {
    for (bool warps_first : {true, false}) {
        for (int thread = 0; thread < n_block_threads; thread++) {
            const Group* group = fibers[thread].waits_for;
            if (fibers[thread].done || (group != &all) != warps_first) continue;
            for (int other = 0; other < n_block_threads; other++) {
                const bool member = group == &all || other / WARP == thread / WARP;
                if (!member || fibers[other].done || fibers[other].waits_for == group) continue;
                const Group& elsewhere = *fibers[other].waits_for;
                snprintf(message, sizeof message,
                         "waits at the %s of line %d for thread %d, which waits at the %s of line %d",
                         place_name(*group), group->line, other, place_name(elsewhere),
                         elsewhere.line);
                running.thread = thread;
                diverged(*group, message, other);
            }
        }
    }
    abort();
}

static void run_block() {
    all = {n_block_threads, 0, 0, 0, FlWait::Barrier, 0, 0};
    for (int warp = 0; warp * WARP < n_block_threads; warp++) {
        warps[warp] = {WARP, 0, 0, 0, FlWait::Barrier, 0, 0};
        warp_epochs[warp] = 0;
    }
    for (int thread = 0; thread < n_block_threads; thread++) {
        Fiber& fiber = fibers[thread];
        if (!fiber.stack) {
            void* memory = mmap(nullptr, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (memory == MAP_FAILED || mprotect(memory, GUARD_BYTES, PROT_NONE)) {
                perror("no memory for a thread's stack");
                _exit(4);
            }
            fiber.stack = (char*)memory + GUARD_BYTES;
        }
        fiber.state = prepare(fiber.stack, STACK_BYTES, begin);
        fiber.waits_for = nullptr;
        fiber.done = false;
    }
    n_done = 0;
    while (n_done < (uint64_t)n_block_threads) {
        bool went_on = false;
        for (int thread = 0; thread < n_block_threads; thread++) {
            Fiber& fiber = fibers[thread];
            if (fiber.done || (fiber.waits_for && fiber.waits_for->turn == fiber.turn)) continue;
            went_on = true;
            fiber.waits_for = nullptr;
            running.thread = thread;
            running.warp_epoch = warp_epochs[thread / WARP];
            fl_switch(&scheduler, fiber.state);
        }
        if (!went_on) stuck();
    }
}

void run_grid(const FlKernel& kernel, void* const* places, int n_blocks, int n_threads) {
    kernel_of_grid = &kernel;
    places_of_grid = places;
    n_block_threads = n_threads;
    running.inside = true;
    for (int block = 0; block < n_blocks; block++) {
        running.block = (uint32_t)block;
        running.epoch = 0;
        clear_shared();
        run_block();
    }
    running.inside = false;
}
