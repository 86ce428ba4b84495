//! What clients do before a crash: steps that follow from a seed, so that another server can be given the same ones
//! and shows what must be there afterwards.
//!
//! Each player has keys of its own. Tellers share accounts, see [`transfer`].

use crate::generate::{Call, Chance};
use crate::notation;

/// How many players there are. Player 0 has two databases of its own, which it empties and exchanges.
pub const PLAYERS: usize = 5;

/// The databases of player 0. All others use database 0.
pub const OWN_DATABASES: [usize; 2] = [8, 9];

/// Scripts that a player may load.
const SCRIPTS: usize = 6;

/// Writes the same number everywhere, next to what makes collections grow that are big.
const EVERYWHERE: &str = "
    for _, key in ipairs(KEYS) do redis.call('SET', key, ARGV[1]) end
    redis.call('RPUSH', ARGV[2] .. 'list0', ARGV[1], string.rep('l', 70))
    redis.call('HSET', ARGV[2] .. 'hash0', 'field' .. ARGV[1], string.rep('h', 70))
    redis.call('ZADD', ARGV[2] .. 'zset0', ARGV[1], 'member' .. ARGV[1])
    if tonumber(ARGV[1]) % 3 == 0 then return redis.error_reply('ENOUGH of this') end";

/// The same, and then a limit is met: nothing of it may ever be seen.
const ROLLED_BACK: &str = "
    for _, key in ipairs(KEYS) do redis.call('SET', key, 'rolled back') end
    redis.call('DEL', ARGV[2] .. 'list0', ARGV[2] .. 'hash0')
    redis.call('RENAME', KEYS[1], KEYS[2])
    while true do end";

/// Takes the next number and moves as much from one account to another.
const TRANSFER: &str = "
    local number = redis.call('INCR', 'shared:number')
    redis.call('RPUSH', 'shared:numbers:' .. ARGV[1], number)
    redis.call('DECRBY', KEYS[1], number)
    redis.call('INCRBY', KEYS[2], number)
    return number";

/// Keys that everybody uses begin with this.
pub const SHARED: &str = "shared:";

/// How many accounts there are.
pub const ACCOUNTS: usize = 12;

/// What keys of a player begin with.
pub fn prefix(player: usize) -> String {
    format!("player{player}:")
}

/// Whose key this is, or library, or script.
pub fn owner(name: &[u8]) -> Option<usize> {
    let name = String::from_utf8_lossy(name);
    (0..PLAYERS).find(|player| {
        let starts = [prefix(*player), format!("library_{player}_")];
        starts.iter().any(|start| name.starts_with(start)) || name.ends_with(&format!(" of {player}'"))
    })
}

/// The key, in database 0, with the number of the last step that a player has done.
pub fn done_key(player: usize) -> String {
    format!("done:{player}")
}

/// The script of a player with this number.
fn script(player: usize, number: usize) -> String {
    format!("return 'script {number} of {player}'")
}

/// All scripts that anybody may load.
pub fn scripts() -> Vec<String> {
    (0..PLAYERS).flat_map(|player| (0..SCRIPTS).map(move |number| script(player, number))).collect()
}

/// The limit that scripts run into is this server flag.
pub const FLAGS: [&str; 2] = ["--script-fuel", "300000"];

/// A step. It is one command or one transaction: a crash leaves all of it or nothing.
pub fn step(seed: u64, player: usize, number: u64) -> Vec<Call> {
    let mut chance = Chance::new(seed ^ (number << 8) ^ player as u64);
    let prefix = prefix(player);
    let spread: Vec<String> = (0..5).map(|at| format!("{prefix}same{at}")).collect();
    let value = number.to_string();
    let words = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Call>();
    let script_call = |script: &str| {
        let mut call = words(&["EVAL", script, "5"]);
        call.extend(spread.iter().map(|key| key.as_bytes().to_vec()));
        call.extend([value.clone().into_bytes(), prefix.clone().into_bytes()]);
        call
    };
    match chance.below(100) {
        0 if player == 0 => vec![words(&["FLUSHDB"])],
        1 | 2 if player == 0 => vec![words(&["SWAPDB", "8", "9"])],
        0..10 => {
            let same = spread.iter().map(|key| words(&["SET", key, &value]));
            let more = (0..2).map(|_| plain(&mut chance, &prefix));
            let body: Vec<Call> = same.chain(more).collect();
            [words(&["MULTI"])].into_iter().chain(body).chain([words(&["EXEC"])]).collect()
        }
        10..20 => vec![script_call(EVERYWHERE)],
        20..22 => vec![script_call(ROLLED_BACK)],
        22..24 => vec![words(&["SCRIPT", "LOAD", &script(player, chance.below(SCRIPTS))])],
        24..27 => vec![library(&mut chance, player, number)],
        27..30 => vec![words(&["MSET", &spread[0], &value, &spread[1], &value, &spread[4], &value])],
        _ => vec![plain(&mut chance, &prefix)],
    }
}

fn library(chance: &mut Chance, player: usize, number: u64) -> Call {
    let name = format!("library_{player}_{}", chance.below(3));
    if chance.percent(30) {
        return vec![b"FUNCTION".to_vec(), b"DELETE".to_vec(), name.into_bytes()];
    }
    let code =
        format!("#!lua name={name}\nredis.register_function('f_{name}', function() return {number} end)");
    let words = ["FUNCTION", "LOAD", "REPLACE"];
    words.iter().map(|word| word.as_bytes().to_vec()).chain([code.into_bytes()]).collect()
}

/// A moment far away, so that it does not come in between, and different each time.
const FAR_MS: u64 = 4_000_000_000_000;

/// One command whose effect depends on nothing but what the player did before.
fn plain(chance: &mut Chance, prefix: &str) -> Call {
    let kind = chance.below(39);
    let types = ["string", "list", "hash", "set", "zset"];
    let any = format!("{prefix}{}{}", chance.pick(&types), chance.below(3));
    let key = |name: &str, chance: &mut Chance| format!("{prefix}{name}{}", chance.below(3));
    let (a, b) = (chance.below(60), chance.below(1000));
    let long = "-".repeat(40);
    let many = |word: &str| (0..=a).map(|i| format!(" {word}{}{long}", b + i)).collect::<String>();
    let far = FAR_MS + b as u64;
    let line = match kind {
        0 => format!("SET {} x{}", key("string", chance), "x".repeat(a * b / 4)),
        1 => format!("SET {} {b} PXAT {far} STICK", key("string", chance)),
        2 => format!("APPEND {} {b}", key("string", chance)),
        3 => format!("SETRANGE {} {b} there", key("string", chance)),
        4 => format!("INCRBY {} {b}", key("counter", chance)),
        5 => format!("INCRBYFLOAT {} 0.{b}", key("float", chance)),
        6 => format!("SETBIT {} {b} 1", key("string", chance)),
        7 => format!("GETDEL {}", key("string", chance)),
        8 | 9 => format!("RPUSH {}{}", key("list", chance), many("r")),
        10 => format!("LPUSH {}{}", key("list", chance), many("l")),
        11 => format!("LPOP {} {}", key("list", chance), a / 3),
        12 => format!("RPOP {} {}", key("list", chance), a / 3),
        13 => format!("LTRIM {} {} -{}", key("list", chance), a / 20, a / 20 + 1),
        14 => format!("LSET {} {b} set{a}", key("list", chance)),
        15 => format!("LINSERT {} BEFORE r{b}{long} inserted", key("list", chance)),
        16 => format!("LMOVE {} {} LEFT RIGHT", key("list", chance), key("list", chance)),
        17 | 18 => {
            let pairs: String = (0..=a).map(|i| format!(" field{} v{a}{long}", b + i)).collect();
            format!("HSET {}{pairs}", key("hash", chance))
        }
        19 => format!(
            "HDEL {}{}",
            key("hash", chance),
            (0..=a).map(|i| format!(" field{}", b + i)).collect::<String>()
        ),
        20 => format!("HINCRBY {} number{} {b}", key("hash", chance), a),
        21 | 22 => format!("SADD {}{}", key("set", chance), many("m")),
        23 => format!("SREM {}{}", key("set", chance), many("m")),
        24 => format!("SMOVE {} {} m{b}{}", key("set", chance), key("set", chance), long),
        25 | 26 => {
            let pairs: String = (0..=a).map(|i| format!(" {} member{}{long}", a + i, b + i)).collect();
            format!("ZADD {}{pairs}", key("zset", chance))
        }
        27 => format!("ZREMRANGEBYRANK {} {a} {}", key("zset", chance), a * 2),
        28 => format!("PEXPIREAT {any} {far}"),
        29 => format!("{} {any}", ["STICK", "UNSTICK", "PERSIST"][a % 3]),
        34 => format!("BITFIELD {} INCRBY u7 {b} {a} SET i9 #{a} {b}", key("string", chance)),
        35 => format!("PFADD {}{}", key("hll", chance), many("e")),
        36 => format!("PFMERGE {} {}", key("hll", chance), key("hll", chance)),
        37 => format!("GEOADD {} {a} {}.5 m{b}{long} 1 1 center", key("zset", chance), a / 2),
        38 => format!(
            "SADD {}{}",
            key("set", chance),
            (0..=a).map(|i| format!(" {}", b * i)).collect::<String>()
        ),
        30 if a < 20 => format!("DEL {any}"),
        31 => format!("SET {prefix}short{} {b} PX {}", a, 1 + b / 4),
        32 => {
            let name = chance.pick(&types);
            format!("RENAME {} {}", key(name, chance), key(name, chance))
        }
        _ => {
            let name = chance.pick(&types);
            format!("COPY {} {} REPLACE", key(name, chance), key(name, chance))
        }
    };
    notation::arguments(&line).expect("balanced quotes")
}

/// What a teller does again and again: a number and a transfer in one script, or a transfer in a MULTI.
pub fn transfer(chance: &mut Chance, transferrer: usize) -> Vec<Call> {
    let from = chance.below(ACCOUNTS);
    let to = (from + 1 + chance.below(ACCOUNTS - 1)) % ACCOUNTS;
    let [from, to] = [from, to].map(account_key);
    let transferrer = transferrer.to_string();
    let words = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Call>();
    if chance.percent(60) {
        return vec![words(&["EVAL", TRANSFER, "2", &from, &to, &transferrer])];
    }
    let (out, into) = (words(&["DECRBY", &from, "7"]), words(&["INCRBY", &to, "7"]));
    vec![words(&["MULTI"]), out, into, words(&["EXEC"])]
}

/// The key of an account.
pub fn account_key(number: usize) -> String {
    format!("{SHARED}account{number}")
}
