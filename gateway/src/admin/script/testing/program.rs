//! A file of tests as a program for the sandbox.

use std::path::{Path, PathBuf};

use ::script::Script;

use super::report::Failure;
use crate::admin::script::lua;

/// Defines the helpers of tests; the program gets its text as its first argument.
pub const PRELUDE: &[u8] = include_bytes!("prelude.lua");

/// The functions that tests have beside those of scripts, in the order in which the prelude returns them.
pub const HELPERS: [&str; 3] = ["run", "assert_equal", "assert_error"];

/// What the names of tests begin with.
const PREFIX: &str = "test";

/// Global variables that a file may assign: Lua allows 200 local variables.
const MOST_GLOBALS: usize = 150;

/// Whether a file has tests, as its name says.
pub fn is_test_file(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name.to_string_lossy().ends_with("_test.lua"))
}

/// A file of tests.
pub struct Program {
    /// The file.
    pub file: PathBuf,
    /// The names of the tests.
    pub tests: Vec<String>,
    /// The program, whose second argument is the name of the test that it runs.
    pub script: Script,
}

impl Program {
    /// The tests of a file.
    ///
    /// Scripts cannot assign global variables, but tests are written as global functions: all global variables that the file
    /// assigns are made local to it. What is added stands in the first line and behind the last one, so that line numbers
    /// are those of the file.
    pub fn of_file(file: &Path, text: &[u8]) -> Result<Program, Failure> {
        let outline = lua::outline(text)
            .map_err(|error| Failure::new(format!("user_script:{}: {}", error.line, error.text)));
        let outline = outline.map_err(|failure| failure.in_file(file))?;
        let mut assigned: Vec<String> = Vec::new();
        for global in outline.globals.into_iter().filter(|global| global.is_write) {
            if !assigned.contains(&global.name) {
                assigned.push(global.name);
            }
        }
        if assigned.len() > MOST_GLOBALS {
            return Err(Failure::new(format!("more than {MOST_GLOBALS} global variables are assigned")));
        }
        let mut tests: Vec<String> = assigned.clone();
        tests.extend(outline.local_functions);
        tests.retain(|name| name.starts_with(PREFIX));
        if tests.is_empty() {
            return Err(Failure::new(format!("there is no function whose name begins with {PREFIX}")));
        }
        let helpers = HELPERS.join(", ");
        let mut program = format!("local {helpers}, __run_test = loadstring(ARGV[1])() ").into_bytes();
        if !assigned.is_empty() {
            program.extend_from_slice(format!("local {} ", assigned.join(", ")).as_bytes());
        }
        program.extend_from_slice(text);
        let list: Vec<String> = tests.iter().map(|name| format!("{name} = {name}")).collect();
        let end = format!("\nreturn __run_test(({{{}}})[ARGV[2]])", list.join(", "));
        program.extend_from_slice(end.as_bytes());
        Ok(Program { file: file.to_owned(), tests, script: Script::new(&program) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn global_functions_become_local() {
        let text = b"function test_a() end\nfunction helper() end\nlocal function test_b() end -- end";
        let program = Program::of_file(Path::new("a_test.lua"), text).expect("it has tests");
        assert_eq!(program.tests, ["test_a", "test_b"]);
        assert_eq!(
            String::from_utf8_lossy(program.script.source()),
            "local run, assert_equal, assert_error, __run_test = loadstring(ARGV[1])() local test_a, helper \
             function test_a() end\nfunction helper() end\nlocal function test_b() end -- end\n\
             return __run_test(({test_a = test_a, test_b = test_b})[ARGV[2]])"
        );
    }

    #[test]
    fn a_file_without_tests_fails() {
        let failure =
            |text: &str| Program::of_file(Path::new("a.lua"), text.as_bytes()).err().expect("no tests").text;
        assert_eq!(failure("local a = 1"), "there is no function whose name begins with test");
        assert_eq!(failure("\nlocal a ="), "a.lua:2: unexpected symbol");
    }
}
