//! The parameters as a JSON Schema, which the Helm chart checks its values with.

use std::ops::RangeInclusive;

use serde_json::{Map, Value, json};

use super::kind::{Form, ParameterKind};
use super::table::PARAMETERS;

/// A size with a unit, as `kind::bytes` reads it.
const SIZE: &str = "[0-9]+([kKmMgG][bB]?|[bB])?";
/// A whole number, as `kind::integer` reads it.
const WHOLE: &str = "(0|-?[1-9][0-9]*)";
/// `HOST:PORT`; an IPv6 address stands in brackets.
const ADDRESS: &str = "([A-Za-z0-9._-]+|\\[[0-9A-Fa-f:.]+\\]):[0-9]{1,5}";

/// The schema of an object whose keys are parameters.
///
/// The server has the last word: of a number in a text the schema checks the form, not the range, and some spellings that the
/// server takes, such as words in capital letters, are not in the schema.
pub fn schema() -> Value {
    let properties: Map<String, Value> =
        PARAMETERS.iter().map(|row| (row.name.to_owned(), of_kind(&row.kind))).collect();
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}

fn of_kind(kind: &ParameterKind) -> Value {
    match kind {
        ParameterKind::Integer(range, _) => number(range, WHOLE),
        ParameterKind::OrNever(_) => number(&(-1..=i64::MAX), WHOLE),
        ParameterKind::Bytes(range, _) => number(range, SIZE),
        ParameterKind::BytesOrPercent(_) => number(&(0..=i64::MAX), &format!("({SIZE}|[0-9]+%)")),
        ParameterKind::Word(words, _) => json!({ "enum": words.split('|').collect::<Vec<_>>() }),
        ParameterKind::Words(words, _) => text(&format!("({})?", list(&format!("(none|{words})"), "[,; ]+"))),
        ParameterKind::Events(_) => text("[KEg$lshzxetdmnA]*"),
        ParameterKind::Address(false, _) => text(ADDRESS),
        ParameterKind::Address(true, _) => text(&format!("(off|{ADDRESS})")),
        ParameterKind::OutputLimits(_) => text(&list(&format!("[A-Za-z]+ +{SIZE} +{SIZE} +[0-9]+"), " +")),
        ParameterKind::Dir(_) | ParameterKind::File(_) => text(".+"),
        ParameterKind::Secret(_) => json!({ "type": "string" }),
        ParameterKind::Addresses(_) => text(&format!("(none|{ADDRESS}(,{ADDRESS})*)")),
        ParameterKind::Names(..) => text("[A-Za-z0-9._:/*, \\[\\]-]*"),
        ParameterKind::Ratio(_) => {
            json!({ "type": ["number", "string"], "minimum": 0, "maximum": 1, "pattern": "^[0-9.eE+-]+$" })
        }
        ParameterKind::Text(Form::Url, _) => text("(none|https?://.+)"),
        ParameterKind::Text(Form::Word, _) => text("[!-~]{1,128}"),
        ParameterKind::Text(Form::User, _) => text("[!-~]{0,128}"),
        ParameterKind::Text(Form::Primary, _) => text("([A-Za-z0-9._:-]+ +[0-9]{1,5})?"),
        ParameterKind::Text(Form::Percentiles, _) => {
            json!({ "type": ["number", "string"], "minimum": 0, "maximum": 100, "pattern": "^[0-9. ]*$" })
        }
    }
}

/// A number, or a text of this form.
fn number(range: &RangeInclusive<i64>, form: &str) -> Value {
    let mut schema =
        json!({ "type": ["integer", "string"], "minimum": range.start(), "pattern": format!("^{form}$") });
    // Readers of JSON that have only floating point numbers round the largest one up.
    if *range.end() != i64::MAX {
        schema["maximum"] = json!(range.end());
    }
    schema
}

fn text(form: &str) -> Value {
    json!({ "type": "string", "pattern": format!("^{form}$") })
}

/// One or more of `one`, with `between` between them.
fn list(one: &str, between: &str) -> String {
    format!("{one}({between}{one})*")
}
