//! Commands of older servers say how long a key lives, not until when. Here they are applied later than there.

/// The command that says until when, if this one says for how long: `now_ms` is the time at which it was made, Unix time in
/// milliseconds.
pub fn absolute(argv: &[&[u8]], now_ms: u64) -> Option<Vec<Vec<u8>>> {
    let name = argv.first()?.to_ascii_lowercase();
    let at = |place: usize, unit_ms: i64| -> Option<Vec<u8>> {
        let time: i64 = std::str::from_utf8(argv.get(place)?).ok()?.parse().ok()?;
        let at_ms = time.checked_mul(unit_ms)?.checked_add(i64::try_from(now_ms).ok()?)?;
        // A time of 0 means another thing to RESTORE, and is over as that of 1 is.
        Some(at_ms.max(1).to_string().into_bytes())
    };
    let owned = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect::<Vec<_>>();
    let mut new;
    match &*name {
        b"expire" | b"pexpire" => {
            let at_ms = at(2, if name == b"expire" { 1000 } else { 1 })?;
            new = owned(argv);
            (new[0], new[2]) = (b"PEXPIREAT".to_vec(), at_ms);
        }
        b"setex" | b"psetex" => {
            let at_ms = at(2, if name == b"setex" { 1000 } else { 1 })?;
            new = owned(&[b"SET", argv.get(1)?, argv.get(3)?, b"PXAT", &at_ms]);
        }
        b"set" => {
            let is_time = |word: &&[u8]| word.eq_ignore_ascii_case(b"ex") || word.eq_ignore_ascii_case(b"px");
            let place = 3 + argv.get(3..)?.iter().position(is_time)?;
            let at_ms = at(place + 1, if argv[place].eq_ignore_ascii_case(b"ex") { 1000 } else { 1 })?;
            new = owned(argv);
            (new[place], new[place + 1]) = (b"PXAT".to_vec(), at_ms);
        }
        b"restore" if !argv.get(4..)?.iter().any(|word| word.eq_ignore_ascii_case(b"absttl")) => {
            if argv[2] == b"0" {
                return None;
            }
            let at_ms = at(2, 1)?;
            new = owned(argv);
            new[2] = at_ms;
            new.push(b"ABSTTL".to_vec());
        }
        _ => return None,
    }
    Some(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_live_become_times() {
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
        ] {
            let argv: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let new = absolute(&argv, 1000).map(|new| String::from_utf8(new.join(&b' ')).expect("text"));
            assert_eq!(new.as_deref(), wanted, "{line}");
        }
    }
}
