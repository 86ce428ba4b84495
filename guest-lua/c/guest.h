/* What the parts of the guest share. */
#ifndef GUEST_H
#define GUEST_H

#include <stddef.h>
#include <stdint.h>

#include "abi.h"
#include "lua.h"

#define IMPORT(name) __attribute__((import_module("moonshard"), import_name(name)))
#define EXPORT(name) __attribute__((export_name(name), visibility("default")))

/* One argument of a command, as the import `call` reads it. */
typedef struct {
    uint32_t ptr;
    uint32_t len;
} Arg;

IMPORT("call") int32_t host_call(const Arg *argv, uint32_t argc, char *reply, uint32_t capacity, uint32_t flags);
IMPORT("fetch") int32_t host_fetch(char *reply, uint32_t capacity);
IMPORT("log") void host_log(uint32_t level, const char *text, uint32_t len);
IMPORT("frames") int32_t host_frames(const char *frames, uint32_t len);

/* alloc.c: sizes are given back by the caller, so blocks have no headers. */
void *guest_realloc(void *block, size_t old_size, size_t new_size);
void *guest_lua_alloc(void *ud, void *block, size_t old_size, size_t new_size);
/* From now on nothing of what there is on the heap is used again, so that runs write fewer pages. */
void guest_heap_settle(void);
/* Bytes that this run's heap spans. */
size_t guest_heap_span(void);
/* Joins the free blocks and fills them with zeros, so that an image of the memory does not contain them. */
void guest_heap_clear_free(void);

/* reply.c */
typedef struct {
    char *data;
    uint32_t len;
    uint32_t cap;
} Buffer;
extern char *reply_static;
void reply_init(lua_State *L);
/* Pushes one reply (the bytes are the host's, hence well formed); returns where the next one begins. */
const char *reply_push(lua_State *L, const char *p, int resp3);
/* Writes the value on top of the stack as RESP3; `resp3` is the script's own setresp. */
void reply_write(Buffer *out, lua_State *L, int resp3);
void buffer_add(Buffer *out, const char *data, size_t len);
/* Adds text up to its NUL with CR and LF made blanks; trailing ones are dropped if `trim`. */
void buffer_add_line(Buffer *out, const char *text, int trim);

/* redis.c */
int luaopen_redis(lua_State *L);
/* Pushes {err=...} for "-CODE message" or "message". */
void redis_push_error(lua_State *L, const char *text, size_t len);
/* Raises such an error. */
int redis_raise(lua_State *L, const char *text);
extern int redis_resp;

/* frames.c */
/* Whether the host wants to know which functions lead to a call. */
extern int frames_wanted;
/* Tells the host that. */
void frames_tell(lua_State *L);

/* sandbox.c */
void sandbox_open(lua_State *L);
int sandbox_error_handler(lua_State *L);
/* Sets a global although the globals are read-only; pops the value. */
void sandbox_set_global(lua_State *L, const char *name);
/* Makes it an error to read what the table on top does not have. */
void sandbox_refuse_unknown(lua_State *L);
/* Marks the table on top, its metatable and all tables in it, or only itself. */
void sandbox_make_readonly(lua_State *L);
void sandbox_make_one_readonly(lua_State *L);
/* Takes away what scripts have and functions have not. */
void sandbox_forget_scripts(lua_State *L);
extern double sandbox_clock;

/* library.c */
/* Prepares the state for a library's chunk; leaves one value on the stack, which `library_end` takes. */
void library_begin(lua_State *L);
/* The chunk has ended without an error; pushes the list of [name, description or false, flags]. */
void library_end(lua_State *L);
/* Pushes the function that is registered under the name at this place of the stack. */
void library_push_function(lua_State *L, int name);

/* random.c */
void random_open(lua_State *L);
void random_seed(int32_t seed);

/* sha1.c: 40 hex digits, no NUL. */
void sha1_hex(char *out, const char *data, size_t len);

#endif
