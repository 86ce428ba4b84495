//! The tokens of Lua 5.1.

use super::outline::SyntaxError;

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// A name.
    Name(String),
    /// A string.
    Text(Vec<u8>),
    /// A number, as it is written.
    Number(Vec<u8>),
    /// A keyword or a symbol.
    Word(&'static str),
    /// The end of the program.
    End,
}

const KEYWORDS: &[&str] = &[
    "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local", "nil",
    "not", "or", "repeat", "return", "then", "true", "until", "while",
];

/// Longer ones first.
const SYMBOLS: &[&str] = &[
    "...", "..", "==", "~=", "<=", ">=", "+", "-", "*", "/", "%", "^", "#", "<", ">", "=", "(", ")", "{",
    "}", "[", "]", ";", ":", ",", ".",
];

/// All tokens of a program with their lines. The last one is [`Token::End`].
pub fn tokens(text: &[u8]) -> Result<Vec<(Token, u32)>, SyntaxError> {
    let mut lexer = Lexer { rest: text, line: 1 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blanks()?;
        let line = lexer.line;
        let token = lexer.token()?;
        let is_end = token == Token::End;
        tokens.push((token, line));
        if is_end {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    rest: &'a [u8],
    line: u32,
}

impl<'a> Lexer<'a> {
    fn error<T>(&self, text: impl Into<String>) -> Result<T, SyntaxError> {
        Err(SyntaxError::new(self.line, text))
    }

    /// Takes so many bytes, and counts their lines.
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.line += taken.iter().filter(|byte| **byte == b'\n').count() as u32;
        self.rest = rest;
        taken
    }

    fn take_while(&mut self, keep: impl Fn(u8) -> bool) -> &'a [u8] {
        self.take(self.rest.iter().position(|byte| !keep(*byte)).unwrap_or(self.rest.len()))
    }

    /// Skips blanks and comments.
    fn skip_blanks(&mut self) -> Result<(), SyntaxError> {
        loop {
            self.take_while(|byte| byte.is_ascii_whitespace() || byte == 0x0b);
            if !self.rest.starts_with(b"--") {
                return Ok(());
            }
            self.take(2);
            if self.long_bracket().is_some() {
                self.long_text()?;
            } else {
                self.take_while(|byte| byte != b'\n');
            }
        }
    }

    fn token(&mut self) -> Result<Token, SyntaxError> {
        let Some(first) = self.rest.first().copied() else { return Ok(Token::End) };
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let number_follows = first == b'.' && self.rest.get(1).is_some_and(u8::is_ascii_digit);
        if first.is_ascii_digit() || number_follows {
            return Ok(Token::Number(self.number().to_vec()));
        }
        if is_word(first) {
            let name = String::from_utf8_lossy(self.take_while(is_word)).into_owned();
            return Ok(match KEYWORDS.iter().find(|keyword| **keyword == name) {
                Some(keyword) => Token::Word(keyword),
                None => Token::Name(name),
            });
        }
        if matches!(first, b'"' | b'\'') {
            return self.quoted(first).map(Token::Text);
        }
        if self.long_bracket().is_some() {
            return self.long_text().map(Token::Text);
        }
        match SYMBOLS.iter().find(|symbol| self.rest.starts_with(symbol.as_bytes())) {
            Some(symbol) => {
                self.take(symbol.len());
                Ok(Token::Word(symbol))
            }
            None => self.error(format!("unexpected symbol near '{}'", first.escape_ascii())),
        }
    }

    /// As Lua reads one: an exponent may have a sign.
    fn number(&mut self) -> &'a [u8] {
        let all = self.rest;
        let mut len = 0;
        while let Some(byte) = all.get(len) {
            let is_sign = matches!(byte, b'+' | b'-') && len > 0 && matches!(all[len - 1], b'e' | b'E');
            let is_hex = all.starts_with(b"0x") || all.starts_with(b"0X");
            if !(byte.is_ascii_alphanumeric() || *byte == b'.' || (is_sign && !is_hex)) {
                break;
            }
            len += 1;
        }
        self.take(len)
    }

    fn quoted(&mut self, quote: u8) -> Result<Vec<u8>, SyntaxError> {
        let mut text = Vec::new();
        self.take(1);
        loop {
            match self.take(1) {
                [byte] if *byte == quote => return Ok(text),
                [b'\\'] => self.escape(&mut text),
                [b'\n'] | [] => return self.error("unfinished string"),
                [byte] => text.push(*byte),
                _ => unreachable!("one byte is taken"),
            }
        }
    }

    fn escape(&mut self, text: &mut Vec<u8>) {
        let digits = self.rest.iter().take(3).take_while(|byte| byte.is_ascii_digit()).count();
        if digits > 0 {
            let number =
                self.take(digits).iter().fold(0, |number, digit| number * 10 + u32::from(digit - b'0'));
            // Lua refuses numbers above 255.
            text.push(number as u8);
            return;
        }
        text.extend(self.take(1).iter().map(|byte| match byte {
            b'a' => 7,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            other => *other,
        }));
    }

    /// The level of the long bracket that stands here, if one does.
    fn long_bracket(&self) -> Option<usize> {
        let rest = self.rest.strip_prefix(b"[")?;
        let level = rest.iter().take_while(|byte| **byte == b'=').count();
        (rest.get(level) == Some(&b'[')).then_some(level)
    }

    fn long_text(&mut self) -> Result<Vec<u8>, SyntaxError> {
        let level = self.long_bracket().unwrap_or_default();
        let closing = [b"]".as_slice(), &vec![b'='; level], b"]"].concat();
        self.take(level + 2);
        match self.rest.windows(closing.len()).position(|window| window == closing) {
            Some(len) => {
                let text = self.take(len);
                self.take(closing.len());
                // A line end right behind the bracket is no part of the text.
                Ok(text.strip_prefix(b"\n").unwrap_or(text).to_vec())
            }
            None => self.error("unfinished long string or comment"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_their_lines() {
        let text = b"local a = [==[\nx]]\n]==] -- end\n--[[ two\nlines ]] .5e-3 ~= 0x1F .. '\\65\\n'";
        let tokens = tokens(text).expect("it is Lua");
        let shown: Vec<String> = tokens
            .iter()
            .map(|(token, line)| match token {
                Token::Name(name) => format!("{line} name {name}"),
                Token::Text(text) => format!("{line} text {}", text.escape_ascii()),
                Token::Number(text) => format!("{line} number {}", text.escape_ascii()),
                Token::Word(word) => format!("{line} {word}"),
                Token::End => format!("{line} end"),
            })
            .collect();
        assert_eq!(
            shown,
            [
                "1 local",
                "1 name a",
                "1 =",
                "1 text x]]\\n",
                "5 number .5e-3",
                "5 ~=",
                "5 number 0x1F",
                "5 ..",
                "5 text A\\n",
                "5 end"
            ]
        );
    }

    #[test]
    fn what_is_not_lua_is_refused() {
        for (text, line) in
            [("\n'a", 2), ("'a\nb'", 2), ("[[a", 1), ("--[=[a]]", 1), ("a = 1 $ 2", 1), ("!", 1)]
        {
            assert_eq!(tokens(text.as_bytes()).expect_err(text).line, line, "{text}");
        }
    }
}
