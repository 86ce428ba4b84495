//! The pages of `docs/src/reference/`, made from the tables in the code: `moonshard reference NAME` prints one, and
//! `make reference` writes them all. One is no page but the part about parameters in the schema of the Helm chart's values.

mod commands;
mod page;

use std::fmt::Write as _;

use script::api;

use crate::codes::{CODES, CodeOrigin, NEVER};
use crate::config;
use crate::export::metrics;

/// A page: its name without `.md`, and what makes its text.
pub struct Page {
    /// As `moonshard reference` takes it.
    pub name: &'static str,
    /// Makes the text.
    pub text: fn() -> String,
}

/// The one that is part of the Helm chart.
const CONFIG_SCHEMA: &str = "config-schema";

/// All pages.
pub static PAGES: &[Page] = &[
    Page { name: "commands", text: commands::page },
    Page { name: CONFIG_SCHEMA, text: config_schema },
    Page { name: "configuration", text: configuration },
    Page { name: "errors", text: errors },
    Page { name: "metrics", text: metrics },
    Page { name: "scripting-api", text: scripting_api },
];

/// The text of the page of this name.
pub fn page(name: &str) -> Option<String> {
    PAGES.iter().find(|page| page.name == name).map(|page| (page.text)())
}

fn config_schema() -> String {
    format!("{:#}\n", config::schema())
}

fn configuration() -> String {
    let intro = "\
Every parameter below is a command line flag (`--script-fuel 1000000`), an environment variable
(`MOONSHARD_SCRIPT_FUEL=1000000`) and a key of the configuration file (`script-fuel = 1000000`, TOML, named by
`--config FILE` or `MOONSHARD_CONFIG`). A flag takes precedence over the environment, the environment over the file, the
file over the default. An empty variable counts as not set. An invalid value stops the start, and the message names it.
Sizes take `kb`, `mb` and `gb` (powers of 1024) or `k`, `m` and `g` (powers of 1000).

Where the fourth column says yes, `CONFIG SET` changes the value while the server runs, and `CONFIG REWRITE` writes values
that are not the default into the configuration file; comments and order of the file stay. `moonshard config` prints this
table. `CONFIG GET` also answers parameters that clients know from redis.conf, such as `save`, `appendonly` and
`databases`, with what is true of this server.";
    page::begin("Configuration", intro) + &config::reference()
}

fn metrics() -> String {
    let intro = "\
A process serves its metrics at `GET /metrics` of its HTTP listener in the text format of Prometheus, and sends them to an
OpenTelemetry collector if `otel-endpoint` names one. A store node serves `/metrics`, `/healthz` and `/readyz` where its own
`http` says; without that parameter it serves none of them. `moonshard metrics` prints this table.

Counters only grow while the process lives; `CONFIG RESETSTAT` resets INFO, not metrics. The values of labels are bounded:
no name, key or script of a client becomes one, except code words of errors, of which 128 are distinguished, and names that scripts
declare or functions have, of which 100 are. Histograms have bounds of 1.024 microseconds times powers of two, up to 4.3 seconds. A gateway over store nodes reports `keys` and memory as
the sum over its store nodes as of at most a second ago.

[Observability](../observability.md) has more about dashboards, alerts and traces.";
    page::begin("Metrics", intro) + &metrics::table::reference()
}

fn errors() -> String {
    let intro = "\
The first word of an error's text is its code: `-WRONGTYPE Operation against …` in RESP, `code` in the
`application/problem+json` body of an HTTP response, `reason` of the `google.rpc.ErrorInfo` in the details of a gRPC
status. Texts of Redis are kept word for word. A script may end with a code of its own (`redis.error_reply('FULL at 2')`),
which is status 422 by HTTP and UNKNOWN by gRPC.

*Retry* says whether a client may send the same request again. *no*: nothing was done, and the same request would fail
again. *yes, after a pause*: nothing was done (or the script was rolled back), and the same request may succeed later, maybe
at another gateway. *check first*: a write may or may not have been made; read the data before the request is repeated, or
write so that a repetition does no harm.";
    let mut text = page::begin("Error codes", intro);
    for (origin, title) in [
        (CodeOrigin::Own, "Codes of this server"),
        (CodeOrigin::Redis, "Codes of Redis"),
        (CodeOrigin::Listener, "Codes of HTTP and gRPC only"),
    ] {
        let _ = write!(
            text,
            "## {title}\n\n| code | retry | HTTP | gRPC | meaning |\n| --- | --- | --- | --- | --- |\n"
        );
        for row in CODES.iter().filter(|row| row.origin == origin) {
            let (code, retry, http, grpc) = (row.code, row.retry.label(), row.http, row.grpc.name());
            let _ = writeln!(text, "| `{code}` | {retry} | {http} | {grpc} | {} |", row.meaning);
        }
        text.push('\n');
    }
    text.push_str("## Codes of Redis that are never answered\n\n| code | why |\n| --- | --- |\n");
    for (codes, why) in NEVER {
        let codes: Vec<String> = codes.split(", ").map(|code| format!("`{code}`")).collect();
        let _ = writeln!(text, "| {} | {why} |", codes.join(", "));
    }
    text
}

fn scripting_api() -> String {
    let intro = "\
What a script sees: `KEYS`, `ARGV` and the functions and constants below, which are those of Redis 7.0 and two of Dragonfly
(`redis.acall`, `redis.apcall`). [The redis.* functions](../scripting/api.md) has examples.";
    let mut text = page::begin("Scripting API", intro);
    for api::Section { title, intro, entries, lua } in api::SECTIONS {
        let _ = write!(text, "## {title}\n\n");
        if !intro.is_empty() {
            let _ = write!(text, "{intro}\n\n");
        }
        text.push_str("| name | meaning |\n| --- | --- |\n");
        for api::Entry { name, call, doc } in *entries {
            let shown = if call.is_empty() { name } else { call };
            let _ = writeln!(text, "| `{shown}` | {doc} |");
        }
        if !lua.is_empty() {
            let names: Vec<String> = lua.iter().map(|name| format!("`{name}`")).collect();
            let _ = write!(text, "\nAs in Lua 5.1: {}.\n", names.join(", "));
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_pages_are_what_the_tables_say() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src/reference");
        for Page { name, text } in PAGES.iter().filter(|page| page.name != CONFIG_SCHEMA) {
            let path = directory.join(format!("{name}.md"));
            let written = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(written == text(), "{} is out of date: run make reference", path.display());
        }
    }

    #[test]
    fn the_chart_knows_all_parameters() {
        let helm = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/helm");
        let path = helm.join("moonshard/values.schema.json");
        let written = std::fs::read_to_string(&path).expect("the schema of the chart's values");
        let written: serde_json::Value = serde_json::from_str(&written).expect("JSON");
        // It lists those that the chart sets itself.
        let script = std::fs::read_to_string(helm.join("config_schema.py")).expect("what writes the schema");
        let mut schema = config::schema();
        let parameters = schema["properties"].as_object_mut().expect("parameters");
        parameters.retain(|name, _| !script.contains(&format!("    \"{name}\",\n")));
        let definition = &written["definitions"]["config"];
        assert!(*definition == schema, "{} is out of date: run make reference", path.display());
    }

    #[test]
    fn cells_of_tables_do_not_end_early() {
        for Page { name, text } in PAGES {
            let text = text();
            let cells = |line: &str| line.replace("\\|", "").matches('|').count();
            let mut columns = 0;
            for line in text.lines() {
                if line.starts_with("| ---") {
                    columns = cells(line);
                } else if line.starts_with('|') && columns > 0 {
                    assert_eq!(cells(line), columns, "{name}: {line}");
                } else {
                    columns = 0;
                }
            }
        }
    }
}
