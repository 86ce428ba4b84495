//! Holds answers to an OpenAPI description: as much of JSON Schema as ours uses, and whatever else stands there fails.

use serde_json::{Map, Value};

use crate::http::Answer;

/// A description.
pub struct Description(Value);

impl Description {
    /// One that was read.
    pub fn new(description: Value) -> Description {
        Description(description)
    }

    /// What is wrong with the answer to such a request; nothing if it is as described.
    pub fn faults(&self, method: &str, path: &str, answer: &Answer) -> Vec<String> {
        let mut faults = Vec::new();
        let Some(operation) = self.operation(method, path) else {
            // Whatever is not described is refused, as a problem.
            let problem = &self.0["components"]["responses"]["Problem"];
            self.check_response(problem, answer, &mut faults);
            return faults;
        };
        let responses = &operation["responses"];
        let described = responses.get(answer.status.to_string()).unwrap_or(&responses["default"]);
        self.check_response(self.resolve(described), answer, &mut faults);
        faults
    }

    fn operation(&self, method: &str, path: &str) -> Option<&Value> {
        let path = path.split('?').next().unwrap_or(path);
        let fits = |template: &str| {
            let (parts, wanted) = (path.split('/'), template.split('/'));
            parts.clone().count() == wanted.clone().count()
                && parts.zip(wanted).all(|(part, wanted)| wanted.starts_with('{') || part == wanted)
        };
        let paths = self.0["paths"].as_object().expect("paths");
        let (_, item) = paths.iter().find(|(template, _)| fits(template))?;
        item.get(method.to_lowercase())
    }

    fn resolve<'a>(&'a self, value: &'a Value) -> &'a Value {
        let Some(name) = value.get("$ref").and_then(Value::as_str) else { return value };
        let pointer = name.strip_prefix('#').expect("a name in this description");
        self.0.pointer(pointer).unwrap_or_else(|| panic!("{name} is not there"))
    }

    fn check_response(&self, response: &Value, answer: &Answer, faults: &mut Vec<String>) {
        let media_type = answer.header("content-type").split(';').next().unwrap_or_default();
        match response.get("content") {
            None if answer.body.is_empty() => {}
            None => faults.push(format!("a body of {media_type} where none is described")),
            Some(content) => match content.get(media_type) {
                None => faults.push(format!("{media_type:?} is not described")),
                Some(described) if media_type.ends_with("json") => {
                    self.check(&described["schema"], &answer.json(), "", faults);
                }
                Some(_) => {}
            },
        }
    }

    fn check(&self, schema: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
        let schema = self.resolve(schema);
        let rules = schema.as_object().expect("a schema");
        for (rule, wanted) in rules {
            let fits = match rule.as_str() {
                "description" | "properties" | "additionalProperties" | "contentEncoding" => true,
                "type" => is_of_type(value, wanted.as_str().expect("one type")),
                "enum" => wanted.as_array().expect("values").contains(value),
                "const" => wanted == value,
                "minimum" => value.as_f64() >= wanted.as_f64(),
                "maximum" => value.as_f64() <= wanted.as_f64(),
                "pattern" if wanted == "^[A-Z_]+$" => {
                    let upper = |c: char| c.is_ascii_uppercase() || c == '_';
                    value.as_str().is_some_and(|text| !text.is_empty() && text.chars().all(upper))
                }
                "items" => {
                    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
                    for (number, item) in items.iter().enumerate() {
                        self.check(wanted, item, &format!("{at}/{number}"), faults);
                    }
                    true
                }
                "anyOf" => wanted.as_array().expect("schemas").iter().any(|schema| {
                    let mut own = Vec::new();
                    self.check(schema, value, at, &mut own);
                    own.is_empty()
                }),
                "required" => {
                    let names = wanted.as_array().expect("names").iter();
                    names.filter_map(Value::as_str).all(|name| value.get(name).is_some())
                }
                other => panic!("this test does not know the rule {other}"),
            };
            if !fits {
                faults.push(format!("{at}: {value} is not as {rule} wants: {wanted}"));
            }
        }
        if let Value::Object(members) = value {
            self.check_members(rules, members, at, faults);
        }
    }

    fn check_members(
        &self,
        rules: &Map<String, Value>,
        members: &Map<String, Value>,
        at: &str,
        faults: &mut Vec<String>,
    ) {
        for (name, member) in members {
            let at = format!("{at}/{name}");
            match rules.get("properties").and_then(|properties| properties.get(name)) {
                Some(schema) => self.check(schema, member, &at, faults),
                None => match rules.get("additionalProperties") {
                    Some(Value::Bool(false)) => faults.push(format!("{at} is not described")),
                    Some(schema) => self.check(schema, member, &at, faults),
                    None => {}
                },
            }
        }
    }
}

fn is_of_type(value: &Value, wanted: &str) -> bool {
    match wanted {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("there is no type {other}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn faults_are_found() {
        let schema = json!({
            "type": "object",
            "required": ["a"],
            "additionalProperties": false,
            "properties": {
                "a": {"anyOf": [{"type": "null"}, {"$ref": "#/components/schemas/N"}]},
                "b": {"type": "array", "items": {"enum": ["x"]}},
            },
        });
        let description =
            Description::new(json!({"components": {"schemas": {"N": {"type": "integer", "minimum": 1}}}}));
        for (value, faults) in [
            (json!({"a": 1, "b": ["x"]}), 0),
            (json!({"a": null}), 0),
            (json!({"a": 0}), 1),
            (json!({"a": "1"}), 1),
            (json!({}), 1),
            (json!({"a": 1, "b": ["y", "x", 3]}), 2),
            (json!({"a": 1, "c": 1}), 1),
            (json!([]), 2),
        ] {
            let mut found = Vec::new();
            description.check(&schema, &value, "", &mut found);
            assert_eq!(found.len(), faults, "{value}: {found:?}");
        }
    }
}
