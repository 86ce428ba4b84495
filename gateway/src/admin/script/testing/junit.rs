//! The results of tests as XML in the format of JUnit, which continuous integration servers read.

use super::report::TestResult;

/// The report: a suite for each file.
pub fn report(results: &[TestResult]) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    xml.push_str(&format!("<testsuites {}>\n", counts(results)));
    for suite in results.chunk_by(|a, b| a.file == b.file) {
        let Some(TestResult { file, .. }) = suite.first() else { continue };
        let name = escaped(&file.to_string_lossy());
        xml.push_str(&format!("  <testsuite name=\"{name}\" {}>\n", counts(suite)));
        for result in suite {
            xml.push_str(&case(result, &name));
        }
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>\n");
    xml
}

fn counts(results: &[TestResult]) -> String {
    let failures = results.iter().filter(|result| result.failure.is_some()).count();
    let seconds: f64 = results.iter().map(|result| result.took.as_secs_f64()).sum();
    format!("tests=\"{}\" failures=\"{failures}\" errors=\"0\" time=\"{seconds:.3}\"", results.len())
}

fn case(result: &TestResult, suite: &str) -> String {
    let name = match &*result.name {
        "" => suite.to_owned(),
        name => escaped(name),
    };
    let seconds = result.took.as_secs_f64();
    let start = format!("    <testcase classname=\"{suite}\" name=\"{name}\" time=\"{seconds:.3}\"");
    let Some(failure) = &result.failure else { return format!("{start}/>\n") };
    let values = failure.values.iter();
    let values = values.map(|[expected, actual]| format!("\nexpected: {expected}\nactual: {actual}"));
    let (text, values) = (escaped(&failure.text), escaped(&values.collect::<String>()));
    format!("{start}>\n      <failure message=\"{text}\">{text}{values}</failure>\n    </testcase>\n")
}

/// A text within XML, where most control characters are not allowed.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\t' => escaped.push_str("&#9;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::super::report::Failure;
    use super::*;

    #[test]
    fn each_file_is_a_suite() {
        let result = |file: &str, name: &str, failure| TestResult {
            file: file.into(),
            name: name.into(),
            took: Duration::from_millis(12),
            failure,
        };
        let failure = Failure {
            text: "a_test.lua:3: <no> & \u{1}\"".into(),
            values: Some(["1".into(), "{\"x\"}".into()]),
        };
        let results = [
            result("a_test.lua", "test_a", None),
            result("a_test.lua", "test_b", Some(failure)),
            TestResult::of_file(Path::new("b.lua"), Failure::new("no tests".into())),
        ];
        insta::assert_snapshot!(report(&results), @r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <testsuites tests="3" failures="2" errors="0" time="0.024">
          <testsuite name="a_test.lua" tests="2" failures="1" errors="0" time="0.024">
            <testcase classname="a_test.lua" name="test_a" time="0.012"/>
            <testcase classname="a_test.lua" name="test_b" time="0.012">
              <failure message="a_test.lua:3: &lt;no&gt; &amp; �&quot;">a_test.lua:3: &lt;no&gt; &amp; �&quot;&#10;expected: 1&#10;actual: {&quot;x&quot;}</failure>
            </testcase>
          </testsuite>
          <testsuite name="b.lua" tests="1" failures="1" errors="0" time="0.000">
            <testcase classname="b.lua" name="b.lua" time="0.000">
              <failure message="no tests">no tests</failure>
            </testcase>
          </testsuite>
        </testsuites>
        "#);
    }
}
