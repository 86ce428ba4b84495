//! Which functions lead to a call, and what their local variables hold, as a guest describes them.

use guest_lua::abi;

/// The functions that lead to a call, the innermost first. Borrowed from the description.
#[derive(Debug, PartialEq, Eq)]
pub struct Frames<'a> {
    /// One for each function.
    pub frames: Vec<Frame<'a>>,
    /// There are more functions, variables or entries than the description had room for.
    pub omitted: bool,
}

/// A function that has been called and has not returned.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its name; empty if it has none.
    pub name: &'a [u8],
    /// The line that it begins in; 0 for a main chunk.
    pub begins: u32,
    /// The line of the script that it is in. Nothing: its text is not a part of the script's, as of what `loadstring` makes.
    pub line: Option<u32>,
    /// Names and values of its local variables, in the order in which they were declared.
    pub variables: Vec<(&'a [u8], LuaValue<'a>)>,
}

/// A value of Lua, as far as it is described.
#[derive(Debug, PartialEq, Eq)]
pub enum LuaValue<'a> {
    /// `nil`
    Nil,
    /// `true` or `false`
    Boolean(bool),
    /// A number, as Lua prints it.
    Number(&'a [u8]),
    /// A string.
    String {
        /// The bytes that it begins with.
        start: &'a [u8],
        /// How many it has.
        len: u32,
    },
    /// A table.
    Table {
        /// Keys and values of its first entries; none of a table that lies deep in others.
        entries: Vec<(LuaValue<'a>, LuaValue<'a>)>,
        /// How many it has, if they were counted.
        count: Option<u32>,
    },
    /// A function.
    Function,
    /// A coroutine.
    Thread,
    /// Something else, such as `cjson.null`.
    Userdata,
}

/// Reads a description. `None`: it is not one, so the guest is not the program we built.
pub fn decode(description: &[u8]) -> Option<Frames<'_>> {
    let mut rest = Reader(description);
    let mut frames = Frames { frames: Vec::new(), omitted: false };
    while let Some(tag) = rest.byte() {
        match tag {
            abi::FRAMES_FRAME => {
                let line = Some(rest.word()?).filter(|line| *line > 0);
                let (begins, name) = (rest.word()?, rest.text()?);
                frames.frames.push(Frame { name, begins, line, variables: Vec::new() });
            }
            abi::FRAMES_VARIABLE => {
                let variable = (rest.text()?, rest.value()?);
                frames.frames.last_mut()?.variables.push(variable);
            }
            abi::FRAMES_OMITTED if rest.0.is_empty() => frames.omitted = true,
            _ => return None,
        }
    }
    Some(frames)
}

/// What is left of a description.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: u32) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len as usize)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u32> {
        self.take(1).map(|byte| byte[0].into())
    }

    fn word(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let len = self.word()?;
        self.take(len)
    }

    fn value(&mut self) -> Option<LuaValue<'a>> {
        let tag = self.byte()?;
        self.value_of(tag, abi::FRAMES_MAX_DEPTH)
    }

    /// What the tag begins. Tables inside of it have entries down to this depth.
    fn value_of(&mut self, tag: u32, depth: u32) -> Option<LuaValue<'a>> {
        Some(match tag {
            abi::FRAMES_NIL => LuaValue::Nil,
            abi::FRAMES_FALSE => LuaValue::Boolean(false),
            abi::FRAMES_TRUE => LuaValue::Boolean(true),
            abi::FRAMES_NUMBER => LuaValue::Number(self.text()?),
            abi::FRAMES_STRING => {
                let len = self.word()?;
                LuaValue::String { start: self.text()?, len }
            }
            abi::FRAMES_TABLE => {
                let mut entries = Vec::new();
                loop {
                    match (self.byte()?, depth.checked_sub(1)) {
                        (abi::FRAMES_END, _) => break,
                        (key, Some(depth)) => {
                            let key = self.value_of(key, 0)?;
                            let tag = self.byte()?;
                            entries.push((key, self.value_of(tag, depth)?));
                        }
                        (_, None) => return None,
                    }
                }
                let count = Some(self.word()?).filter(|count| *count != abi::FRAMES_UNCOUNTED);
                LuaValue::Table { entries, count }
            }
            abi::FRAMES_FUNCTION => LuaValue::Function,
            abi::FRAMES_THREAD => LuaValue::Thread,
            abi::FRAMES_USERDATA => LuaValue::Userdata,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(tag: u32) -> Vec<u8> {
        vec![tag as u8]
    }

    fn text(text: &[u8]) -> Vec<u8> {
        [&(text.len() as u32).to_le_bytes()[..], text].concat()
    }

    fn frame() -> Vec<u8> {
        [tag(abi::FRAMES_FRAME), 3u32.to_le_bytes().into(), 0u32.to_le_bytes().into(), text(b"f")].concat()
    }

    fn variable(value: Vec<u8>) -> Vec<u8> {
        [frame(), tag(abi::FRAMES_VARIABLE), text(b"x"), value].concat()
    }

    fn table(entries: Vec<u8>, count: u32) -> Vec<u8> {
        [tag(abi::FRAMES_TABLE), entries, tag(abi::FRAMES_END), count.to_le_bytes().into()].concat()
    }

    #[test]
    fn a_description_is_read_whole_or_not_at_all() {
        let entry = [tag(abi::FRAMES_TRUE), table(Vec::new(), abi::FRAMES_UNCOUNTED)].concat();
        let whole = variable(table(entry, 1));
        let inner = LuaValue::Table { entries: Vec::new(), count: None };
        let value = LuaValue::Table { entries: vec![(LuaValue::Boolean(true), inner)], count: Some(1) };
        let variables = vec![(&b"x"[..], value)];
        let frames = vec![Frame { name: b"f", begins: 0, line: Some(3), variables }];
        assert_eq!(decode(&whole), Some(Frames { frames, omitted: false }));
        let ended = [whole.clone(), tag(abi::FRAMES_OMITTED)].concat();
        assert!(decode(&ended).is_some_and(|frames| frames.omitted));
        // The frame alone is one, too, and nothing.
        let whole_ones = (0..whole.len()).filter(|len| decode(&whole[..*len]).is_some());
        assert_eq!(whole_ones.collect::<Vec<_>>(), [0, frame().len()]);
    }

    #[test]
    fn what_no_guest_of_ours_says_is_refused() {
        let word = |word: u32| word.to_le_bytes().to_vec();
        let deep = table([tag(abi::FRAMES_TRUE), tag(abi::FRAMES_TRUE)].concat(), 1);
        let deeper = table([tag(abi::FRAMES_TRUE), deep.clone()].concat(), 1);
        assert!(decode(&variable(deeper.clone())).is_some());
        let cases = [
            tag(0),
            tag(99),
            [tag(abi::FRAMES_VARIABLE), text(b"x"), tag(abi::FRAMES_NIL)].concat(),
            [tag(abi::FRAMES_OMITTED), frame()].concat(),
            variable(tag(abi::FRAMES_END)),
            variable(tag(abi::FRAMES_FRAME)),
            variable([tag(abi::FRAMES_STRING), word(5), word(u32::MAX)].concat()),
            variable(table([tag(abi::FRAMES_TRUE), deeper].concat(), 1)),
            variable(table([deep, tag(abi::FRAMES_TRUE)].concat(), 1)),
            variable(vec![abi::FRAMES_TABLE as u8; 10_000]),
        ];
        for case in cases {
            assert_eq!(decode(&case), None, "{case:?}");
        }
    }
}
