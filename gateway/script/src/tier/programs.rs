//! Random Lua programs for comparing the tiers: small, bounded, and full of what may go wrong.

use std::fmt::Write;

/// A program of this seed. It returns a text of everything it saw.
pub fn program(seed: u64) -> String {
    let mut maker = Maker {
        state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
        text: String::new(),
        scopes: vec![Vec::new()],
        names: 0,
        functions: Vec::new(),
        vararg: true,
        loops: 0,
        depth: 0,
        budget: 0,
    };
    (0..4).for_each(|_| {
        maker.next();
    });
    maker.program();
    maker.text
}

struct Maker {
    state: u64,
    text: String,
    scopes: Vec<Vec<String>>,
    names: usize,
    functions: Vec<String>,
    vararg: bool,
    loops: usize,
    depth: usize,
    budget: usize,
}

const PRELUDE: &str = "local out, n = {}, 0
local function show(v)
  local t = type(v)
  if t == 'number' then return v ~= v and 'nan' or string.format('%.14g', v) end
  if t == 'table' then return 'table' .. #v end
  return t == 'function' and t or tostring(v)
end
local function log(...)
  n = n + 1
  if n > 1500 then error('enough') end
  local t = {}
  for i = 1, select('#', ...) do t[i] = show((select(i, ...))) end
  out[#out + 1] = table.concat(t, ',')
end
local function tick() n = n + 1 if n > 1500 then error('enough') end return n end
local meta = {}
meta.__index = function(t, k) return k end
meta.__newindex = function(t, k, v) rawset(t, k, v) end
meta.__add = function(a, b) return type(a) == 'table' and b or a end
meta.__sub = function(a, b) return 7 end
meta.__mul = function(a, b) return 'x' end
meta.__unm = function(a) return a end
meta.__lt = function(a, b) return true end
meta.__le = function(a, b) return nil end
meta.__eq = function(a, b) return true end
meta.__concat = function(a, b) return 'cat' end
meta.__call = function(self, a, b) return b, a end
local function obj() return setmetatable({}, meta) end
";

impl Maker {
    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state >> 11
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }

    fn program(&mut self) {
        self.text.push_str(PRELUDE);
        for _ in 0..1 + self.below(4) {
            self.function();
        }
        self.budget = 20;
        // Loops of the main function, which are entered from the interpreter.
        for _ in 0..self.below(3) {
            self.names += 1;
            let name = format!("i{}", self.names);
            let start = self.pick(&["0", "1.5", "'3'", "-7"]);
            writeln!(self.text, "local {name} = {start}").unwrap();
            self.scopes.last_mut().unwrap().push(name.clone());
            self.numeric_for_with(|maker| {
                let value = maker.number(1);
                writeln!(maker.text, "{name} = {name} + {value}").unwrap();
            });
        }
        self.text.push_str("local function main(...)\n");
        self.scopes.push(Vec::new());
        for _ in 0..2 + self.below(6) {
            self.statement();
        }
        self.scopes.pop();
        self.text.push_str("end\nlog('main', pcall(main, 1, 'a'))\n");
        for name in self.functions.clone() {
            let args = self.list(3);
            writeln!(self.text, "for round = 1, 3 do log('{name}', pcall({name}, {args})) end").unwrap();
        }
        self.text.push_str("out[#out + 1] = collectgarbage('count')\nreturn table.concat(out, ' ')\n");
    }

    fn function(&mut self) {
        let name = format!("f{}", self.functions.len());
        let outer = std::mem::take(&mut self.loops);
        let vararg = std::mem::replace(&mut self.vararg, self.state.is_multiple_of(3));
        let names: Vec<String> = (0..self.below(4)).map(|_| self.name()).collect();
        let mut parameters = names.join(", ");
        if self.vararg {
            parameters.push_str(if parameters.is_empty() { "..." } else { ", ..." });
        }
        writeln!(self.text, "local function {name}({parameters})").unwrap();
        self.functions.push(name);
        self.budget = 14;
        self.text.push_str("tick()\n");
        self.scopes.push(names);
        self.block();
        let result = self.list(2);
        writeln!(self.text, "return {result}\nend").unwrap();
        self.scopes.pop();
        (self.vararg, self.loops) = (vararg, outer);
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("v{}", self.names)
    }

    fn variable(&mut self) -> Option<String> {
        let count = self.scopes.iter().flatten().count();
        if count == 0 {
            return None;
        }
        // The newest ones more often.
        let index = self.below(count).max(self.below(count));
        self.scopes.iter().flatten().nth(index).cloned()
    }

    fn number_variable(&mut self) -> Option<String> {
        let numbers: Vec<&String> =
            self.scopes.iter().flatten().filter(|name| name.starts_with('i')).collect();
        let count = numbers.len();
        if count == 0 {
            return None;
        }
        let index = self.below(count);
        self.scopes.iter().flatten().filter(|name| name.starts_with('i')).nth(index).cloned()
    }

    fn block(&mut self) {
        self.scopes.push(Vec::new());
        self.depth += 1;
        for _ in 0..1 + self.below(4) {
            self.statement();
        }
        self.depth -= 1;
        self.scopes.pop();
    }

    fn statement(&mut self) {
        if self.budget == 0 {
            return;
        }
        self.budget -= 1;
        let nested = self.depth < 4;
        match self.below(23) {
            22 => {
                let value = self.expression(2).replace("...", "1");
                writeln!(self.text, "log(redis.pcall('SET', 'key', tostring({value})))").unwrap();
            }
            0..=3 => {
                let (name, value) = (self.name(), self.expression(3));
                writeln!(self.text, "local {name} = {value}").unwrap();
                self.scopes.last_mut().unwrap().push(name);
            }
            4 | 5 => {
                let name = if self.one_in(2) { None } else { self.number_variable() };
                let value = self.number(3);
                let name = match name {
                    Some(name) => name,
                    None => {
                        self.names += 1;
                        let name = format!("i{}", self.names);
                        writeln!(self.text, "local {name} = 0").unwrap();
                        self.scopes.last_mut().unwrap().push(name.clone());
                        name
                    }
                };
                writeln!(self.text, "{name} = {value}").unwrap();
            }
            6 => {
                let (Some(name), value) = (self.variable(), self.expression(3)) else { return };
                writeln!(self.text, "{name} = {value}").unwrap();
            }
            7 | 8 => {
                let values = self.list(3);
                writeln!(self.text, "log({values})").unwrap();
            }
            9 | 10 if nested => {
                let condition = self.condition(2);
                writeln!(self.text, "if {condition} then").unwrap();
                self.block();
                if self.one_in(2) {
                    let condition = self.condition(2);
                    writeln!(self.text, "elseif {condition} then").unwrap();
                    self.block();
                }
                if self.one_in(2) {
                    self.text.push_str("else\n");
                    self.block();
                }
                self.text.push_str("end\n");
            }
            11 | 12 if nested => self.numeric_for(),
            13 if nested => {
                let (k, v) = (self.name(), self.name());
                let over = match self.below(3) {
                    0 => "ipairs({3, 'b', 5, false})".to_owned(),
                    1 => "pairs({1, 2, 'c'})".to_owned(),
                    _ => format!("ipairs({})", self.table(1)),
                };
                writeln!(self.text, "for {k}, {v} in {over} do tick()").unwrap();
                self.body(vec![k, v]);
                self.text.push_str("end\n");
            }
            14 if nested => {
                let (counter, condition) = (self.name(), self.condition(2));
                writeln!(self.text, "local {counter} = 0 while {condition} do {counter} = {counter} + 1 if {counter} > 6 then break end tick()").unwrap();
                self.body(vec![]);
                self.text.push_str("end\n");
                self.scopes.last_mut().unwrap().push(counter);
            }
            15 if nested => {
                let counter = self.name();
                writeln!(self.text, "local {counter} = 0 repeat {counter} = {counter} + 1 tick()").unwrap();
                self.body(vec![counter.clone()]);
                let condition = self.condition(2);
                writeln!(self.text, "until {counter} > 5 or {condition}").unwrap();
            }
            16 if self.loops > 0 => {
                let condition = self.condition(2);
                writeln!(self.text, "if {condition} then break end").unwrap();
            }
            17 => {
                let (table, key, value) = (self.table(1), self.expression(1), self.expression(2));
                self.names += 1;
                let name = format!("t{}", self.names);
                writeln!(self.text, "local {name} = {table} {name}[{key}] = {value}").unwrap();
                self.scopes.last_mut().unwrap().push(name);
            }
            18 if nested => {
                let (name, parameter) = (self.name(), self.name());
                let vararg = std::mem::replace(&mut self.vararg, false);
                let loops = std::mem::take(&mut self.loops);
                writeln!(self.text, "local function {name}({parameter}) tick()").unwrap();
                self.scopes.push(vec![parameter, name.clone()]);
                self.block();
                let result = self.list(1);
                writeln!(self.text, "return {result} end").unwrap();
                self.scopes.pop();
                (self.vararg, self.loops) = (vararg, loops);
                self.scopes.last_mut().unwrap().push(name);
            }
            19 => {
                let (call, name) = (self.call(2), self.name());
                writeln!(
                    self.text,
                    "local {name}, {name}b = pcall(function() return {} end)",
                    call.replace("...", "nil")
                )
                .unwrap();
                writeln!(self.text, "log({name}, {name}b)").unwrap();
                self.scopes.last_mut().unwrap().push(format!("{name}b"));
            }
            20 if nested => {
                let values = self.list(2).replace("...", "1");
                let name = self.name();
                writeln!(
                    self.text,
                    "local {name} = coroutine.wrap(function(a) for i = 1, 3 do a = coroutine.yield({values}) end return a end) log({name}(1), {name}(2), pcall({name}, 3), pcall({name}), pcall({name}))"
                )
                .unwrap();
            }
            _ => {
                let call = self.call(2);
                writeln!(self.text, "local _ = {call}").unwrap();
            }
        }
    }

    fn numeric_for(&mut self) {
        self.numeric_for_with(|_| ());
    }

    fn numeric_for_with(&mut self, first: impl FnOnce(&mut Maker)) {
        self.names += 1;
        let name = format!("i{}", self.names);
        let mut limits = match self.below(7) {
            0 => "1, 5".to_owned(),
            1 => "10, 1, -3".to_owned(),
            2 => "0.1, 1, 0.3".to_owned(),
            3 => "'1', '4'".to_owned(),
            4 => "3, 1".to_owned(),
            5 => format!("1, math.min(8, #out), {}", self.pick(&["1", "2", "0.5"])),
            _ => "1e15, 1e15 + 3".to_owned(),
        };
        if self.one_in(12) {
            limits = format!("{}, 3", self.number(1).replace("(1/0)", "2"));
        }
        writeln!(self.text, "for {name} = {limits} do tick()").unwrap();
        first(self);
        self.body(vec![name]);
        self.text.push_str("end\n");
    }

    fn body(&mut self, names: Vec<String>) {
        self.loops += 1;
        self.scopes.push(names);
        self.block();
        self.scopes.pop();
        self.loops -= 1;
    }

    fn list(&mut self, most: usize) -> String {
        let count = 1 + self.below(most);
        (0..count).map(|_| self.expression(2)).collect::<Vec<_>>().join(", ")
    }

    fn call(&mut self, deep: usize) -> String {
        let args = if deep == 0 { "1".to_owned() } else { self.list(2) };
        match self.below(13) {
            0..=4 if !self.functions.is_empty() => {
                let count = self.functions.len();
                let index = self.below(count);
                let name = self.functions[index].clone();
                format!("{name}({args})")
            }
            5 => format!("tostring({args})"),
            6 => format!("(tonumber({}))", self.expression(deep.min(1))),
            7 => format!("math.floor({})", self.number(1)),
            8 => format!(
                "select({})",
                if self.one_in(3) {
                    args
                } else {
                    "2, n, ...".replace("...", if self.vararg { "..." } else { "3" })
                }
            ),
            9 => format!("rawequal({args}, 1)"),
            10 => format!("('abc'):rep({} % 4)", self.number(1)),
            11 => format!("#{}", self.table(1)),
            _ => match self.variable().filter(|_| self.state.is_multiple_of(4)) {
                Some(name) => format!("{name}({args})"),
                None => format!("type({args})"),
            },
        }
        .replace(":rep(1e", ":rep(2, 1e")
    }

    /// Mostly what gives a number.
    fn number(&mut self, deep: usize) -> String {
        if self.one_in(40) {
            return self.expression(deep);
        }
        if deep == 0 || self.one_in(4) {
            let numbers: Vec<String> =
                self.scopes.iter().flatten().filter(|name| name.starts_with('i')).cloned().collect();
            if numbers.is_empty() || self.one_in(3) {
                return self
                    .pick(&[
                        "0", "1", "2", "3", "10", "-1", "255", "0.5", "-0", "1e15", "(1/0)", "'7'", "#out",
                        "n",
                    ])
                    .to_owned();
            }
            let index = self.below(numbers.len()).max(self.below(numbers.len()));
            return numbers[index].clone();
        }
        let deep = deep - 1;
        match self.below(12) {
            0 => format!("(- {})", self.number(deep)),
            1 => format!("math.floor({})", self.number(deep)),
            2 => format!(
                "(({})[{}] or {})",
                self.pick(&["{4, 5, 6}", "out", "{}", "obj()"]),
                self.number(deep),
                self.number(deep)
            ),
            3 => format!("({} and {} or {})", self.condition(deep), self.number(deep), self.number(deep)),
            _ => {
                let operator = self.pick(&["+", "-", "*", "/", "%", "+", "-", "^"]);
                format!("({} {operator} {})", self.number(deep), self.number(deep))
            }
        }
    }

    /// Mostly a comparison of numbers.
    fn condition(&mut self, deep: usize) -> String {
        if self.one_in(4) {
            return self.expression(deep);
        }
        let operator = self.pick(&["<", "<=", ">", ">=", "==", "~="]);
        format!("({} {operator} {})", self.number(deep), self.number(deep))
    }

    fn expression(&mut self, deep: usize) -> String {
        if self.one_in(3) {
            return self.number(deep);
        }
        if deep == 0 || self.one_in(4) {
            return self.atom();
        }
        let deep = deep - 1;
        match self.below(18) {
            0..=4 => self.number(deep + 1),
            5..=7 => self.condition(deep + 1),
            8 | 9 => {
                let operator = self.pick(&["and", "or"]);
                format!("({} {operator} {})", self.expression(deep), self.expression(deep))
            }
            10 => format!("(not {})", self.expression(deep)),
            11 => format!("(#{})", self.table(deep)),
            12 => format!("({} .. {})", self.number(deep), self.text(deep)),
            13 => format!("({})[{}]", self.table(deep), self.expression(deep)),
            14 | 15 => self.call(deep),
            16 => format!("({}).x", self.table(deep)),
            _ => format!(
                "{{{}, {}, x = {}}}",
                self.expression(deep),
                self.expression(deep),
                self.expression(deep)
            ),
        }
    }

    /// Mostly what has fields.
    fn table(&mut self, deep: usize) -> String {
        if self.one_in(10) {
            return self.expression(deep);
        }
        let named: Vec<String> =
            self.scopes.iter().flatten().filter(|name| name.starts_with('t')).cloned().collect();
        if named.is_empty() || self.one_in(3) {
            return self
                .pick(&["out", "{1, 2, 3}", "{x = 4}", "obj()", "'text'", "{n, n}", "meta"])
                .to_owned();
        }
        let index = self.below(named.len());
        named[index].clone()
    }

    fn text(&mut self, deep: usize) -> String {
        match self.below(12) {
            0 => self.expression(deep),
            1..=5 => self.pick(&["'a'", "''", "'10'", "'0x10'"]).to_owned(),
            _ => format!("tostring({})", self.expression(deep)),
        }
    }

    fn atom(&mut self) -> String {
        match self.below(16) {
            0..=6 => match self.variable() {
                Some(name) => name,
                None => "1".to_owned(),
            },
            7 | 8 => self.pick(&["0", "1", "2", "3", "10", "-1", "255", "1000"]).to_owned(),
            9 => self.pick(&["0.5", "-0", "1e15", "1e308", "(0/0)", "(1/0)", "-2.75", "2^53"]).to_owned(),
            10 => self.pick(&["'10'", "'abc'", "''", "'0x10'", "' 7 '", "'1e1'", "'x'"]).to_owned(),
            11 => self.pick(&["nil", "true", "false"]).to_owned(),
            12 => self.pick(&["{1, 2, 3}", "{}", "{x = 1, 5}", "obj()"]).to_owned(),
            13 if self.vararg => "...".to_owned(),
            14 => self.pick(&["n", "out", "tick()", "#out"]).to_owned(),
            _ => "4".to_owned(),
        }
    }
}
