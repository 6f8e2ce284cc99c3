#include "emulator.h"
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

// Frames of a fault's report, innermost first.
constexpr int MAX_FRAMES = 24;

static void write_fault(const Fault& what, uint64_t pc, uintptr_t frame) {
    uint64_t frames[MAX_FRAMES];
    uint32_t n_frames = 0;
    if (pc) frames[n_frames++] = pc;
    // Frame pointers: each frame holds the caller's frame and the return address. A fiber's first
    // frame has none before it.
    while (frame % 8 == 0 && n_frames < MAX_FRAMES && running.inside && on_stack(frame)) {
        const uintptr_t* place = (const uintptr_t*)frame;
        if (!place[1]) break;
        frames[n_frames++] = place[1] - 1;  // in the call, not behind it
        if (place[0] <= frame) break;
        frame = place[0];
    }
    if (replaying) {
        fprintf(stderr, "fault in block %u, thread %d %s\n", running.block, running.thread, what.text);
        signal(SIGTRAP, SIG_DFL);
        raise(SIGTRAP);
        _exit(3);
    }
    const uint8_t tag = 1;
    const uint32_t text_bytes = (uint32_t)strlen(what.text);
    const uint8_t has_other = what.has_other;
    reply(&tag, 1);
    reply(&what.kind, 1);
    reply(&running.block, 4);
    reply(&running.thread, 4);
    reply(&what.parameter, 4);
    reply(&what.at, 8);
    reply(&what.bytes, 4);
    reply(&what.extent, 8);
    reply(&has_other, 1);
    reply(&what.other.block, 4);
    reply(&what.other.thread, 4);
    reply_place(what.other.pc);
    reply(&n_frames, 4);
    for (uint32_t i = 0; i < n_frames; i++) reply_place(frames[i]);
    reply(&text_bytes, 4);
    reply(what.text, text_bytes);
    end_reply();
    _exit(3);
}

void fault(const Fault& what) {
    const uintptr_t frame = what.frame ? what.frame : (uintptr_t)__builtin_frame_address(0);
    write_fault(what, 0, frame);
    __builtin_unreachable();
}

static void on_signal(int number, siginfo_t* info, void* context) {
    uint64_t pc = 0;
    uintptr_t frame = 0;
#if defined(__x86_64__)
    pc = (uint64_t)((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP];
    frame = (uintptr_t)((ucontext_t*)context)->uc_mcontext.gregs[REG_RBP];
#elif defined(__aarch64__)
    pc = ((ucontext_t*)context)->uc_mcontext.pc;
    frame = ((ucontext_t*)context)->uc_mcontext.regs[29];
#endif
    // A crash outside of kernels is the emulator's own.
    if (!running.inside) {
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    Fault what = {FaultKind::Undefined};
    switch (number) {
        case SIGSEGV:
        case SIGBUS:
            what.text = near_stack_end((uintptr_t)info->si_addr)
                ? "local variables take more than a thread's stack has"
                : "memory was accessed that no helper function gave out";
            break;
        case SIGFPE:
        case SIGILL:
        case SIGTRAP:
            what.text = "undefined arithmetic: a division by zero, an index of a local array beyond its "
                        "end, a signed overflow, or a shift by the number of bits or more";
            break;
        default:
            what.kind = FaultKind::Timeout;
            what.text = "it took more processor time than the limit of a launch";
            break;
    }
    write_fault(what, pc, frame);
}

// With the address sanitizer these exist, and its reports become faults.
extern "C" __attribute__((weak)) void __asan_set_error_report_callback(void (*)(const char*));
extern "C" __attribute__((weak)) void* __asan_get_report_pc();
extern "C" __attribute__((weak)) void* __asan_get_report_bp();
extern "C" __attribute__((weak)) const char* __asan_get_report_description();

static void on_report(const char* report) {
    if (!running.inside) return;
    Fault what = {FaultKind::Sanitizer};
    what.text = __asan_get_report_description ? __asan_get_report_description() : report;
    const uint64_t pc = __asan_get_report_pc ? (uint64_t)__asan_get_report_pc() : 0;
    const uintptr_t frame = __asan_get_report_bp ? (uintptr_t)__asan_get_report_bp() : 0;
    write_fault(what, pc, frame);
}

void catch_crashes() {
    // A kernel's stack may be what overflowed.
    const size_t bytes = 1 << 16;
    stack_t stack = {};
    stack.ss_sp = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack.ss_size = bytes;
    if (stack.ss_sp != MAP_FAILED) sigaltstack(&stack, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGPROF}) {
        sigaction(number, &action, nullptr);
    }
    if (__asan_set_error_report_callback) __asan_set_error_report_callback(on_report);
}

void limit_seconds(unsigned seconds) {
    const itimerval limit = {{0, 0}, {(time_t)seconds, 0}};
    setitimer(ITIMER_PROF, &limit, nullptr);
}
