//! The header of a script: `#!lua name=… flags=…` as Redis 7 defines it, or `--!df flags=…` as Dragonfly does. Each
//! takes the flags of both, and our options besides.

use std::borrow::Cow;

use store_engine::CommandError;

use crate::scripts::options::{BadOption, Flags, Options};

/// What a header says.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Header {
    /// There was a `#!lua`. Without it Redis' rules for scripts of old apply.
    pub shebang: bool,
    /// What people call the script; a library must have one.
    pub name: Option<String>,
    /// Flags and values.
    pub options: Options,
}

impl Header {
    /// Reads the header, and gives the text for Lua: a shebang's line is empty, so that line
    /// numbers stay the author's own.
    pub fn parse(text: &[u8]) -> Result<(Header, Cow<'_, [u8]>), CommandError> {
        if let Some(rest) = text.strip_prefix(b"#!") {
            let (line, body) = match rest.iter().position(|&byte| byte == b'\n') {
                Some(end) => rest.split_at(end),
                None => return Err(CommandError::new("ERR Invalid script shebang")),
            };
            let header = shebang(&String::from_utf8_lossy(line))?;
            return Ok((header, Cow::Owned(body.to_vec())));
        }
        let header = match text.trim_ascii_start().strip_prefix(b"--!df") {
            Some(rest) => {
                let line = rest.split(|&byte| byte == b'\n').next().unwrap_or_default();
                comment(&String::from_utf8_lossy(line))?
            }
            None => Header::default(),
        };
        Ok((header, Cow::Borrowed(text)))
    }

    /// Whether its header, or its lack of one, lets the script run where nothing may be written.
    pub fn suits_read_only(&self) -> bool {
        !self.shebang || self.options.flags.has(Flags::NO_WRITES)
    }
}

fn shebang(line: &str) -> Result<Header, CommandError> {
    let mut words = line.split_whitespace();
    let engine = words.next().unwrap_or_default();
    if !engine.eq_ignore_ascii_case("lua") {
        return Err(CommandError::owned(format!("ERR Unexpected engine in script shebang: #!{engine}")));
    }
    let mut header = Header { shebang: true, ..Header::default() };
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        if key == "name" && !value.is_empty() {
            header.name = Some(value.to_owned());
            continue;
        }
        header
            .options
            .set(key, value)
            .map_err(|bad| match bad {
                BadOption::Flag(flag) => format!("ERR Unexpected flag in script shebang: {flag}"),
                BadOption::Key(_) => format!("ERR Unknown lua shebang option: {word}"),
                BadOption::Value(word, expected) => bad_value(&word, expected),
            })
            .map_err(CommandError::owned)?;
    }
    Ok(header)
}

/// Words without a value are a comment: Dragonfly's list of flags ends at the first blank.
fn comment(line: &str) -> Result<Header, CommandError> {
    let mut header = Header::default();
    for (key, value) in line.split_whitespace().filter_map(|word| word.split_once('=')) {
        header
            .options
            .set(key, value)
            .map_err(|bad| match bad {
                BadOption::Flag(flag) => format!("ERR Invalid flag: {flag}"),
                BadOption::Key(word) => format!("ERR Invalid option: {word}"),
                BadOption::Value(word, expected) => bad_value(&word, expected),
            })
            .map_err(CommandError::owned)?;
    }
    Ok(header)
}

fn bad_value(word: &str, expected: &str) -> String {
    format!("ERR Invalid value in script header: {word}, expected {expected}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_without_header_is_left_alone() {
        let (header, body) = Header::parse(b"return 1").unwrap();
        assert_eq!(header, Header::default());
        assert_eq!(&*body, b"return 1");
    }

    #[test]
    fn flags_are_read_and_the_line_stays() {
        let (header, body) =
            Header::parse(b"#!lua name=count flags=no-writes,allow-oom fuel=9\nreturn 1").unwrap();
        assert!(header.shebang && header.suits_read_only());
        assert_eq!(header.name.as_deref(), Some("count"));
        assert_eq!(header.options.words(), ["no-writes", "allow-oom", "fuel=9"]);
        assert_eq!(&*body, b"\nreturn 1");
    }

    #[test]
    fn a_comment_may_stand_below_blank_lines_and_be_followed_by_words() {
        let text = b"\n  --!df flags=disable-atomicity;legacy-float on-error=rollback as agreed\nreturn 1";
        let (header, body) = Header::parse(text).unwrap();
        assert!(!header.shebang);
        assert_eq!(header.options.words(), ["disable-atomicity", "legacy-float", "on-error=rollback"]);
        assert_eq!(&*body, text);
        assert_eq!(Header::parse(b"--!df\nreturn 1").unwrap().0, Header::default());
    }

    #[test]
    fn errors_in_the_words_of_redis_and_dragonfly() {
        for (text, wanted) in [
            ("#!lua", "ERR Invalid script shebang"),
            ("#!python\n", "ERR Unexpected engine in script shebang: #!python"),
            ("#!lua flags=bad\n", "ERR Unexpected flag in script shebang: bad"),
            ("#!lua nope=1\n", "ERR Unknown lua shebang option: nope=1"),
            ("#!lua nope\n", "ERR Unknown lua shebang option: nope"),
            (
                "#!lua fuel=much\n",
                "ERR Invalid value in script header: fuel=much, expected a whole number of at least 1",
            ),
            ("--!df flags=bad", "ERR Invalid flag: bad"),
            ("--!df nope=1", "ERR Invalid option: nope=1"),
        ] {
            assert_eq!(Header::parse(text.as_bytes()).unwrap_err().text(), wanted);
        }
    }
}
