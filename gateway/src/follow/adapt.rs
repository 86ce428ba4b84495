//! Commands that a primary sends, and that mean something else here, as they are applied later or are not those of a client.

/// What stands for a command of a primary: `now_ms` is the time at which it came, Unix time in milliseconds. `None`: itself.
pub fn adapted(argv: &[&[u8]], now_ms: u64) -> Option<Vec<Vec<u8>>> {
    const NAMES: [&str; 8] = ["expire", "pexpire", "setex", "psetex", "set", "restore", "xadd", "xtrim"];
    let name = argv.first()?;
    let name = NAMES.into_iter().find(|known| name.eq_ignore_ascii_case(known.as_bytes()))?;
    match name {
        "xadd" | "xtrim" => without_limit(argv, name),
        _ => until(argv, name, now_ms),
    }
}

fn owned(words: &[&[u8]]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.to_vec()).collect()
}

/// Commands of older servers say for how long a key lives. Here they say until when.
fn until(argv: &[&[u8]], name: &str, now_ms: u64) -> Option<Vec<Vec<u8>>> {
    let at = |place: usize, unit_ms: i64| -> Option<Vec<u8>> {
        let time: i64 = std::str::from_utf8(argv.get(place)?).ok()?.parse().ok()?;
        let at_ms = time.checked_mul(unit_ms)?.checked_add(i64::try_from(now_ms).ok()?)?;
        // A time of 0 means another thing to RESTORE, and is over as that of 1 is.
        Some(at_ms.max(1).to_string().into_bytes())
    };
    let is = |word: &[u8], option: &str| word.eq_ignore_ascii_case(option.as_bytes());
    let mut new;
    match name {
        "expire" | "pexpire" => {
            let at_ms = at(2, if name == "expire" { 1000 } else { 1 })?;
            new = owned(argv);
            (new[0], new[2]) = (b"PEXPIREAT".to_vec(), at_ms);
        }
        "setex" | "psetex" => {
            let at_ms = at(2, if name == "setex" { 1000 } else { 1 })?;
            new = owned(&[b"SET", argv.get(1)?, argv.get(3)?, b"PXAT", &at_ms]);
        }
        "set" => {
            let place = 3 + argv.get(3..)?.iter().position(|word| is(word, "ex") || is(word, "px"))?;
            let at_ms = at(place + 1, if is(argv[place], "ex") { 1000 } else { 1 })?;
            new = owned(argv);
            (new[place], new[place + 1]) = (b"PXAT".to_vec(), at_ms);
        }
        _ => {
            if *argv.get(2)? == b"0" || argv.get(4..)?.iter().any(|word| is(word, "absttl")) {
                return None;
            }
            let at_ms = at(2, 1)?;
            new = owned(argv);
            new[2] = at_ms;
            new.push(b"ABSTTL".to_vec());
        }
    }
    Some(new)
}

/// Where a client has trimmed a stream to about so many entries, the primary says to how many, and leaves LIMIT where it was.
fn without_limit(argv: &[&[u8]], name: &str) -> Option<Vec<Vec<u8>>> {
    let is = |at: usize, option: &str| {
        argv.get(at).is_some_and(|word| word.eq_ignore_ascii_case(option.as_bytes()))
    };
    let mut at = 2;
    while name == "xadd" && ["nomkstream", "keepref", "delref", "acked"].iter().any(|option| is(at, option)) {
        at += 1;
    }
    let is_exact = (is(at, "maxlen") || is(at, "minid")) && is(at + 1, "=") && is(at + 3, "limit");
    (is_exact && argv.len() > at + 4).then(|| [owned(&argv[..at + 3]), owned(&argv[at + 5..])].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_mean_the_same_here() {
        for (line, wanted) in [
            ("EXPIRE a 10", Some("PEXPIREAT a 11000")),
            ("pexpire a 10 NX", Some("PEXPIREAT a 1010 NX")),
            ("EXPIRE a -10", Some("PEXPIREAT a 1")),
            ("SETEX a 2 v", Some("SET a v PXAT 3000")),
            ("PSETEX a 2 v", Some("SET a v PXAT 1002")),
            ("SET a v XX ex 1", Some("SET a v XX PXAT 2000")),
            ("SET a v PX 1 GET", Some("SET a v PXAT 1001 GET")),
            ("RESTORE a 5 payload REPLACE", Some("RESTORE a 1005 payload REPLACE ABSTTL")),
            ("SET ex px", None),
            ("SET a v PXAT 5", None),
            ("SET a v EX", None),
            ("SET a v EX 9223372036854775807", None),
            ("RESTORE a 5 payload ABSTTL", None),
            ("RESTORE a 0 payload", None),
            ("EXPIRE a", None),
            ("SETEX a 2", None),
            ("PERSIST a", None),
            ("XTRIM s MAXLEN = 5 LIMIT 100", Some("XTRIM s MAXLEN = 5")),
            (
                "XADD s NOMKSTREAM minid = 5 limit 100 1-1 LIMIT v",
                Some("XADD s NOMKSTREAM minid = 5 1-1 LIMIT v"),
            ),
            ("XTRIM s MAXLEN ~ 5 LIMIT 100", None),
            ("XTRIM s MAXLEN = 5 LIMIT", None),
            ("XADD s 1-1 MAXLEN = f LIMIT 1", None),
        ] {
            let argv: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let new = adapted(&argv, 1000).map(|new| String::from_utf8(new.join(&b' ')).expect("text"));
            assert_eq!(new.as_deref(), wanted, "{line}");
        }
    }
}
