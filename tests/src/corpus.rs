//! Scripts with what they are called with, in `.lua` files.
//!
//! ```text
//! --- name of a case | keys: a b | args: 1 "x y"
//! return KEYS[1]
//! --- only on our server | ours
//! return redis.acall('PING')
//! ```

use resp::Value;

use crate::client::Client;
use crate::notation;

/// A script and its call.
#[derive(Debug)]
pub struct Case {
    /// What it shows.
    pub name: String,
    /// Redis does otherwise.
    pub ours: bool,
    /// Its text.
    pub script: String,
    keys: Vec<Vec<u8>>,
    args: Vec<Vec<u8>>,
}

/// The cases of a file.
pub fn parse(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines() {
        let Some(head) = line.strip_prefix("--- ") else {
            if let Some(case) = cases.last_mut() {
                if !case.script.is_empty() {
                    case.script.push('\n');
                }
                case.script.push_str(line);
            }
            continue;
        };
        let mut parts = head.split(" | ");
        let mut case = Case {
            name: parts.next().unwrap_or_default().to_owned(),
            ours: false,
            script: String::new(),
            keys: Vec::new(),
            args: Vec::new(),
        };
        for part in parts {
            let split = |text| notation::arguments(text).expect("balanced quotes");
            match part.split_once(':') {
                Some(("keys", keys)) => case.keys = split(keys),
                Some(("args", args)) => case.args = split(args),
                _ if part == "ours" => case.ours = true,
                _ => panic!("{}: what is {part:?}?", case.name),
            }
        }
        assert!(cases.iter().all(|other| other.name != case.name), "two cases are called {}", case.name);
        cases.push(case);
    }
    cases
}

impl Case {
    /// Runs it.
    pub fn run(&self, client: &mut Client) -> Value {
        let count = self.keys.len().to_string();
        let start = [b"EVAL".as_slice(), self.script.as_bytes(), count.as_bytes()];
        let rest = self.keys.iter().chain(&self.args).map(Vec::as_slice);
        client.call(start.into_iter().chain(rest))
    }
}
