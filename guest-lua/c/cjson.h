/* What the two halves of library `cjson` share. */
#ifndef CJSON_H
#define CJSON_H

#include "lua.h"

/* Settings of one instance (cjson itself or a result of cjson.new), in the upvalue of its functions. */
typedef struct {
    int sparse_convert, sparse_ratio, sparse_safe;
    int encode_depth, decode_depth;
    int encode_invalid; /* INVALID_... */
    int decode_invalid; /* 0 or 1 */
    int precision;
    int keep_buffer; /* remembered only: the buffer is always kept */
} Settings;

enum { INVALID_OFF, INVALID_ON, INVALID_NULL };

#define MOST_DIGITS 14

static inline Settings *cjson_settings(lua_State *L) {
    return (Settings *)lua_touserdata(L, lua_upvalueindex(1));
}

int cjson_encode(lua_State *L);
int cjson_decode(lua_State *L);

#endif
