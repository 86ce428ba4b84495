//! The results of tests, for people.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use resp::Value;

/// How errors name the text that runs.
pub const SOURCE: &str = "user_script:";

/// What came of a test.
pub struct TestResult {
    /// Its file.
    pub file: PathBuf,
    /// Its name; empty if the file as a whole failed.
    pub name: String,
    /// How long it took.
    pub took: Duration,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
}

impl TestResult {
    /// A file that could not be run.
    pub fn of_file(file: &Path, failure: Failure) -> TestResult {
        TestResult {
            file: file.to_owned(),
            name: String::new(),
            took: Duration::ZERO,
            failure: Some(failure),
        }
    }
}

/// Why a test failed.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// What went wrong, with the line.
    pub text: String,
    /// The values that differ, as in Lua: the expected and the actual one.
    pub values: Option<[String; 2]>,
}

impl Failure {
    /// A failure without values.
    pub fn new(text: String) -> Failure {
        Failure { text, values: None }
    }

    /// The failure that the program of a test reports, if the test failed.
    pub fn of_reply(reply: &Value) -> Option<Failure> {
        let text = |value: &Value| String::from_utf8_lossy(value.text().unwrap_or_default()).into_owned();
        match reply {
            Value::Array(items) => match items.as_slice() {
                [] => None,
                [why, expected, actual] => {
                    Some(Failure { text: text(why), values: Some([text(expected), text(actual)]) })
                }
                [why, ..] => Some(Failure::new(text(why))),
            },
            // The file failed before the test began.
            other => Some(Failure::new(text(other))),
        }
    }

    /// The same with the name of the file.
    pub fn in_file(mut self, file: &Path) -> Failure {
        self.text = self.text.replace(SOURCE, &format!("{}:", file.display()));
        self
    }
}

impl fmt::Display for TestResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        let Some(Failure { text, values }) = &self.failure else {
            let millis = self.took.as_secs_f64() * 1000.0;
            return writeln!(f, "ok    {file} {} ({millis:.1} ms)", self.name);
        };
        writeln!(f, "FAIL  {}", format!("{file} {}", self.name).trim_end())?;
        writeln!(f, "      {text}")?;
        if let Some([expected, actual]) = values {
            writeln!(f, "      expected: {expected}")?;
            writeln!(f, "      actual:   {actual}")?;
        }
        Ok(())
    }
}

/// How many passed and failed.
pub fn summary(results: &[TestResult], took: Duration) -> String {
    let failed = results.iter().filter(|result| result.failure.is_some()).count();
    format!("{} passed, {failed} failed in {:.1} s\n", results.len() - failed, took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_shown_with_their_values() {
        let bulk = |text: &str| Value::Bulk(text.into());
        let result = |name: &str, reply: &Value| TestResult {
            file: "a_test.lua".into(),
            name: name.into(),
            took: Duration::from_micros(1250),
            failure: Failure::of_reply(reply).map(|failure| failure.in_file(Path::new("a_test.lua"))),
        };
        let values = Value::Array(vec![bulk("user_script:3: the values differ"), bulk("1"), bulk("{2}")]);
        let results = [
            result("test_a", &Value::Array(Vec::new())),
            result("test_b", &values),
            result("test_c", &Value::Array(vec![bulk("user_script:4: no")])),
            result("test_d", &Value::Error("ERR user_script:5: stop".into())),
            TestResult::of_file(Path::new("b.lua"), Failure::new("no tests".into())),
        ];
        let shown: String = results.iter().map(TestResult::to_string).collect();
        insta::assert_snapshot!(shown + &summary(&results, Duration::from_millis(90)), @r"
        ok    a_test.lua test_a (1.2 ms)
        FAIL  a_test.lua test_b
              a_test.lua:3: the values differ
              expected: 1
              actual:   {2}
        FAIL  a_test.lua test_c
              a_test.lua:4: no
        FAIL  a_test.lua test_d
              ERR a_test.lua:5: stop
        FAIL  b.lua
              no tests
        1 passed, 4 failed in 0.1 s
        ");
    }
}
