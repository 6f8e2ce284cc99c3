// The parts of the emulator, as they see each other.

#pragma once
#include "machine.h"
#include <stdint.h>
#include <stdlib.h>

// Of a kernel.
constexpr int MAX_PARAMETERS = 256;

// ---- fault.cpp: what a kernel did wrong, reported once, as the last thing

// In the order of FaultKind::REPORTED of the driver.
enum class FaultKind : uint8_t {
    OutOfBounds, Misaligned, Uninitialized, Race, SharedOutOfBounds, SharedUninitialized,
    SharedRace, DivergentBarrier, InactiveLane, ReadOnly, Alias, Sanitizer, Undefined, Timeout,
};

// A thread at an instruction.
struct Where {
    uint32_t block, thread;
    uint64_t pc;
};

struct Fault {
    FaultKind kind;
    int32_t parameter = -1;  // of the kernel, where memory is one's
    int64_t at = 0;          // the byte of the parameter's or array's memory
    uint32_t bytes = 0;      // how many are accessed there
    uint64_t extent = 0;     // how many the memory has
    const char* text = "";   // a shared array's name, or what else there is to say
    bool has_other = false;
    Where other = {};        // the thread that it conflicts with
    uintptr_t frame = 0;     // where the thread waits, if it is not the one that runs
};

// Reports a fault of the running thread and ends the process.
[[noreturn]] void fault(const Fault& what);
// Makes crashes of kernels, reports of the address sanitizer and endless loops faults.
void catch_crashes();
// Bounds the processor time of what follows; 0 ends the bound.
void limit_seconds(unsigned seconds);

// ---- threads.cpp: the threads of a block

struct Running {
    uint32_t launch, block;  // launches are numbered from 1
    int thread;
    uint32_t epoch;          // barriers that the block has passed
    uint32_t warp_epoch;     // memory barriers that the thread's warp has passed
    bool inside;             // whether a kernel runs
};
extern Running running;

// Whether a frame may be there: two words of the running thread's stack.
bool on_stack(uintptr_t place);
// Whether an address is just beyond the end of the running thread's stack.
bool near_stack_end(uintptr_t place);
void run_grid(const FlKernel& kernel, void* const* places, int n_blocks, int n_threads);

// ---- memory.cpp: global and shared memory, and who touched it

// The first access of its kind since the last barrier, in a launch. Launch 0 is none.
struct Access {
    uint64_t pc;
    uint32_t launch, block, epoch, warp_epoch;
    uint16_t thread;
    bool several;  // other threads of the block did the same since the last barrier
    bool abroad;   // other blocks did the same in this launch
    bool warps;    // some of the several are of other warps
};

// The last accesses of one element.
struct Cell {
    Access write, read, atomic;
};

struct Buffer {
    char* data;
    uint64_t bytes;
    unsigned granule;   // bytes of an element
    uint8_t* written;   // one an element: whether anyone ever wrote it; null if all are
    Cell* cells;        // null until a kernel can write it
};

// A parameter's memory.
struct View {
    Buffer* buffer;
    uint64_t at, bytes;
    bool writable;
};

Buffer& buffer(uint32_t id);
void make_buffer(uint32_t id, uint64_t bytes, unsigned granule, bool written);
void free_buffer(uint32_t id);
void mark(Buffer& buffer, uint64_t at, uint64_t bytes, bool written);
// The first byte of these that nobody wrote, or UINT64_MAX.
uint64_t first_unwritten(const Buffer& buffer, uint64_t at, uint64_t bytes);
// The parameters of the next launch, and what the kernel gets for the n-th.
void set_views(const View* views, int n_views);
void* pointer_of(int n);
// Shared memory for the blocks of a launch, and for the next block.
void set_shared(unsigned bytes);
void clear_shared();

// ---- commands.cpp: the program around them

void reply(const void* data, size_t bytes);
void end_reply();
// Whether the commands are recorded ones: a debugger is to stop at a fault.
extern bool replaying;
// An instruction as the library that holds it and the place there; no library is UINT32_MAX.
void reply_place(uint64_t pc);
