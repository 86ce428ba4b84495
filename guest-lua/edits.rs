//! What build.rs changes in Lua's own files, as (file, text that must occur exactly once, new text).

/// All edits, applied in this order.
pub const EDITS: &[(&str, &str, &str)] = &[
    // Numbers behave as on 64-bit x86, where Redis runs: a 64-bit lua_Integer, and conversions that never trap.
    ("luaconf.h", "#define LUA_INTEGER\tptrdiff_t", "#include \"number.h\"\n#define LUA_INTEGER\tlong long"),
    (
        "luaconf.h",
        "#define lua_number2int(i,d)\t((i)=(int)(d))",
        "#define lua_number2int(i,d)\t((i)=guest_d2i(d))",
    ),
    ("luaconf.h", "((i)=(lua_Integer)(d))", "((i)=guest_d2ll(d))"),
    ("luaconf.h", "#define LUA_INTFRMLEN\t\t\"l\"\n", "#define LUA_INTFRMLEN\t\t\"ll\"\n"),
    ("luaconf.h", "sprintf((s), LUA_NUMBER_FMT, (n))", "guest_number_text((s), (n), 14)"),
    ("luaconf.h", "strtod((s), (p))", "guest_strtod((s), (p))"),
    ("lstrlib.c", "#include \"lualib.h\"\n", "#include \"lualib.h\"\n#define ptrdiff_t lua_Integer\n"),
    ("lstrlib.c", "(size_t)(init) > l1", "init > (ptrdiff_t)l1"),
    ("lstrlib.c", "if ((size_t)pose > l) pose", "if (pose > (ptrdiff_t)l) pose"),
    ("lstrlib.c", "    ptrdiff_t len;\n", "    int len;\n"),
    ("lstrlib.c", "(LUA_INTFRM_T)luaL_checknumber(L, arg)", "guest_d2ll(luaL_checknumber(L, arg))"),
    ("lstrlib.c", "(unsigned LUA_INTFRM_T)luaL_checknumber(L, arg)", "guest_d2ull(luaL_checknumber(L, arg))"),
    ("lstrlib.c", "(int)luaL_checknumber(L, arg)", "guest_d2i(luaL_checknumber(L, arg))"),
    ("lbaselib.c", "unsigned long n;\n", "unsigned long long n;\n"),
    ("lbaselib.c", "strtoul(", "guest_strtoull("),
    ("lobject.c", "strtoul(", "guest_strtoull("),
    // Redis has no trace of Lua 5.0's nesting long strings.
    ("luaconf.h", "#define LUA_COMPAT_LSTR\t\t1\n", ""),
    // Read-only tables, as Redis has them; the mark is the one free bit of every collectable object.
    (
        "lgc.h",
        "#define SFIXEDBIT\t6\n",
        "#define SFIXEDBIT\t6\n#define READONLYBIT\t7\n#define isreadonly(h)\ttestbit((h)->marked, READONLYBIT)\n",
    ),
    (
        "lvm.c",
        "TValue *oldval = luaH_set(L, h, key); /* do a primitive set */",
        "TValue *oldval;\n      if (isreadonly(h)) luaG_runerror(L, \"Attempt to modify a readonly table\");\n      oldval = luaH_set(L, h, key); /* do a primitive set */",
    ),
    (
        "lapi.c",
        "setobj2t(L, luaH_set(L, hvalue(t), L->top-2), L->top-1);",
        "if (isreadonly(hvalue(t))) luaG_runerror(L, \"Attempt to modify a readonly table\");\n  setobj2t(L, luaH_set(L, hvalue(t), L->top-2), L->top-1);",
    ),
    (
        "lapi.c",
        "setobj2t(L, luaH_setnum(L, hvalue(o), n), L->top-1);",
        "if (isreadonly(hvalue(o))) luaG_runerror(L, \"Attempt to modify a readonly table\");\n  setobj2t(L, luaH_setnum(L, hvalue(o), n), L->top-1);",
    ),
    (
        "lapi.c",
        "      hvalue(obj)->metatable = mt;\n",
        "      if (isreadonly(hvalue(obj))) luaG_runerror(L, \"Attempt to modify a readonly table\");\n      hvalue(obj)->metatable = mt;\n",
    ),
    // The table of strings and the globals have room from the start: they lie together then, where c/alloc.c wants them, and
    // no short script rehashes all strings.
    (
        "lstate.c",
        "sethvalue(L, gt(L), luaH_new(L, 0, 2));",
        "luaS_resize(L, MINSTRTABSIZE);\n  sethvalue(L, gt(L), luaH_new(L, 0, 64));",
    ),
    ("lstate.c", "  luaS_resize(L, MINSTRTABSIZE);  /* initial size of string table */\n", ""),
    ("llimits.h", "#define MINSTRTABSIZE\t32", "#define MINSTRTABSIZE\t512"),
    // Fields that are there are read and overwritten without leaving the interpreter's loop: 15 % of the time of
    // a script that calls Redis went into finding `redis`, `call` and `KEYS`.
    (
        "lvm.c",
        "void luaV_execute (lua_State *L, int nexeccalls) {",
        "#include \"field.h\"\n\nvoid luaV_execute (lua_State *L, int nexeccalls) {",
    ),
    ("lvm.c", "Protect(luaV_gettable(L, &g, rb, ra));", "GETFIELD(&g, rb, ra);"),
    ("lvm.c", "Protect(luaV_gettable(L, RB(i), RKC(i), ra));", "GETFIELD(RB(i), RKC(i), ra);"),
    ("lvm.c", "Protect(luaV_gettable(L, rb, RKC(i), ra));", "GETFIELD(rb, RKC(i), ra);"),
    ("lvm.c", "Protect(luaV_settable(L, ra, RKB(i), RKC(i)));", "SETFIELD(ra, RKB(i), RKC(i));"),
    // A step of ipairs without a call: a twentieth of the time of a script that loops around short calls of Redis.
    (
        "lvm.c",
        "setobjs2s(L, cb+2, ra+2);",
        "if (!ipairs_step(ra, GETARG_C(i))) {\n        setobjs2s(L, cb+2, ra+2);",
    ),
    (
        "lvm.c",
        "cb = RA(i) + 3;  /* previous call may change the stack */\n",
        "cb = RA(i) + 3;  /* previous call may change the stack */\n        }\n",
    ),
    // Keys that move when a table grows are not in its new hash part: no need to look for them there. With the conversion below
    // and c/field.h, a third of the time of a script that fills a table.
    (
        "ltable.c",
        "  return hashmod(t, a[0]);\n}\n\n\n\n/*\n** returns the `main' position",
        "  return gnode(t, digit_sum(a[0], t->lsizenode));\n}\n\n\n\n/*\n** returns the `main' position",
    ),
    (
        "ltable.c",
        "static Node *hashnum (const Table *t, lua_Number n) {",
        "static Node *hashnum (const Table *t, lua_Number n);\n\n/* The remainder by 2^bits - 1, which is that of the sum of the digits; 0 for no bits. */\nstatic inline unsigned int digit_sum (unsigned int n, int bits) {\n  unsigned int most = (1u << bits) - 1;\n  if (most == 0) return 0;\n  while (n > most) n = (n & most) + (n >> bits);\n  return n == most ? 0 : n;\n}\n\nstatic Node *hashnum (const Table *t, lua_Number n) {",
    ),
    ("ltable.c", "luaH_set(L, t, key2tval(old))", "absent_key(L, t, key2tval(old))"),
    (
        "ltable.c",
        "static void resize (lua_State *L, Table *t,",
        "static TValue *newkey (lua_State *L, Table *t, const TValue *key);\n\n/* luaH_set for a key that the table does not have. */\nstatic TValue *absent_key (lua_State *L, Table *t, const TValue *key) {\n  unsigned int index = cast(unsigned int, arrayindex(key)) - 1;\n  return index < cast(unsigned int, t->sizearray) ? &t->array[index] : newkey(L, t, key);\n}\n\n\nstatic void resize (lua_State *L, Table *t,",
    ),
    (
        "ltable.c",
        "    lua_number2int(k, n);\n    if (luai_numeq(cast_num(k), n))",
        "    k = guest_same_int(n);\n    if (luai_numeq(cast_num(k), n))",
    ),
    (
        "ltable.c",
        "      lua_number2int(k, n);\n      if (luai_numeq(cast_num(k), nvalue(key)))",
        "      k = guest_same_int(n);\n      if (luai_numeq(cast_num(k), nvalue(key)))",
    ),
    // Ten thousand strings with few hashes: an eighth of the time that comparing them with memcmp took.
    (
        "lstring.c",
        "TString *luaS_newlstr (lua_State *L",
        "#include \"equal.h\"\n\nTString *luaS_newlstr (lua_State *L",
    ),
    (
        "lstring.c",
        "if (ts->tsv.len == l && (memcmp(str, getstr(ts), l) == 0)) {",
        "if (ts->tsv.hash == h && ts->tsv.len == l && same_bytes(str, getstr(ts), l)) {",
    ),
    // What a sandbox has no use for: files, the console, the process; and bytecode, which Lua does not verify well.
    ("lbaselib.c", "  {\"dofile\", luaB_dofile},\n", ""),
    ("lbaselib.c", "  {\"loadfile\", luaB_loadfile},\n", ""),
    ("lbaselib.c", "  {\"print\", luaB_print},\n", ""),
    ("lmathlib.c", "  {\"random\",     math_random},\n", ""),
    ("lmathlib.c", "  {\"randomseed\", math_randomseed},\n", ""),
    ("ldo.c", "exit(EXIT_FAILURE);", "__builtin_trap();"),
    ("ldo.c", "int c = luaZ_lookahead(p->z);\n", "luaZ_lookahead(p->z);\n"),
    ("ldo.c", "((c == LUA_SIGNATURE[0]) ? luaU_undump : luaY_parser)", "luaY_parser"),
    // CVE-2025-49844: the chunk's name was not anchored while the parser could collect garbage.
    (
        "lparser.c",
        "luaX_setinput(L, &lexstate, z, luaS_new(L, name));",
        "TString *chunkname = luaS_new(L, name);\n  setsvalue2s(L, L->top, chunkname);\n  incr_top(L);\n  luaX_setinput(L, &lexstate, z, chunkname);",
    ),
    (
        "lparser.c",
        "  lua_assert(lexstate.fs == NULL);\n",
        "  lua_assert(lexstate.fs == NULL);\n  L->top--;  /* chunkname */\n",
    ),
    // CVE-2025-46817: the number of results of unpack could wrap.
    (
        "lbaselib.c",
        "n = e - i + 1;  /* number of elements */",
        "n = (unsigned)e - (unsigned)i >= 8000u ? -1 : e - i + 1;  /* number of elements */",
    ),
    (
        "lbaselib.c",
        "while (i++ < e)  /* push arg[i + 1...e] */\n    lua_rawgeti(L, 1, i);",
        "while (i < e)  /* push arg[i + 1...e] */\n    lua_rawgeti(L, 1, ++i);",
    ),
    // CVE-2025-46819: the length of a long bracket could wrap.
    (
        "llex.c",
        "    count++;\n  }\n  return (ls->current == s)",
        "    if (++count > 1000000) luaX_lexerror(ls, \"lexical element too long\", 0);\n  }\n  return (ls->current == s)",
    ),
    // string.rep and table.concat make their results in one piece (c/text.c).
    (
        "lstrlib.c",
        "  luaL_Buffer b;\n  const char *s = luaL_checklstring(L, 1, &l);\n  int n = luaL_checkint(L, 2);\n  luaL_buffinit(L, &b);\n  while (n-- > 0)\n    luaL_addlstring(&b, s, l);\n  luaL_pushresult(&b);\n  return 1;\n",
        "  const char *s = luaL_checklstring(L, 1, &l);\n  int n = luaL_checkint(L, 2);\n  guest_push_repeated(L, s, l, n);\n  return 1;\n",
    ),
    (
        "lstrlib.c",
        "#define ptrdiff_t lua_Integer\n",
        "#define ptrdiff_t lua_Integer\nvoid guest_push_repeated (lua_State *L, const char *s, size_t l, int n);\n",
    ),
    (
        "ltablib.c",
        "  luaL_buffinit(L, &b);\n  for (; i < last; i++) {\n    addfield(L, &b, i);\n    luaL_addlstring(&b, sep, lsep);\n  }\n  if (i == last)  /* add last value (if interval was not empty) */\n    addfield(L, &b, i);\n  luaL_pushresult(&b);\n",
        "  (void)b; (void)addfield;\n  guest_push_joined(L, sep, lsep, i, last);\n",
    ),
    (
        "ltablib.c",
        "#include \"lualib.h\"\n",
        "#include \"lualib.h\"\nvoid guest_push_joined (lua_State *L, const char *separator, size_t length, int i, int last);\n",
    ),
    // Formats without flags, and patterns that are plain texts: printf and the matcher took a third of the time of a script that builds
    // strings.
    (
        "lauxlib.c",
        "  while (l--)\n    luaL_addchar(B, *s++);\n",
        "  if (l <= bufffree(B)) {\n    memcpy(B->p, s, l);\n    B->p += l;\n    return;\n  }\n  while (l--)\n    luaL_addchar(B, *s++);\n",
    ),
    (
        "lstrlib.c",
        "static int str_format (lua_State *L) {",
        "/* An item without flags, width and precision. */\nstatic void add_plain (lua_State *L, luaL_Buffer *b, int arg, int kind) {\n  if (kind == 'd') {\n    char digits[24];\n    luaL_addlstring(b, digits, guest_integer_text(digits, guest_d2ll(luaL_checknumber(L, arg))));\n  }\n  else {\n    size_t l;\n    const char *s = luaL_checklstring(L, arg, &l);\n    luaL_addlstring(b, s, l < 100 ? strlen(s) : l);  /* as printf has it */\n  }\n}\n\n\nstatic int str_format (lua_State *L) {",
    ),
    (
        "lstrlib.c",
        "        luaL_argerror(L, arg, \"no value\");\n",
        "        luaL_argerror(L, arg, \"no value\");\n      if (*strfrmt == 'd' || *strfrmt == 's') {\n        add_plain(L, &b, arg, *strfrmt++);\n        continue;\n      }\n",
    ),
    (
        "lstrlib.c",
        "static int str_gsub (lua_State *L) {",
        "/* gsub of a text by a text. */\nstatic int replace_plain (lua_State *L, const char *src, size_t srcl, const char *p, int max_s) {\n  size_t lp = strlen(p), lr;\n  const char *new = lua_tolstring(L, 3, &lr), *end = src + srcl, *found;\n  int n = 0;\n  luaL_Buffer b;\n  luaL_buffinit(L, &b);\n  while (n < max_s && (found = lmemfind(src, end - src, p, lp)) != NULL) {\n    luaL_addlstring(&b, src, found - src);\n    luaL_addlstring(&b, new, lr);\n    src = found + lp;\n    n++;\n  }\n  if (n == 0) lua_pushvalue(L, 1);\n  else {\n    luaL_addlstring(&b, src, end - src);\n    luaL_pushresult(&b);\n  }\n  lua_pushinteger(L, n);\n  return 2;\n}\n\n\nstatic int str_gsub (lua_State *L) {",
    ),
    (
        "lstrlib.c",
        "                      \"string/function/table expected\");\n  luaL_buffinit(L, &b);\n",
        "                      \"string/function/table expected\");\n  if (tr == LUA_TSTRING && !anchor && *p && !strpbrk(p, SPECIALS \")\") && !strchr(lua_tostring(L, 3), L_ESC)\n      && strlen(lua_tostring(L, 3)) == lua_strlen(L, 3))\n    return replace_plain(L, src, srcl, p, max_s);\n  luaL_buffinit(L, &b);\n",
    ),
    // The C stack is small: keep buffers small, and turn its exhaustion into an error before it becomes a trap.
    ("luaconf.h", "#define LUAL_BUFFERSIZE\t\tBUFSIZ", "#define LUAL_BUFFERSIZE\t\t256"),
    (
        "ldo.c",
        "if (++L->nCcalls >= LUAI_MAXCCALLS) {",
        "guest_check_stack(L);\n  if (++L->nCcalls >= LUAI_MAXCCALLS) {",
    ),
    (
        "ldo.c",
        "void luaD_call (lua_State *L,",
        "/* The first time the stack runs low is an error that scripts can catch; below the reserve for handling it, it is fatal. */\nstatic void guest_check_stack (lua_State *L) {\n  static int low = 0;\n  unsigned sp = guest_stack_pointer();\n  if (sp >= GUEST_STACK_LOW) low = 0;\n  else if (!low) { low = 1; luaG_runerror(L, \"C stack overflow\"); }\n  else if (sp < GUEST_STACK_RESERVE) luaD_throw(L, LUA_ERRERR);\n}\n\n\nvoid luaD_call (lua_State *L,",
    ),
    ("lparser.c", "static void body (", "__attribute__((noinline)) static void body ("),
    ("ldo.c", "int luaD_rawrunprotected (", "__attribute__((noinline)) int luaD_rawrunprotected ("),
    (
        "ldo.c",
        "if (L->nCcalls >= LUAI_MAXCCALLS)\n    return resume_error",
        "if (L->nCcalls >= LUAI_MAXCCALLS || guest_stack_pointer() < GUEST_STACK_LOW)\n    return resume_error",
    ),
    (
        "luaconf.h",
        "#else\n/* default handling with long jumps */\n#define LUAI_THROW(L,c)\tlongjmp((c)->b, 1)\n#define LUAI_TRY(L,c,a)\tif (setjmp((c)->b) == 0) { a }\n#define luai_jmpbuf\tjmp_buf\n",
        "#else\n/* the compiler's setjmp needs 16 bytes; libc's jmp_buf has 160 */\n#define LUAI_THROW(L,c)\tlongjmp((void *)&(c)->b, 1)\n#define LUAI_TRY(L,c,a)\tif (setjmp((void *)&(c)->b) == 0) { a }\ntypedef struct { unsigned long words[8]; } luai_jmpbuf;\n",
    ),
    (
        "lparser.c",
        "if (++ls->L->nCcalls > LUAI_MAXCCALLS)",
        "if (++ls->L->nCcalls > LUAI_MAXCCALLS || guest_stack_pointer() < GUEST_STACK_LOW)",
    ),
    (
        "lstrlib.c",
        "  int level;  /* total number of captures",
        "  int depth;  /* nesting of `match' */\n  int level;  /* total number of captures",
    ),
    (
        "lstrlib.c",
        "static const char *match (MatchState *ms, const char *s, const char *p) {\n  init:",
        "static const char *do_match (MatchState *ms, const char *s, const char *p);\n\nstatic const char *match (MatchState *ms, const char *s, const char *p) {\n  if (++ms->depth > GUEST_MATCH_DEPTH)\n    luaL_error(ms->L, \"pattern too complex\");\n  s = do_match(ms, s, p);\n  ms->depth--;\n  return s;\n}\n\nstatic const char *do_match (MatchState *ms, const char *s, const char *p) {\n  init:",
    ),
    (
        "lstrlib.c",
        "    ms.L = L;\n    ms.src_init = s;\n    ms.src_end = s+l1;\n",
        "    ms.L = L;\n    ms.depth = 0;\n    ms.src_init = s;\n    ms.src_end = s+l1;\n",
    ),
    (
        "lstrlib.c",
        "  ms.L = L;\n  ms.src_init = s;\n  ms.src_end = s+ls;\n",
        "  ms.L = L;\n  ms.depth = 0;\n  ms.src_init = s;\n  ms.src_end = s+ls;\n",
    ),
    (
        "lstrlib.c",
        "  ms.L = L;\n  ms.src_init = src;\n  ms.src_end = src+srcl;\n",
        "  ms.L = L;\n  ms.depth = 0;\n  ms.src_init = src;\n  ms.src_end = src+srcl;\n",
    ),
    // There is no way to set a hook, and so no need to look for one at every instruction.
    ("lua.h", "#define LUA_MASKCALL\t(1 << LUA_HOOKCALL)", "#define LUA_MASKCALL\t0"),
    ("lua.h", "#define LUA_MASKRET\t(1 << LUA_HOOKRET)", "#define LUA_MASKRET\t0"),
    ("lua.h", "#define LUA_MASKLINE\t(1 << LUA_HOOKLINE)", "#define LUA_MASKLINE\t0"),
    ("lua.h", "#define LUA_MASKCOUNT\t(1 << LUA_HOOKCOUNT)", "#define LUA_MASKCOUNT\t0"),
    // What is called is known: it need not be looked up once more where it was just put.
    ("ldo.c", "n = (*curr_func(L)->c.f)(L);", "n = (*((Closure *)cl)->c.f)(L);"),
    // Compiled functions (c/tier.h): a function knows whether it is compiled, and where it is called or jumps back it is entered.
    (
        "lobject.h",
        "  lu_byte maxstacksize;\n} Proto;",
        "  lu_byte maxstacksize;\n  unsigned compiled;  /* number of the compiled function; 0: not compiled */\n} Proto;",
    ),
    ("lfunc.c", "  f->maxstacksize = 0;\n", "  f->maxstacksize = 0;\n  f->compiled = 0;\n"),
    (
        "lstate.h",
        "  GCObject *gclist;\n  struct lua_longjmp",
        "  CallInfo *tier_ci;  /* compiled functions are entered while `ci' is below */\n  GCObject *gclist;\n  struct lua_longjmp",
    ),
    (
        "lstate.h",
        "#define G(L)\t(L->l_G)\n",
        "#define G(L)\t(L->l_G)\n\n#define tier_limit(L) ((L)->tier_ci = (L) != G(L)->mainthread ? NULL : \\\n  (L)->base_ci + ((L)->size_ci > TIER_DEPTH ? TIER_DEPTH : (L)->size_ci - 1))\n",
    ),
    (
        "ldo.c",
        "  L->end_ci = L->base_ci + L->size_ci - 1;\n",
        "  L->end_ci = L->base_ci + L->size_ci - 1;\n  tier_limit(L);\n",
    ),
    (
        "lstate.c",
        "  L1->end_ci = L1->base_ci + L1->size_ci - 1;\n",
        "  L1->end_ci = L1->base_ci + L1->size_ci - 1;\n  tier_limit(L1);\n",
    ),
    ("lvm.c", "#include \"field.h\"\n", "#include \"field.h\"\n#include \"tier.h\"\n"),
    ("lvm.c", "switch (luaD_precall(L, ra, nresults)) {", "switch (tier_precall(L, ra, nresults)) {"),
    (
        "ldo.c",
        "if (luaD_precall(L, func, nResults) == PCRLUA)",
        "if (tier_precall(L, func, nResults) == PCRLUA)",
    ),
    (
        "ldo.c",
        "/* The first time the stack runs low",
        "int tier_precall (lua_State *L, StkId func, int results);\n\n/* The first time the stack runs low",
    ),
    (
        "lvm.c",
        "case OP_JMP: {\n        dojump(L, pc, GETARG_sBx(i));\n",
        "case OP_JMP: {\n        dojump(L, pc, GETARG_sBx(i));\n        if (GETARG_sBx(i) < 0) TIER_LOOP(pc)\n",
    ),
    (
        "lvm.c",
        "        Protect(\n          if (equalobj(L, rb, rc) == GETARG_A(i))\n            dojump(L, pc, GETARG_sBx(*pc));\n        )\n        pc++;\n",
        "        int holds;\n        Protect(holds = equalobj(L, rb, rc) == GETARG_A(i))\n        TIER_JUMP(holds)\n",
    ),
    (
        "lvm.c",
        "        Protect(\n          if (luaV_lessthan(L, RKB(i), RKC(i)) == GETARG_A(i))\n            dojump(L, pc, GETARG_sBx(*pc));\n        )\n        pc++;\n",
        "        int holds;\n        Protect(holds = luaV_lessthan(L, RKB(i), RKC(i)) == GETARG_A(i))\n        TIER_JUMP(holds)\n",
    ),
    (
        "lvm.c",
        "        Protect(\n          if (lessequal(L, RKB(i), RKC(i)) == GETARG_A(i))\n            dojump(L, pc, GETARG_sBx(*pc));\n        )\n        pc++;\n",
        "        int holds;\n        Protect(holds = lessequal(L, RKB(i), RKC(i)) == GETARG_A(i))\n        TIER_JUMP(holds)\n",
    ),
    (
        "lvm.c",
        "        if (l_isfalse(ra) != GETARG_C(i))\n          dojump(L, pc, GETARG_sBx(*pc));\n        pc++;\n",
        "        TIER_JUMP(l_isfalse(ra) != GETARG_C(i))\n",
    ),
    (
        "lvm.c",
        "setnvalue(ra+3, idx);  /* ...and external index */\n",
        "setnvalue(ra+3, idx);  /* ...and external index */\n          TIER_LOOP(pc)\n",
    ),
    (
        "lvm.c",
        "dojump(L, pc, GETARG_sBx(*pc));  /* jump back */\n",
        "dojump(L, pc, GETARG_sBx(*pc) + 1);  /* jump back */\n          TIER_LOOP(pc)\n          continue;\n",
    ),
    // Garbage collection: scripts are short, and a cycle touches every page, so a new cycle needs some garbage to pay for it.
    ("lgc.c", "(g->estimate/100) * g->gcpause)", "(g->estimate/100) * g->gcpause + GC_SLACK)"),
];
