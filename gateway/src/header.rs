//! The first line of a script: `#!lua name=… flags=…`, as Redis 7 defines it.

use std::borrow::Cow;

use store_engine::CommandError;

/// What a header says.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Header {
    /// There was one. Without it Redis' rules for scripts of old apply.
    pub present: bool,
    /// `no-writes`
    pub no_writes: bool,
}

/// Flags of Redis that change nothing here: there is no replica that could be stale, every script may touch any
/// slot, and memory has no limit that would refuse a script.
const WITHOUT_EFFECT: [&str; 4] = ["allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];

impl Header {
    /// Reads the header, and gives the text that Lua shall see: the header's line is empty, so that line
    /// numbers stay the author's own.
    pub fn parse(text: &[u8]) -> Result<(Header, Cow<'_, [u8]>), CommandError> {
        let Some(rest) = text.strip_prefix(b"#!") else {
            return Ok((Header::default(), Cow::Borrowed(text)));
        };
        let Some(end) = memchr(b'\n', rest) else {
            return Err(CommandError::new("ERR Invalid script shebang"));
        };
        let line = String::from_utf8_lossy(&rest[..end]);
        let mut words = line.split_whitespace();
        let engine = words.next().unwrap_or_default();
        if !engine.eq_ignore_ascii_case("lua") {
            let text = format!("ERR Unexpected engine in script shebang: #!{engine}");
            return Err(CommandError::owned(text));
        }
        let mut header = Header { present: true, ..Header::default() };
        for word in words {
            let Some(flags) = word.strip_prefix("flags=") else {
                return Err(CommandError::owned(format!("ERR Unknown lua shebang option: {word}")));
            };
            for flag in flags.split(',').filter(|flag| !flag.is_empty()) {
                match flag {
                    "no-writes" => header.no_writes = true,
                    known if WITHOUT_EFFECT.contains(&known) => {}
                    unknown => {
                        let text = format!("ERR Unexpected flag in script shebang: {unknown}");
                        return Err(CommandError::owned(text));
                    }
                }
            }
        }
        Ok((header, Cow::Owned(rest[end..].to_vec())))
    }
}

fn memchr(byte: u8, text: &[u8]) -> Option<usize> {
    text.iter().position(|&other| other == byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_without_header_is_left_alone() {
        let (header, body) = Header::parse(b"return 1").unwrap();
        assert!(!header.present);
        assert_eq!(&*body, b"return 1");
    }

    #[test]
    fn flags_are_read_and_the_line_stays() {
        let (header, body) = Header::parse(b"#!lua flags=no-writes,allow-oom\nreturn 1").unwrap();
        assert_eq!(header, Header { present: true, no_writes: true });
        assert_eq!(&*body, b"\nreturn 1");
    }

    #[test]
    fn errors_in_redis_words() {
        for (text, wanted) in [
            ("#!lua", "ERR Invalid script shebang"),
            ("#!python\n", "ERR Unexpected engine in script shebang: #!python"),
            ("#!lua flags=bad\n", "ERR Unexpected flag in script shebang: bad"),
            ("#!lua nope=1\n", "ERR Unknown lua shebang option: nope=1"),
        ] {
            assert_eq!(Header::parse(text.as_bytes()).unwrap_err().text(), wanted);
        }
    }
}
