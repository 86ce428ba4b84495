//! The property of the fuzz target `source`, held to the scripts of the corpus and to a few hundred texts made of them:
//! the same ones in every run.

#[path = "../../fuzz/fuzz_targets/property.rs"]
mod property;

use std::path::Path;

/// Pieces that change what a script means more often than a random byte does.
const PIECES: [&str; 24] = [
    "(",
    ")",
    "{",
    "}",
    "[[",
    "]]",
    "--",
    "\"",
    "\0",
    "\x1bLua",
    "end ",
    "while true do ",
    "function() ",
    "return ",
    "..",
    "-",
    "1e308",
    "0x",
    "nil",
    "string.rep('x', 1e5)",
    "redis.call('GETRANGE')",
    "coroutine.wrap(",
    "%",
    "\\",
];
const MUTANTS: usize = 600;

/// The scripts of the corpus and of the benchmark.
fn corpus() -> Vec<Vec<u8>> {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases");
    let mut scripts = Vec::new();
    for folder in ["bench", "scripts"] {
        let entries = std::fs::read_dir(cases.join(folder)).expect("a folder of cases");
        let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
        paths.sort();
        for path in paths.iter().filter(|path| path.extension().is_some_and(|is| is == "lua")) {
            let text = std::fs::read_to_string(path).expect("UTF-8");
            // A file holds one script, or several below headings that are comments to Lua.
            let mut script = String::new();
            for line in text.lines() {
                if line.starts_with("--- ") {
                    scripts.push(std::mem::take(&mut script).into_bytes());
                }
                script.push_str(line);
                script.push('\n');
            }
            scripts.push(script.into_bytes());
        }
    }
    scripts.retain(|script| !script.is_empty());
    scripts
}

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % most.max(1)
    }
}

fn mutated(scripts: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let mut text = scripts[dice.below(scripts.len())].clone();
    for _ in 0..=dice.below(4) {
        let (one, other) = (dice.below(text.len() + 1), dice.below(text.len() + 1));
        let (from, to) = (one.min(other), one.max(other).min(one.min(other) + 40));
        match dice.below(6) {
            0 => drop(text.drain(from..to)),
            1 => {
                let copy = text[from..to].to_vec();
                text.splice(to..to, copy);
            }
            2 => {
                let stranger = &scripts[dice.below(scripts.len())];
                let start = dice.below(stranger.len());
                let end = (start + 1 + dice.below(80)).min(stranger.len());
                text.splice(from..to, stranger[start..end].iter().copied());
            }
            3 if from < text.len() => text[from] ^= 1 << dice.below(8),
            4 => drop(text.splice(from..from, PIECES[dice.below(PIECES.len())].repeat(300).into_bytes())),
            _ => drop(text.splice(from..from, PIECES[dice.below(PIECES.len())].bytes())),
        }
    }
    text
}

/// Scripts that go for the ends of stacks, buffers and numbers.
const HOSTILE: &[&str] = &[
    "return string.match(string.rep('a', 20000), string.rep('a?', 20000) .. 'b')",
    "return string.find(string.rep('x', 5000), string.rep('(', 40))",
    "return string.gsub(string.rep('(', 9000), '%b()', '')",
    "return string.match('x', string.rep('[', 9999))",
    "return string.find(string.rep('a', 100000), '.-.-.-.-.-b')",
    "local f = coroutine.wrap(function() end) for i = 1, 1e4 do local g = f f = coroutine.wrap(function() g() end) end f()",
    "local function f() return coroutine.wrap(f)() end f()",
    "local function f() return pcall(f) end return tostring(f())",
    "local function f() local ok, e = xpcall(f, f) return e end return f()",
    "local function f(...) return f(1, ...) end f()",
    "local function f() return string.gsub('a', 'a', f) end f()",
    "local function f() table.sort({1, 2, 3}, f) end f()",
    "table.sort({3, 1, 2, 5, 4, 9, 7}, function() return true end)",
    "local t = setmetatable({}, {}) getmetatable(t).__index = t return t.x",
    "local t = setmetatable({}, {__index = function(t, k) return t[k] end}) return t.x",
    "local t = {} for i = 1, 1e5 do t = {t} end return t",
    "local t = {} t[1] = t return t",
    "local t = {} t[1] = t return cjson.encode(t)",
    "local t = {} t[1] = t return cmsgpack.pack(t)",
    "return cjson.decode(string.rep('[', 1e5))",
    "return cmsgpack.unpack(string.rep('\\145', 1e5))",
    "return cmsgpack.unpack('\\221\\255\\255\\255\\255')",
    "return cmsgpack.unpack_limit(string.rep('\\1', 9), 3, -5)",
    "return struct.unpack('>I9999999999', 'x')",
    "return struct.pack(string.rep('!', 9999) .. 'i', 1)",
    "return struct.unpack('c0', 'x', 2147483647)",
    "return struct.pack('>i4', 1e300) .. struct.pack('d', 0/0)",
    "return string.format('%99.99f', 1e308) .. string.format('%q', string.rep('\\0', 500))",
    "return string.format(string.rep('%s', 300), 1)",
    "return string.rep('x', 2^31 - 1)",
    "return string.rep('x', -1) .. string.rep('', 1e9)",
    "return table.concat({'a'}, 'x', -2147483648, 2147483647)",
    "return unpack({}, 1, 1e8)",
    "return select('#', unpack({}, 1, 7999))",
    "return unpack({}, -2147483648, 2147483647)",
    "return string.char(unpack({256, -1}))",
    "return string.byte(string.rep('x', 1e5), 1, -1)",
    "return string.sub('abc', -2^63, 2^63) .. tostring(-2^63) .. tostring(0/0)",
    "for i = 0/0, 1 do end for i = 1, 0 / 0 do end for i = 1, 2, 0 do if i > 9 then return i end end",
    "return bit.lshift(1, 2^53) + bit.tobit(1e300) + bit.rol(-1, 0/0)",
    "return math.random(0)",
    "return math.random(2^31, -2^31)",
    "return math.fmod(1, 0) + math.ldexp(1, 1e9) + math.floor(-0/0)",
    "return {err = string.rep('e', 1e5) .. '\\r\\n+OK'}",
    "return {ok = '\\r\\n$5'}",
    "return {double = 'x'}",
    "redis.setresp(3) return {map = {[{}] = {}}}",
    "redis.setresp(3) return {set = {[false] = true, [1.5] = {}}, map = 5}",
    "return {verbatim_string = {string = 'x', format = 'too long'}}",
    "return {big_number = '12\\r\\n'}",
    "error({err = {}})",
    "error(setmetatable({}, {__tostring = function() error('again') end}))",
    "error(nil)",
    "error(string.rep('x', 1e5))",
    "redis.call(unpack({}, 1, 3))",
    "redis.call(string.rep('x', 1e6))",
    "redis.call('GET', unpack({}, 1, 0), 1e308, -0, 2^53)",
    "local t = {} for i = 1, 7000 do t[i] = i end return redis.call('GET', unpack(t))",
    "for i = 1, 9 do local x = redis.call('GETRANGE') end return redis.call('GETRANGE')",
    "redis.log(9, 'x')",
    "redis.log(redis.LOG_WARNING, string.rep('x', 1e6))",
    "return redis.sha1hex(string.rep('x', 1e5))",
    "return loadstring(string.rep('(', 1e4))",
    "return loadstring('return ' .. string.rep('{', 1e4))",
    "return loadstring(string.rep('local function f() ', 300))",
    "return loadstring('local ' .. string.rep('a,', 300) .. 'a = 1')",
    "return loadstring('return ' .. string.rep('a..', 5000) .. 'a')",
    "return loadstring(string.rep('a=', 1e4) .. '1')",
    "return loadstring('\\27Lua' .. string.rep('\\0', 100))",
    "return load(function() return 'x ' end)",
    "return load(function() error('x') end)",
    "return string.dump(function() end)",
    "collectgarbage('step', 1e9) collectgarbage('setpause', -1) collectgarbage('setstepmul', 2^40)",
    "for i = 1, 1e9 do collectgarbage() end",
    "setmetatable({}, {__gc = function() error('x') end}) collectgarbage()",
    "return __redis__err__handler(__redis__err__handler)",
    "return rawset(KEYS, nil, 1)",
    "return next({}, 'missing')",
    "local t = {} for i = 1, 99 do t[i] = i end for k in pairs(t) do t[k] = nil t[k .. 'x'] = 1 end",
    "return #KEYS, tostring(KEYS), coroutine.running(), coroutine.yield()",
    "coroutine.yield(1)",
    "return tostring(setmetatable({}, {__tostring = 5}))",
    "return os.clock(1, 2, 3) + tonumber('0x' .. string.rep('f', 999)) + tonumber('z', 36)",
    "return tonumber(string.rep('1', 1e5)) + tonumber('1e' .. string.rep('9', 500))",
];

#[test]
fn nothing_hostile_traps() {
    let lab = property::Lab::new();
    for script in HOSTILE {
        lab.check(script.as_bytes());
    }
    // Texts that are hard on the compiler itself.
    for piece in PIECES.iter().chain(&[
        "a=",
        "{",
        "f(",
        "not ",
        "- ",
        "a.",
        "if a then ",
        "[[",
        "repeat ",
        "1,",
        "''..",
    ]) {
        for count in [190, 5000, 100_000] {
            lab.check(piece.repeat(count).as_bytes());
            lab.check(format!("return {}", piece.repeat(count)).as_bytes());
        }
    }
}

#[test]
fn the_corpus_and_what_becomes_of_it() {
    let (lab, scripts) = (property::Lab::new(), corpus());
    assert!(scripts.len() > 100, "only {} scripts", scripts.len());
    let replies = scripts.iter().filter(|script| lab.check(script).is_some()).count();
    assert!(replies > scripts.len() / 2, "only {replies} of {} scripts reply", scripts.len());
    let mut dice = Dice(1);
    let mut replies = 0;
    for _ in 0..MUTANTS {
        replies += usize::from(lab.check(&mutated(&scripts, &mut dice)).is_some());
    }
    // Enough of them still compile to show something.
    assert!((MUTANTS / 10..MUTANTS).contains(&replies), "{replies} of {MUTANTS} reply");
}
