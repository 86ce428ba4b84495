//! Why a tool could not do what it was asked to do.

use std::fmt;

/// One line for standard error.
#[derive(Debug)]
pub struct ToolError(String);

impl ToolError {
    /// An error with this text.
    pub fn new(text: impl fmt::Display) -> ToolError {
        ToolError(text.to_string())
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
