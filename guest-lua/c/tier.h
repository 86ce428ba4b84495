/* What compiled functions of a script (crate script, folder tier) need of the interpreter, and how the interpreter enters them.
   Included by Lua's lvm.c alone, whose functions do the work.

   A compiled function works on the same stack and call records as the interpreter. What it does not do itself it asks for here, so that
   errors are raised with the same texts, and garbage is collected at the same points. A single instruction is named by `pc`, the
   address behind it, as savedpc is. */
#ifndef GUEST_TIER_H
#define GUEST_TIER_H

#include "abi.h"

#define TIER(name) __attribute__((export_name("tier_" #name), visibility("default")))

/* The layout that crate script relies on. */
#define AT(type, field, place) _Static_assert(offsetof(type, field) == (place), #type "." #field)
AT(lua_State, top, STATE_TOP);
AT(lua_State, base, STATE_BASE);
AT(lua_State, l_G, STATE_GLOBAL);
AT(lua_State, ci, STATE_CI);
AT(lua_State, savedpc, STATE_SAVEDPC);
AT(lua_State, stack_last, STATE_STACK_LAST);
AT(lua_State, tier_ci, STATE_TIER_CI);
AT(lua_State, openupval, STATE_OPEN_UPVALUES);
AT(global_State, rootgc, GLOBAL_ROOTGC);
AT(CallInfo, base, CALL_BASE);
AT(CallInfo, func, CALL_FUNC);
AT(CallInfo, top, CALL_TOP);
AT(CallInfo, savedpc, CALL_SAVEDPC);
AT(CallInfo, nresults, CALL_RESULTS);
AT(CallInfo, tailcalls, CALL_TAILCALLS);
_Static_assert(sizeof(CallInfo) == CALL_SIZE, "CallInfo");
AT(GCheader, next, OBJECT_NEXT);
AT(GCheader, tt, OBJECT_TYPE);
AT(GCheader, marked, OBJECT_MARKED);
AT(Proto, k, PROTO_CONSTANTS);
AT(Proto, code, PROTO_CODE);
AT(Proto, p, PROTO_NESTED);
AT(Proto, sizek, PROTO_CONSTANT_COUNT);
AT(Proto, sizecode, PROTO_CODE_COUNT);
AT(Proto, sizep, PROTO_NESTED_COUNT);
AT(Proto, linedefined, PROTO_LINE);
AT(Proto, nups, PROTO_UPVALUES);
AT(Proto, numparams, PROTO_PARAMETERS);
AT(Proto, is_vararg, PROTO_VARARG);
AT(Proto, maxstacksize, PROTO_STACK_SIZE);
AT(Proto, compiled, PROTO_COMPILED);
AT(LClosure, isC, CLOSURE_IS_C);
AT(LClosure, p, CLOSURE_PROTO);
AT(LClosure, upvals, CLOSURE_UPVALUES);
AT(UpVal, v, UPVALUE_VALUE);
AT(TValue, tt, VALUE_TYPE);
_Static_assert(sizeof(TValue) == VALUE_SIZE, "TValue");
AT(Table, metatable, TABLE_METATABLE);
AT(Table, array, TABLE_ARRAY);
AT(Table, sizearray, TABLE_ARRAY_SIZE);
_Static_assert(READONLYBIT == MARK_READONLY && BLACKBIT == MARK_BLACK, "marks");

/* Goes on at `pc` in the compiled function of this number. The host puts the script's own function in the place that this one has in the
   table of functions. */
typedef int (*Entry)(lua_State *L, const Instruction *pc, unsigned number);

static int no_entry(lua_State *L, const Instruction *pc, unsigned number) {
    (void)L; (void)pc; (void)number;
    return TIER_NOT_HERE;
}

/* That place, which no optimisation may look into. */
TIER(entry) Entry tier_entry(void) {
    Entry entry = no_entry;
    __asm__("" : "+r"(entry));
    return entry;
}

/* Enters the compiled function `p` at `pc`, in the frame that is there. Compiled frames are frames of the machine's stack, too: where many
   functions are active, and in coroutines, which could not yield out of them, all is interpreted. */
static inline int tier_enter(lua_State *L, const Proto *p, const Instruction *pc) {
    if (L->ci >= L->tier_ci) return TIER_NOT_HERE;
    return tier_entry()(L, pc, p->compiled);
}

/* luaD_precall, and the called function is run if it is compiled: then it is as if it were one of C. */
int tier_precall(lua_State *L, StkId func, int results) {
    ptrdiff_t place = savestack(L, func);
    int how = luaD_precall(L, func, results);
    if (how != PCRLUA) return how;
    const Proto *p = ci_func(L->ci)->l.p;
    if (!p->compiled || tier_enter(L, p, p->code) != TIER_RETURNED) return PCRLUA;
    if (results != LUA_MULTRET) L->top = restorestack(L, place) + results;
    return PCRC;
}

/* The interpreter has jumped back to `pc`: the rest of the loop may be compiled. Goes on with whatever is to be interpreted next. */
#define TIER_LOOP(pc)                                           \
    if (cl->p->compiled) {                                      \
        int results = L->ci->nresults;                          \
        ptrdiff_t place = savestack(L, L->ci->func);            \
        L->savedpc = (pc);                                      \
        int how = tier_enter(L, cl->p, (pc));                   \
        if (how == TIER_RETURNED) {                             \
            if (results != LUA_MULTRET) L->top = restorestack(L, place) + results; \
            if (--nexeccalls == 0) return;                      \
            if (results != LUA_MULTRET) L->top = L->ci->top;    \
            L->savedpc = L->ci->savedpc;                        \
            goto reentry;                                       \
        }                                                       \
        if (how == TIER_INTERPRET) goto reentry;                \
    }

/* The jump behind a test. */
#define TIER_JUMP(condition)                          \
    {                                                 \
        int by = (condition) ? GETARG_sBx(*pc) : 0;   \
        pc += by + 1;                                 \
        if (by < 0) TIER_LOOP(pc)                     \
    }

/* Operands of the instruction before `pc`. */
#define FRAME                                  \
    const Instruction i = pc[-1];              \
    StkId base = L->base, ra = RA(i);          \
    const LClosure *cl = &curr_func(L)->l;     \
    TValue *k = cl->p->k;                      \
    L->savedpc = pc;                           \
    (void)k; (void)ra; (void)cl

/* The outcome of a comparison, which is the one that the instruction accepts or not. */
TIER(compare) int tier_compare(lua_State *L, const Instruction *pc) {
    FRAME;
    const TValue *rb = RKB(i), *rc = RKC(i);
    switch (GET_OPCODE(i)) {
        case OP_EQ: return equalobj(L, rb, rc);
        case OP_LT: return luaV_lessthan(L, rb, rc);
        default: return lessequal(L, rb, rc);
    }
}

/* R[a] = R[b][c]. */
TIER(get) StkId tier_get(lua_State *L, const Instruction *pc) {
    FRAME;
    GETFIELD(RB(i), RKC(i), ra);
    return base;
}

/* R[a][b] = c. */
TIER(set) StkId tier_set(lua_State *L, const Instruction *pc) {
    FRAME;
    SETFIELD(ra, RKB(i), RKC(i));
    return base;
}

TIER(forprep) StkId tier_forprep(lua_State *L, const Instruction *pc) {
    FRAME;
    const TValue *init = ra, *limit = ra + 1, *step = ra + 2;
    if (!tonumber(init, ra)) luaG_runerror(L, LUA_QL("for") " initial value must be a number");
    else if (!tonumber(limit, ra + 1)) luaG_runerror(L, LUA_QL("for") " limit must be a number");
    else if (!tonumber(step, ra + 2)) luaG_runerror(L, LUA_QL("for") " step must be a number");
    return base;
}

/* A step of a loop over an iterator; whether there is another round. */
TIER(iterate) int tier_iterate(lua_State *L, const Instruction *pc) {
    FRAME;
    int results = GETARG_C(i);
    StkId called = ra + 3;
    if (!ipairs_step(ra, results)) {
        setobjs2s(L, called + 2, ra + 2);
        setobjs2s(L, called + 1, ra + 1);
        setobjs2s(L, called, ra);
        L->top = called + 3;
        luaD_call(L, called, results);
        L->top = L->ci->top;
        base = L->base;
        called = RA(i) + 3;
    }
    if (ttisnil(called)) return 0;
    setobjs2s(L, called - 1, called);
    return 1;
}

/* Lua's table constructor: as the interpreter has it. */
static const Instruction *set_list(lua_State *L, const Instruction *pc, StkId ra) {
    const Instruction i = pc[-1];
    int n = GETARG_B(i), block = GETARG_C(i);
    if (n == 0) {
        n = cast_int(L->top - ra) - 1;
        L->top = L->ci->top;
    }
    if (block == 0) block = cast_int(*pc++);
    if (!ttistable(ra)) return pc;
    Table *h = hvalue(ra);
    int last = (block - 1) * LFIELDS_PER_FLUSH + n;
    if (last > h->sizearray) luaH_resizearray(L, h, last);
    for (; n > 0; n--) {
        TValue *value = ra + n;
        setobj2t(L, luaH_setnum(L, h, last--), value);
        luaC_barriert(L, h, value);
    }
    return pc;
}

static const Instruction *make_closure(lua_State *L, const Instruction *pc, const LClosure *cl, StkId ra) {
    Proto *p = cl->p->p[GETARG_Bx(pc[-1])];
    Closure *made = luaF_newLclosure(L, p->nups, cl->env);
    made->l.p = p;
    for (int j = 0; j < p->nups; j++, pc++) {
        made->l.upvals[j] = GET_OPCODE(*pc) == OP_GETUPVAL ? cl->upvals[GETARG_B(*pc)] : luaF_findupval(L, L->base + GETARG_B(*pc));
    }
    setclvalue(L, ra, made);
    return pc;
}

static void copy_varargs(lua_State *L, const LClosure *cl, const Instruction i) {
    StkId ra = L->base + GETARG_A(i);
    int wanted = GETARG_B(i) - 1, n = cast_int(L->ci->base - L->ci->func) - cl->p->numparams - 1;
    if (wanted == LUA_MULTRET) {
        luaD_checkstack(L, n);
        ra = L->base + GETARG_A(i);
        wanted = n;
        L->top = ra + n;
    }
    for (int j = 0; j < wanted; j++) {
        if (j < n) setobjs2s(L, ra + j, L->ci->base - n + j)
        else setnilvalue(ra + j);
    }
}

/* Executes the instructions up to `end`, none of which jumps. This is luaV_execute without what compiled functions do themselves. */
TIER(run) StkId tier_run(lua_State *L, const Instruction *pc, const Instruction *end) {
    const LClosure *cl = &curr_func(L)->l;
    TValue *k = cl->p->k;
    StkId base = L->base;
    while (pc < end) {
        const Instruction i = *pc++;
        StkId ra = RA(i);
        switch (GET_OPCODE(i)) {
            case OP_MOVE: setobjs2s(L, ra, RB(i)); break;
            case OP_LOADK: setobj2s(L, ra, KBx(i)); break;
            case OP_LOADBOOL: setbvalue(ra, GETARG_B(i)); break;
            case OP_LOADNIL:
                for (StkId rb = RB(i); rb >= ra; rb--) setnilvalue(rb);
                break;
            case OP_GETUPVAL: setobj2s(L, ra, cl->upvals[GETARG_B(i)]->v); break;
            case OP_GETGLOBAL: {
                /* Not on the C stack, which recursion would fill faster than in the interpreter. */
                TValue *globals = &L->env;
                sethvalue(L, globals, cl->env);
                GETFIELD(globals, KBx(i), ra);
                break;
            }
            case OP_GETTABLE: GETFIELD(RB(i), RKC(i), ra); break;
            case OP_SETGLOBAL: {
                TValue *globals = &L->env;
                sethvalue(L, globals, cl->env);
                Protect(luaV_settable(L, globals, KBx(i), ra));
                break;
            }
            case OP_SETUPVAL: {
                UpVal *uv = cl->upvals[GETARG_B(i)];
                setobj(L, uv->v, ra);
                luaC_barrier(L, uv, ra);
                break;
            }
            case OP_SETTABLE: SETFIELD(ra, RKB(i), RKC(i)); break;
            case OP_NEWTABLE:
                sethvalue(L, ra, luaH_new(L, luaO_fb2int(GETARG_B(i)), luaO_fb2int(GETARG_C(i))));
                Protect(luaC_checkGC(L));
                break;
            case OP_SELF: {
                StkId rb = RB(i);
                setobjs2s(L, ra + 1, rb);
                GETFIELD(rb, RKC(i), ra);
                break;
            }
            case OP_NOT: {
                int res = l_isfalse(RB(i));
                setbvalue(ra, res);
                break;
            }
            case OP_LEN: {
                const TValue *rb = RB(i);
                if (ttistable(rb)) setnvalue(ra, cast_num(luaH_getn(hvalue(rb))))
                else if (ttisstring(rb)) setnvalue(ra, cast_num(tsvalue(rb)->len))
                else Protect(if (!call_binTM(L, rb, luaO_nilobject, ra, TM_LEN)) luaG_typeerror(L, rb, "get length of"))
                break;
            }
            case OP_CONCAT: {
                int b = GETARG_B(i), c = GETARG_C(i);
                Protect(luaV_concat(L, c - b + 1, c); luaC_checkGC(L));
                setobjs2s(L, RA(i), base + b);
                break;
            }
            case OP_CALL: {
                int b = GETARG_B(i), results = GETARG_C(i) - 1;
                if (b != 0) L->top = ra + b;
                L->savedpc = pc;
                if (tier_precall(L, ra, results) == PCRLUA) luaV_execute(L, 1);
                if (results != LUA_MULTRET) L->top = L->ci->top;
                base = L->base;
                break;
            }
            case OP_SETLIST: pc = set_list(L, pc, ra); break;
            case OP_CLOSE: luaF_close(L, ra); break;
            case OP_CLOSURE:
                pc = make_closure(L, pc, cl, ra);
                Protect(luaC_checkGC(L));
                break;
            case OP_VARARG: Protect(copy_varargs(L, cl, i)); break;
            default: { /* arithmetic */
                const TValue *rb = RKB(i), *rc = GET_OPCODE(i) == OP_UNM ? rb : RKC(i);
                Protect(Arith(L, ra, rb, rc, (TMS)(GET_OPCODE(i) - OP_ADD + TM_ADD)));
            }
        }
    }
    return base;
}

/* The call went so far that the called function is to be interpreted. */
TIER(interpret) StkId tier_interpret(lua_State *L, const Instruction *pc) {
    luaV_execute(L, 1);
    if (GETARG_C(pc[-1]) != 0) L->top = L->ci->top;
    return L->base;
}

TIER(return) int tier_return(lua_State *L, const Instruction *pc) {
    FRAME;
    int b = GETARG_B(i);
    if (b != 0) L->top = ra + b - 1;
    if (L->openupval) luaF_close(L, base);
    luaD_poscall(L, ra);
    return TIER_RETURNED;
}

#endif
