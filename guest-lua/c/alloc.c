/* The guest's heap: bump allocation with free lists by size class.
   Every run starts from a pristine image, so most blocks are cut fresh from the top and never reused; that touches the fewest pages.
   What every run writes lies together for the same reason: variables, beginning with those here, then the first blocks: Lua's state, its
   table of strings, the globals, and the start of the buffer of replies.
   Lua tells the size of a block when it gives it back, so blocks carry no header. */
#include <string.h>

#include "guest.h"

#define PAGE 65536u
#define GROW (4 * PAGE)

/* Classes: every 8 bytes up to 512, then four to each doubling. */
#define SMALL 512u
#define SMALL_CLASSES (SMALL / 8)
#define CLASSES (SMALL_CLASSES + 4 * 23)

typedef struct Free {
    struct Free *next;
} Free;

extern unsigned char __heap_base;

static _Alignas(HOST_PAGE) struct {
    uintptr_t top;   /* new blocks are cut here ... */
    uintptr_t limit; /* ... up to here: the end of memory, or of a large free block used as a region */
    uintptr_t end;   /* end of the memory this run uses; memory itself may be larger after an earlier run */
    size_t idle;     /* bytes in the free lists of large blocks */
    Free *free[CLASSES];
} heap;

static inline unsigned class_of(size_t size) {
    if (size <= SMALL) return (unsigned)((size + 7) / 8 - 1);
    unsigned last = (unsigned)size - 1;
    unsigned exponent = 31 - (unsigned)__builtin_clz(last); /* at least 9 */
    return SMALL_CLASSES + (exponent - 9) * 4 + ((last >> (exponent - 2)) & 3);
}

static inline size_t class_size(unsigned class) {
    if (class < SMALL_CLASSES) return (class + 1) * 8;
    class -= SMALL_CLASSES;
    return (size_t)(5 + (class & 3)) << (class / 4 + 7);
}

static inline void put(uintptr_t block, unsigned class) {
    Free *node = (Free *)block;
    node->next = heap.free[class];
    heap.free[class] = node;
    if (class >= SMALL_CLASSES) heap.idle += class_size(class);
}

/* Gives a stretch of memory to the free lists, in pieces that fit their class exactly. */
static void put_span(uintptr_t start, size_t size) {
    while (size >= 8) {
        unsigned class = class_of(size);
        if (class_size(class) > size) class--;
        put(start, class);
        start += class_size(class);
        size -= class_size(class);
    }
}

static Free *merge_sorted(Free *a, Free *b) {
    Free *head = NULL, **tail = &head;
    while (a && b) {
        Free **lower = a < b ? &a : &b;
        *tail = *lower;
        tail = &(*lower)->next;
        *lower = *tail;
    }
    *tail = a ? a : b;
    return head;
}

/* Joins large free blocks that touch. A string built up by appending leaves free blocks in every class on its way, and nobody asks for
   those sizes again. Sorting by address: each bin holds a sorted list, bin n about 2^n times as long as bin 0. A block keeps its size
   in its second word. */
static void join(void) {
    Free *bins[24] = {NULL}, *all = NULL;
    for (unsigned class = SMALL_CLASSES; class < CLASSES; class++) {
        Free *node = heap.free[class];
        heap.free[class] = NULL;
        while (node) {
            Free *next = node->next;
            node->next = NULL;
            ((size_t *)node)[1] = class_size(class);
            unsigned bin = 0;
            for (; bin < 23 && bins[bin]; bin++) {
                node = merge_sorted(bins[bin], node);
                bins[bin] = NULL;
            }
            bins[bin] = merge_sorted(bins[bin], node);
            node = next;
        }
    }
    for (unsigned bin = 0; bin < 24; bin++) all = merge_sorted(all, bins[bin]);
    heap.idle = 0;
    while (all) {
        uintptr_t start = (uintptr_t)all, end = start;
        while (all && (uintptr_t)all == end) {
            end += ((size_t *)all)[1];
            all = all->next;
        }
        if (end == heap.top) heap.top = start;
        else put_span(start, end - start);
    }
}

/* A free block of at least `bytes`; a small request gets the largest there is, since it will not be the only one. */
static uintptr_t find_large(size_t bytes, size_t *size) {
    unsigned least = class_of(bytes < 4096 ? 4096 : bytes), found = CLASSES;
    if (bytes < 4096) {
        for (unsigned class = CLASSES; class-- > least && found == CLASSES;) found = heap.free[class] ? class : CLASSES;
    } else {
        for (found = least; found < CLASSES && !heap.free[found];) found++;
    }
    if (found == CLASSES) return 0;
    Free *block = heap.free[found];
    heap.free[found] = block->next;
    *size = class_size(found);
    heap.idle -= *size;
    return (uintptr_t)block;
}

/* Moves the region new blocks are cut from, so that `bytes` fit. Memory that an earlier run grew is used before asking for more. */
static __attribute__((noinline)) int refill(size_t bytes) {
    if (!heap.end) {
        heap.top = ((uintptr_t)&__heap_base + 15) & ~(uintptr_t)15;
        heap.limit = heap.end = __builtin_wasm_memory_size(0) * PAGE;
    }
    if (heap.idle > heap.end / 4) {
        join();
        if (bytes <= heap.limit - heap.top) return 1;
    }
    size_t size;
    uintptr_t block = heap.idle ? find_large(bytes, &size) : 0;
    if (block) {
        put_span(heap.top, heap.limit - heap.top);
        heap.top = block;
        heap.limit = block + size;
        return 1;
    }
    if (bytes <= heap.limit - heap.top) return 1;
    uintptr_t start = heap.limit == heap.end ? heap.top : heap.end, have = __builtin_wasm_memory_size(0) * PAGE;
    if (bytes > 0xfff00000u - start) return 0;
    /* the same steps whatever an earlier run grew, so that addresses and exhaustion do not depend on it */
    uintptr_t least = (start + bytes + PAGE - 1) / PAGE * PAGE, wanted = heap.end + (least - heap.end + GROW - 1) / GROW * GROW;
    if (wanted > have && __builtin_wasm_memory_grow(0, (wanted - have) / PAGE) == (size_t)-1) {
        wanted = least;
        if (wanted > have && __builtin_wasm_memory_grow(0, (wanted - have) / PAGE) == (size_t)-1) return 0;
    }
    if (start != heap.top) put_span(heap.top, heap.limit - heap.top);
    heap.top = start;
    heap.limit = heap.end = wanted;
    return 1;
}

static inline void *take(size_t size) {
    if (size > 0x70000000u) return NULL;
    unsigned class = class_of(size);
    size_t bytes = class_size(class);
    Free *block = heap.free[class];
    if (block) {
        heap.free[class] = block->next;
        if (class >= SMALL_CLASSES) heap.idle -= bytes;
        return block;
    }
    if (bytes > heap.limit - heap.top && !refill(bytes)) return NULL;
    void *fresh = (void *)heap.top;
    heap.top += bytes;
    return fresh;
}

static inline void give(void *block, size_t size) {
    unsigned class = class_of(size);
    if ((uintptr_t)block + class_size(class) == heap.top) heap.top = (uintptr_t)block;
    else put((uintptr_t)block, class);
}

void *guest_realloc(void *block, size_t old_size, size_t new_size) {
    if (!block || !old_size) return new_size ? take(new_size) : NULL;
    if (!new_size) {
        give(block, old_size);
        return NULL;
    }
    if (new_size > 0x70000000u) return NULL;
    unsigned old_class = class_of(old_size), new_class = class_of(new_size);
    if (old_class == new_class) return block;
    /* the last block moves its end */
    if ((uintptr_t)block + class_size(old_class) == heap.top && class_size(new_class) <= heap.limit - (uintptr_t)block) {
        heap.top = (uintptr_t)block + class_size(new_class);
        return block;
    }
    void *moved = take(new_size);
    if (!moved) return new_size < old_size ? block : NULL; /* Lua relies on shrinking */
    memcpy(moved, block, old_size < new_size ? old_size : new_size);
    give(block, old_size);
    return moved;
}

/* The free blocks of what is there are forgotten: they lie on many pages. New ones begin on a page of their own. */
void guest_heap_settle(void) {
    memset(heap.free, 0, sizeof heap.free);
    heap.idle = 0;
    heap.top = (heap.top + HOST_PAGE - 1) & ~(uintptr_t)(HOST_PAGE - 1);
}

size_t guest_heap_span(void) { return heap.end ? heap.limit - (uintptr_t)&__heap_base : 0; }

void guest_heap_clear_free(void) {
    join();
    for (unsigned class = SMALL_CLASSES; class < CLASSES; class++) {
        for (Free *node = heap.free[class]; node; node = node->next) {
            memset(node + 1, 0, class_size(class) - sizeof *node);
        }
    }
    memset((void *)heap.top, 0, heap.limit - heap.top);
}

void *guest_lua_alloc(void *ud, void *block, size_t old_size, size_t new_size) {
    (void)ud;
    return guest_realloc(block, old_size, new_size);
}

/* malloc for libraries; replaces libc's, which would bring a second heap. The size is kept in front of the block. */
void *malloc(size_t size) {
    if (size > 0x6fffffffu) return NULL;
    size_t *block = take(size + 8);
    if (!block) return NULL;
    *block = size + 8;
    return block + 2;
}

void free(void *block) {
    if (block) give((size_t *)block - 2, ((size_t *)block)[-2]);
}

void *realloc(void *block, size_t size) {
    if (!block) return malloc(size);
    if (size > 0x6fffffffu) return NULL;
    size_t *old = (size_t *)block - 2;
    size_t *moved = guest_realloc(old, *old, size + 8);
    if (!moved) return NULL;
    *moved = size + 8;
    return moved + 2;
}

void *calloc(size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
    void *block = malloc(bytes);
    return block ? memset(block, 0, bytes) : NULL;
}
