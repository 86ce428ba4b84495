//! Transactions as clients saw them, and what is wrong with some.

use std::fmt::{self, Display, Formatter};

/// What a transaction did to one list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Appended this value, which nobody else ever appends anywhere.
    Append(String, u64),
    /// Read all values.
    Read(String, Vec<u64>),
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It happened.
    Committed,
    /// It did not happen.
    Undone,
    /// Its client cannot know: it was cut off.
    Unknown,
}

/// A transaction as its client saw it.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// Who ran it and how, for people.
    pub name: String,
    /// What it did, in its order. Reads whose reply did not arrive are left out.
    pub ops: Vec<Op>,
    /// How it ended.
    pub ending: Ending,
    /// When it began; times are all different.
    pub began: u64,
    /// When its reply was there. Nothing if its ending is unknown.
    pub ended: u64,
}

impl Transaction {
    pub(super) fn appends(&self) -> impl DoubleEndedIterator<Item = (&str, u64)> {
        self.ops.iter().filter_map(|op| match op {
            Op::Append(key, value) => Some((&**key, *value)),
            Op::Read(..) => None,
        })
    }

    pub(super) fn reads(&self) -> impl Iterator<Item = (&str, &[u64])> {
        self.ops.iter().filter_map(|op| match op {
            Op::Read(key, values) => Some((&**key, &**values)),
            Op::Append(..) => None,
        })
    }
}

impl Display for Transaction {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {} to {}, {:?}:", self.name, self.began, self.ended, self.ending)?;
        for op in &self.ops {
            match op {
                Op::Append(key, value) => write!(f, " {key}+{value}")?,
                Op::Read(key, values) => write!(f, " {key}={}", Tail(values))?,
            }
        }
        Ok(())
    }
}

/// The end of a list, which is where things happen.
pub(super) struct Tail<'a>(pub(super) &'a [u64]);

impl Display for Tail<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let hidden = self.0.len().saturating_sub(8);
        let texts: Vec<String> = self.0[hidden..].iter().map(u64::to_string).collect();
        write!(f, "[{}{}]", if hidden > 0 { "… " } else { "" }, texts.join(" "))
    }
}

/// What must not be.
#[derive(Debug)]
pub struct Anomaly {
    /// Its name in the literature.
    pub name: String,
    /// Who did what.
    pub story: String,
}

impl Display for Anomaly {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.name, self.story)
    }
}
