//! From texts to a [`Config`]: default < file < environment < flag.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::parameter::Parameter;
use super::replication::ALIASES;
use super::table::PARAMETERS;
use super::values::Config;

/// Where values come from, besides the defaults.
pub struct Sources<'a> {
    /// The file to read, if any.
    pub file: Option<PathBuf>,
    /// Reads a file.
    pub read_file: &'a dyn Fn(&Path) -> io::Result<String>,
    /// Reads an environment variable.
    pub environment: &'a dyn Fn(&str) -> Option<OsString>,
    /// The names of all environment variables.
    pub variables: &'a [OsString],
    /// Flags by parameter name, without the dashes.
    pub flags: Vec<(&'static str, String)>,
}

/// Why there is no configuration, in one line that names source, key and what was expected.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigError(String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Builds the configuration.
///
/// A wrong value is refused even where a stronger source overrides it: it is a mistake that would come to
/// light at the worst time.
pub fn load(sources: &Sources<'_>) -> Result<Config, ConfigError> {
    let file = match &sources.file {
        Some(path) => read(path, sources.read_file)?,
        None => toml::Table::new(),
    };
    refuse_misspelt(sources.variables)?;
    let mut config = Config::empty();
    config.file = sources.file.clone();
    for row in PARAMETERS {
        config.reset(row);
        let weakest_first = [
            of_telemetry(row, sources.environment),
            names_of(row).find_map(|name| {
                let value = file.get(name)?;
                let at = format!("{}: {name}", shown(sources.file.as_deref()));
                Some(Given { text: plain(value), at })
            }),
            in_environment(row, sources.environment)?,
            sources
                .flags
                .iter()
                .find(|(name, _)| *name == row.name)
                .map(|(name, text)| Given { text: text.clone(), at: format!("flag --{name}") }),
        ];
        for given in weakest_first.into_iter().flatten() {
            let value = row.kind.parse(&given.text).map_err(|_| given.wrong(&row.kind.expected()))?;
            row.kind.store(&config, value);
            config.given.push(row.name);
        }
    }
    refuse_above_maximum(&config)?;
    Ok(config)
}

/// Refuses a limit of scripts that exceeds the most that a script may ask for.
fn refuse_above_maximum(config: &Config) -> Result<(), ConfigError> {
    let limits = [
        ("script-fuel", &config.script_fuel, "script-fuel-max", &config.script_fuel_max),
        (
            "script-timeout-ms",
            &config.script_timeout_ms,
            "script-timeout-max-ms",
            &config.script_timeout_max_ms,
        ),
        ("script-memory", &config.script_memory, "script-memory-max", &config.script_memory_max),
    ];
    for (name, value, most_name, most) in limits {
        let (value, most) = (value.get(), most.get());
        if value > most {
            return Err(ConfigError(format!(
                "{name}: {value} exceeds {most_name}, which is {most}; lower one or raise the other"
            )));
        }
    }
    Ok(())
}

/// Refuses environment variables that are a letter or two away from a parameter's.
fn refuse_misspelt(variables: &[OsString]) -> Result<(), ConfigError> {
    for (variable, key) in unknown(variables) {
        let nearest = nearest(&key);
        let edits = distance(key.as_bytes(), nearest.as_bytes());
        if edits <= 2 && edits * 4 <= key.len() {
            let meant = format!("MOONSHARD_{}", nearest.to_ascii_uppercase().replace('-', "_"));
            return Err(ConfigError(format!(
                "environment variable {variable}: unknown, the nearest known one is {meant}"
            )));
        }
    }
    Ok(())
}

/// The names among `variables` that begin with `MOONSHARD_` and set nothing.
pub fn unknown_variables(variables: &[OsString]) -> Vec<&str> {
    unknown(variables).map(|(variable, _)| variable).collect()
}

/// Environment variables that are no parameter's, and what the name of their parameter would be. Those that Kubernetes
/// sets for every service whose name begins so are left out.
fn unknown(variables: &[OsString]) -> impl Iterator<Item = (&str, String)> {
    variables.iter().filter_map(|variable| {
        let variable = variable.to_str()?;
        let key = variable.strip_prefix("MOONSHARD_")?.to_ascii_lowercase().replace('_', "-");
        let is_known = key == "config" || PARAMETERS.iter().any(|row| row.name == key);
        let is_of_kubernetes = key.contains("service-") || key.contains("port-") || key.ends_with("port");
        (!is_known && !is_of_kubernetes).then_some((variable, key))
    })
}

/// A text that was given for a parameter.
struct Given {
    text: String,
    /// Source and key.
    at: String,
}

impl Given {
    fn wrong(&self, expected: &str) -> ConfigError {
        // Debug quoting keeps the line one line, whatever is in the value.
        ConfigError(format!("{}: {:?} is invalid, expected {expected}", self.at, self.text))
    }
}

/// The variable of `row`; an empty one counts as not set.
fn in_environment(
    row: &Parameter,
    environment: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Option<Given>, ConfigError> {
    let variable = row.variable();
    let Some(value) = environment(&variable).filter(|value| !value.is_empty()) else { return Ok(None) };
    let at = format!("environment variable {variable}");
    match value.into_string() {
        Ok(text) => Ok(Some(Given { text, at })),
        Err(bytes) => {
            Err(Given { text: bytes.to_string_lossy().into_owned(), at }.wrong(&row.kind.expected()))
        }
    }
}

/// What the variables that all programs with OpenTelemetry know say of `row`.
fn of_telemetry(row: &Parameter, environment: &dyn Fn(&str) -> Option<OsString>) -> Option<Given> {
    let read = |name: &str| environment(name)?.into_string().ok().filter(|text| !text.is_empty());
    let given = |name: &str| Some(Given { text: read(name)?, at: format!("environment variable {name}") });
    match row.name {
        "otel-endpoint"
            if read("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true")) =>
        {
            None
        }
        "otel-endpoint" => given("OTEL_EXPORTER_OTLP_ENDPOINT"),
        "otel-protocol" => given("OTEL_EXPORTER_OTLP_PROTOCOL"),
        "otel-compression" => given("OTEL_EXPORTER_OTLP_COMPRESSION"),
        "otel-ca-cert-file" => given("OTEL_EXPORTER_OTLP_CERTIFICATE"),
        "otel-service-name" => given("OTEL_SERVICE_NAME"),
        "otel-metrics-interval-ms" => given("OTEL_METRIC_EXPORT_INTERVAL"),
        "otel-sample-ratio" => {
            let sampler = given("OTEL_TRACES_SAMPLER")?;
            match sampler.text.strip_prefix("parentbased_").unwrap_or(&sampler.text) {
                "always_on" => Some(Given { text: "1".to_owned(), ..sampler }),
                "always_off" => Some(Given { text: "0".to_owned(), ..sampler }),
                "traceidratio" => given("OTEL_TRACES_SAMPLER_ARG"),
                _ => Some(sampler),
            }
        }
        _ => None,
    }
}

fn shown(path: Option<&Path>) -> String {
    path.unwrap_or(Path::new("")).display().to_string()
}

fn read(path: &Path, read_file: &dyn Fn(&Path) -> io::Result<String>) -> Result<toml::Table, ConfigError> {
    let name = path.display();
    let text =
        read_file(path).map_err(|error| ConfigError(format!("cannot read config file {name}: {error}")))?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or("");
        let line = before.matches('\n').count() + 1;
        let of_redis = text.lines().nth(line - 1).and_then(setting_of_redis);
        let instead = of_redis.map_or(String::new(), |(key, value)| {
            let example = match PARAMETERS.iter().any(|row| row.name == key) {
                true => format!("{key} = {value:?}"),
                false => "resp = \"127.0.0.1:6379\"".to_owned(),
            };
            format!(
                "; the file is in TOML, not in the format of redis.conf: write lines such as {example}, and only \
                 parameters that moonshard config lists"
            )
        });
        ConfigError(format!("{name}: line {line}: {}{instead}", error.message().replace('\n', ", ")))
    })?;
    for key in table.keys() {
        if key == "user" {
            let where_else = "define users in the file that \"aclfile\" names, or with ACL SETUSER";
            return Err(ConfigError(format!("{name}: unknown key \"user\": {where_else}")));
        }
        if !PARAMETERS.iter().any(|row| names_of(row).any(|name| name == key)) {
            let nearest = nearest(key);
            return Err(ConfigError(format!(
                "{name}: unknown key {key:?}, the nearest known one is {nearest:?}"
            )));
        }
    }
    Ok(table)
}

/// The name and the value of a line of a redis.conf.
fn setting_of_redis(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.trim().split_once(' ')?;
    let is_name = key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    (is_name && !value.trim_start().starts_with('=')).then(|| (key, value.trim().trim_matches('"')))
}

/// The names of a parameter in a file: its own, then other names for it.
fn names_of(row: &Parameter) -> impl Iterator<Item = &'static str> {
    let name = row.name;
    let aliases = ALIASES.iter().filter(move |(_, of)| *of == name).map(|(alias, _)| *alias);
    std::iter::once(name).chain(aliases)
}

/// A value of the file as the text that a flag would have.
fn plain(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The parameter whose name is fewest edits away from `key`.
fn nearest(key: &str) -> &'static str {
    let key = key.to_ascii_lowercase().replace('_', "-");
    let names = PARAMETERS.iter().map(|row| row.name);
    names.min_by_key(|name| distance(key.as_bytes(), name.as_bytes())).expect("there are parameters")
}

/// Levenshtein's edit distance.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{OtlpCompression, OtlpProtocol};

    fn load_from(
        file: Option<&str>,
        environment: &[(&str, &str)],
        flags: &[(&'static str, &str)],
    ) -> Result<Config, ConfigError> {
        load(&Sources {
            file: file.map(|_| PathBuf::from("moonshard.toml")),
            read_file: &|_| Ok(file.unwrap_or_default().to_owned()),
            environment: &|wanted| {
                environment.iter().find(|(name, _)| *name == wanted).map(|(_, value)| OsString::from(value))
            },
            variables: &environment.iter().map(|(name, _)| OsString::from(name)).collect::<Vec<_>>(),
            flags: flags.iter().map(|(name, text)| (*name, (*text).to_owned())).collect(),
        })
    }

    fn error(file: Option<&str>, environment: &[(&str, &str)], flags: &[(&'static str, &str)]) -> String {
        load_from(file, environment, flags).expect_err("an error").to_string()
    }

    #[test]
    fn a_flag_beats_the_environment_beats_the_file_beats_the_default() {
        let file = "timeout = 1\nhz = 1\nmaxclients = 1\nscript-memory = \"16mb\"\nhttp = \"off\"\n";
        let config = load_from(
            Some(file),
            &[("MOONSHARD_HZ", "2"), ("MOONSHARD_MAXCLIENTS", "2"), ("MOONSHARD_TIMEOUT", "")],
            &[("maxclients", "3")],
        )
        .expect("good");
        let numbers = [&config.tcp_backlog, &config.timeout, &config.hz, &config.maxclients].map(|n| n.get());
        assert_eq!(numbers, [511, 1, 2, 3]);
        assert_eq!(config.script_memory.get(), 16 << 20);
        assert_eq!(config.http.get(), None);
        assert_eq!(config.resp.get().expect("on").to_string(), "127.0.0.1:6379");
    }

    #[test]
    fn shards_follow_threads() {
        for (threads, shards) in [("1", 16), ("3", 64), ("1000", 1024)] {
            assert_eq!(load_from(None, &[], &[("threads", threads)]).expect("good").shards.get(), shards);
        }
    }

    #[test]
    fn variables_of_kubernetes_and_of_others_are_ignored() {
        let of_kubernetes = ["PORT_6379_TCP", "STORES_SERVICE_HOST", "SERVICE_PORT", "PORT"];
        let of_others = ["SCRIPT_TIMEOUT", "RESP_ADDR", "ZIG"];
        let known = ["CONFIG", "SCRIPT_TIMEOUT_MS"];
        let variables = [&of_kubernetes[..], &of_others, &known].concat();
        let variables: Vec<OsString> =
            variables.iter().map(|name| format!("MOONSHARD_{name}").into()).collect();
        assert!(refuse_misspelt(&variables).is_ok());
        assert_eq!(unknown_variables(&variables), of_others.map(|name| format!("MOONSHARD_{name}")));
    }

    #[test]
    fn misspelt_variables_and_limits_above_their_maximum_are_refused() {
        let errors = [
            error(None, &[("MOONSHARD_SCRIPT_FEUL", "1")], &[]),
            error(None, &[("MOONSHARD_MAXMEMORYY", "1")], &[]),
            error(None, &[], &[("script-memory", "512mb")]),
            error(Some("script-timeout-max-ms = 100"), &[], &[]),
        ];
        insta::assert_snapshot!(errors.join("\n"), @"
        environment variable MOONSHARD_SCRIPT_FEUL: unknown, the nearest known one is MOONSHARD_SCRIPT_FUEL
        environment variable MOONSHARD_MAXMEMORYY: unknown, the nearest known one is MOONSHARD_MAXMEMORY
        script-memory: 536870912 exceeds script-memory-max, which is 268435456; lower one or raise the other
        script-timeout-ms: 5000 exceeds script-timeout-max-ms, which is 100; lower one or raise the other
        ");
    }

    #[test]
    fn errors_name_source_key_and_what_was_expected() {
        let errors = [
            error(None, &[], &[("shards", "0")]),
            error(None, &[("MOONSHARD_SCRIPT_MEMORY", "1kb")], &[]),
            error(None, &[("MOONSHARD_CLIENT_QUERY_BUFFER_LIMIT", "1kb")], &[]),
            error(Some("http = 8080"), &[], &[]),
            error(Some("resp = \"off\""), &[], &[]),
            error(Some("timeout = [1, 2]"), &[], &[]),
            error(Some("timeout = 9"), &[("MOONSHARD_TIMEOUT", "never\n")], &[("timeout", "1")]),
            error(None, &[], &[("script-instances", "reused")]),
            error(None, &[], &[("script-fuel", "-1")]),
            error(None, &[], &[("client-output-buffer-limit", "64mb")]),
            error(None, &[], &[("data-dir", "")]),
        ];
        insta::assert_snapshot!(errors.join("\n"), @r#"
        flag --shards: "0" is invalid, expected a whole number from 1 to 1024
        environment variable MOONSHARD_SCRIPT_MEMORY: "1kb" is invalid, expected a size from 1mb to 4gb, such as 64mb
        environment variable MOONSHARD_CLIENT_QUERY_BUFFER_LIMIT: "1kb" is invalid, expected a size of at least 1mb, such as 64mb
        moonshard.toml: http: "8080" is invalid, expected HOST:PORT with a port up to 65535, or off
        moonshard.toml: resp: "off" is invalid, expected HOST:PORT with a port up to 65535
        moonshard.toml: timeout: "[1, 2]" is invalid, expected a whole number from 0 to 2147483647
        environment variable MOONSHARD_TIMEOUT: "never\n" is invalid, expected a whole number from 0 to 2147483647
        flag --script-instances: "reused" is invalid, expected rewind or fresh
        flag --script-fuel: "-1" is invalid, expected a whole number of at least 1
        flag --client-output-buffer-limit: "64mb" is invalid, expected CLASS HARD SOFT SECONDS ..., such as normal 1gb 64mb 60
        flag --data-dir: "" is invalid, expected a directory or none
        "#);
    }

    #[test]
    fn variables_of_opentelemetry_are_weaker_than_ours() {
        let theirs = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://example.com/otlp"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("MOONSHARD_OTEL_COMPRESSION", "none"),
        ];
        let config = load_from(None, &theirs, &[]).expect("good");
        assert_eq!(config.otel_endpoint.get(), "https://example.com/otlp");
        assert_eq!(config.otel_protocol.get(), OtlpProtocol::HttpProtobuf);
        assert_eq!(config.otel_compression.get(), OtlpCompression::None);
        let errors = [
            error(None, &[("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")], &[]),
            error(None, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317")], &[]),
        ];
        insta::assert_snapshot!(errors.join("\n"), @r#"
        environment variable OTEL_EXPORTER_OTLP_PROTOCOL: "http/json" is invalid, expected grpc or http/protobuf
        environment variable OTEL_EXPORTER_OTLP_ENDPOINT: "collector:4317" is invalid, expected http[s]://HOST[:PORT][/PATH] or none
        "#);
    }

    #[test]
    fn errors_of_the_file_itself() {
        let errors = [
            error(Some("script_fule = 1"), &[], &[]),
            error(Some("[server]\nresp = 1"), &[], &[]),
            error(Some("user = 'alice on'"), &[], &[]),
            error(Some("hz = 10\ntimeout = \n"), &[], &[]),
            error(Some("hz = 10\nhz = 11\n"), &[], &[]),
            error(Some("# Redis\n\nmaxmemory 1gb\nsave 900 1\n"), &[], &[]),
            error(Some("bind 127.0.0.1 -::1\n"), &[], &[]),
            load(&Sources {
                file: Some(PathBuf::from("/nowhere.toml")),
                read_file: &|_| Err(io::Error::from(io::ErrorKind::PermissionDenied)),
                environment: &|_| None,
                variables: &[],
                flags: Vec::new(),
            })
            .expect_err("an error")
            .to_string(),
        ];
        insta::assert_snapshot!(errors.join("\n"), @r#"
        moonshard.toml: unknown key "script_fule", the nearest known one is "script-fuel"
        moonshard.toml: unknown key "server", the nearest known one is "stores"
        moonshard.toml: unknown key "user": define users in the file that "aclfile" names, or with ACL SETUSER
        moonshard.toml: line 2: string values must be quoted, expected literal string
        moonshard.toml: line 2: duplicate key
        moonshard.toml: line 3: key with no value, expected `=`; the file is in TOML, not in the format of redis.conf: write lines such as maxmemory = "1gb", and only parameters that moonshard config lists
        moonshard.toml: line 1: key with no value, expected `=`; the file is in TOML, not in the format of redis.conf: write lines such as resp = "127.0.0.1:6379", and only parameters that moonshard config lists
        cannot read config file /nowhere.toml: permission denied
        "#);
    }
}
