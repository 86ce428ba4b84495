//! The functions and variables that a trace has at each call, as JSON.

use script::frames::{self, Frame, LuaValue};
use serde::Serialize;

use super::json::Text;

/// The functions that led to a call.
#[derive(Serialize)]
pub struct FramesReport<'a> {
    /// Where the script stood.
    line: Option<u32>,
    frames: Vec<FrameReport<'a>>,
    /// There is more than this.
    frames_cut: bool,
}

#[derive(Serialize)]
struct FrameReport<'a> {
    function: String,
    line: Option<u32>,
    variables: Vec<Variable<'a>>,
}

#[derive(Serialize)]
struct Variable<'a> {
    name: Text<'a>,
    value: ValueReport<'a>,
}

/// A value with its type.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum ValueReport<'a> {
    Nil,
    Boolean { value: bool },
    Number { value: Text<'a> },
    String { value: Text<'a>, length: u32 },
    Table { entries: Vec<(ValueReport<'a>, ValueReport<'a>)>, count: Option<u32> },
    Function,
    Thread,
    Userdata,
}

impl<'a> FramesReport<'a> {
    /// Of a description, if it is one.
    pub fn of(description: &'a [u8]) -> Option<FramesReport<'a>> {
        let described = frames::decode(description)?;
        Some(FramesReport {
            line: described.frames.iter().find_map(|frame| frame.line),
            frames: described.frames.into_iter().map(frame).collect(),
            frames_cut: described.omitted,
        })
    }
}

fn frame(frame: Frame<'_>) -> FrameReport<'_> {
    let function = match frame {
        Frame { begins: 0, .. } => "main chunk".to_owned(),
        Frame { name: [], line: Some(_), begins, .. } => format!("function of line {begins}"),
        Frame { name: [], .. } => "function".to_owned(),
        Frame { name, .. } => String::from_utf8_lossy(name).into_owned(),
    };
    let variables = frame.variables.into_iter();
    let variables = variables.map(|(name, of)| Variable { name: Text(name), value: value(of) }).collect();
    FrameReport { function, line: frame.line, variables }
}

fn value(of: LuaValue<'_>) -> ValueReport<'_> {
    match of {
        LuaValue::Nil => ValueReport::Nil,
        LuaValue::Boolean(value) => ValueReport::Boolean { value },
        LuaValue::Number(text) => ValueReport::Number { value: Text(text) },
        LuaValue::String { start, len } => {
            ValueReport::String { value: Text(whole_letters(start, len)), length: len }
        }
        LuaValue::Table { entries, count } => {
            let entries = entries.into_iter().map(|(key, item)| (value(key), value(item))).collect();
            ValueReport::Table { entries, count }
        }
        LuaValue::Function => ValueReport::Function,
        LuaValue::Thread => ValueReport::Thread,
        LuaValue::Userdata => ValueReport::Userdata,
    }
}

/// The start of a text of `len` bytes, without the letter that is cut in two at its end.
fn whole_letters(start: &[u8], len: u32) -> &[u8] {
    match std::str::from_utf8(start) {
        Err(error) if error.error_len().is_none() && start.len() < len as usize => {
            &start[..error.valid_up_to()]
        }
        _ => start,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_that_is_cut_is_left_out() {
        let text = "aé".as_bytes();
        assert_eq!(whole_letters(&text[..2], 3), b"a");
        assert_eq!(whole_letters(&text[..2], 2), &text[..2], "the string itself ends in the middle of one");
        assert_eq!(whole_letters(b"a\xff", 9), b"a\xff");
    }
}
