//! `CONFIG GET` and `CONFIG SET`, with the texts of Redis 7.0.15.

use std::sync::Mutex;

use store_engine::glob;

use super::derived::DERIVED;
use super::errors::SetError;
use super::kind::ParsedValue;
use super::parameter::Parameter;
use super::replication::ALIASES;
use super::table::PARAMETERS;
use super::values::Config;

/// Held by a `CONFIG SET` from check to store, and by a `CONFIG REWRITE`, so that two of them never mix.
pub(super) static SETTING: Mutex<()> = Mutex::new(());

impl Config {
    /// The rows whose names match any of the patterns, each once, with their values.
    ///
    /// Names have no case. One that is asked for without wildcards comes back as it was spelled.
    pub fn get(&self, patterns: &[&[u8]]) -> Vec<(String, String)> {
        let mut found: Vec<(String, String)> = Vec::new();
        let mut add = |name: &str, value: String| {
            if !found.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
                found.push((name.to_owned(), value));
            }
        };
        for pattern in patterns {
            let lower = pattern.to_ascii_lowercase();
            let exact = !pattern.iter().any(|byte| b"[*?".contains(byte));
            for (name, value) in self.rows() {
                if exact && lower == name.as_bytes() {
                    add(&String::from_utf8_lossy(pattern), value());
                } else if !exact && glob::matches(&lower, name.as_bytes()) {
                    add(name, value());
                }
            }
        }
        found
    }

    /// Every name with what computes its value.
    fn rows(&self) -> impl Iterator<Item = (&'static str, Box<dyn Fn() -> String + '_>)> + '_ {
        let parameters = PARAMETERS.iter().map(move |row| {
            let value: Box<dyn Fn() -> String + '_> = Box::new(move || row.kind.render(self));
            (row.name, value)
        });
        let derived = DERIVED.iter().map(move |row| {
            let value: Box<dyn Fn() -> String + '_> = Box::new(move || (row.value)(self));
            (row.name, value)
        });
        let aliases = ALIASES.iter().map(move |(alias, name)| {
            let value: Box<dyn Fn() -> String + '_> =
                Box::new(move || Parameter::find(name).map_or(String::new(), |row| row.kind.render(self)));
            (*alias, value)
        });
        parameters.chain(aliases).chain(derived)
    }

    /// Changes all the named parameters, or none.
    pub fn set(&self, pairs: &[(&[u8], &[u8])]) -> Result<(), SetError> {
        let _alone = SETTING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for (row, value) in parsed(pairs)? {
            row.kind.store(self, value);
        }
        Ok(())
    }

    /// Refuses what [`Config::set`] would refuse.
    pub fn check(pairs: &[(&[u8], &[u8])]) -> Result<(), SetError> {
        parsed(pairs).map(drop)
    }
}

/// The parameters that are named, with their values.
fn parsed(pairs: &[(&[u8], &[u8])]) -> Result<Vec<(&'static Parameter, ParsedValue)>, SetError> {
    let mut rows: Vec<&'static Parameter> = Vec::with_capacity(pairs.len());
    // As in Redis, names are looked at before values, and an unknown one comes before what follows it.
    for (name, _) in pairs {
        let name = String::from_utf8_lossy(name);
        match Parameter::find(&name) {
            Some(row) if !row.live => return Err(failed(&name, "can't set immutable config")),
            Some(row) if rows.iter().any(|other| other.name == row.name) => {
                return Err(failed(row.name, "duplicate parameter"));
            }
            Some(row) => rows.push(row),
            None if DERIVED.iter().any(|row| row.name.eq_ignore_ascii_case(&name)) => {
                return Err(failed(&name, "can't set immutable config"));
            }
            None => {
                return Err(SetError::Unknown(name.into_owned()));
            }
        }
    }
    let value = |(row, (_, text)): (&'static Parameter, &(&[u8], &[u8]))| {
        let text = std::str::from_utf8(text).map_err(|_| failed(row.name, "the value must be UTF-8"))?;
        let value = row.kind.parse(text).map_err(|refusal| failed(row.name, &refusal.0))?;
        Ok((row, value))
    };
    rows.into_iter().zip(pairs).map(value).collect()
}

fn failed(name: &str, why: &str) -> SetError {
    SetError::Refused(name.to_owned(), why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::Config;

    fn get(config: &Config, patterns: &[&str]) -> String {
        let patterns: Vec<&[u8]> = patterns.iter().map(|pattern| pattern.as_bytes()).collect();
        config.get(&patterns).iter().map(|(name, value)| format!("{name} {value}\n")).collect()
    }

    fn set(config: &Config, pairs: &[(&str, &str)]) -> String {
        let pairs: Vec<(&[u8], &[u8])> =
            pairs.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
        config.set(&pairs).map_or_else(|error| format!("ERR {error}"), |()| "OK".to_owned())
    }

    #[test]
    fn get_shows_what_clients_ask_for_at_connect() {
        let config = Config::defaults();
        insta::assert_snapshot!(get(&config, &["save", "appendonly", "databases", "maxmemory*", "port"]), @"
        save 
        appendonly yes
        databases 16
        maxmemory-transactions rollback
        maxmemory-clients 0
        maxmemory 0
        maxmemory-policy noeviction
        maxmemory-samples 5
        maxmemory-eviction-tenacity 10
        port 6379
        ");
    }

    #[test]
    fn get_takes_patterns_without_case_and_answers_each_name_once() {
        let config = Config::defaults();
        assert_eq!(get(&config, &["TIMEOUT", "time*", "timeout"]), "TIMEOUT 0\n");
        assert_eq!(get(&config, &["TCP-*"]), "tcp-keepalive 300\ntcp-backlog 511\n");
        assert_eq!(get(&config, &["no-such-row", "["]), "");
        assert_eq!(
            get(&config, &["script-memory", "client-o*"]),
            "\
            script-memory 67108864\nclient-output-buffer-limit normal 1073741824 67108864 60 pubsub \
             33554432 8388608 60\n"
        );
    }

    #[test]
    fn set_is_seen_by_readers() {
        let config = Config::defaults();
        let pairs = [
            ("Timeout", "7"),
            ("proto-max-bulk-len", "2MB"),
            ("client-output-buffer-limit", "normal 2mb 1m 9"),
        ];
        assert_eq!(set(&config, &pairs), "OK");
        assert_eq!(config.timeout.get(), 7);
        assert_eq!(config.proto_max_bulk_len.get_usize(), 2 << 20);
        let limit = &config.client_output_buffer_limit.normal;
        assert_eq!([limit.hard.get(), limit.soft.get(), limit.soft_seconds.get()], [2 << 20, 1_000_000, 9]);
    }

    #[test]
    fn set_refuses_in_the_words_of_redis_and_changes_nothing() {
        let config = Config::defaults();
        let before = get(&config, &["*"]);
        let wrong: &[&[(&str, &str)]] = &[
            &[("timeout", "1"), ("nonsense", "2"), ("databases", "3")],
            &[("timeout", "1"), ("Databases", "4")],
            &[("timeout", "1"), ("script-instances", "fresh")],
            &[("TIMEOUT", "1"), ("timeout", "2")],
            &[("maxclients", "1"), ("TimeOut", "abc")],
            &[("timeout", "-1")],
            &[("timeout", "04")],
            &[("timeout", "99999999999999999999")],
            &[("maxclients", "0")],
            &[("proto-max-bulk-len", "12")],
            &[("proto-max-bulk-len", "12zz")],
            &[("client-output-buffer-limit", "normal 1mb")],
            &[("client-output-buffer-limit", "foo 1 2 60")],
            &[("client-output-buffer-limit", "normal 1 x 60")],
        ];
        let errors: Vec<String> = wrong.iter().map(|pairs| set(&config, pairs)).collect();
        insta::assert_snapshot!(errors.join("\n"), @"
        ERR Unknown option or number of arguments for CONFIG SET - 'nonsense'
        ERR CONFIG SET failed (possibly related to argument 'Databases') - can't set immutable config
        ERR CONFIG SET failed (possibly related to argument 'script-instances') - can't set immutable config
        ERR CONFIG SET failed (possibly related to argument 'timeout') - duplicate parameter
        ERR CONFIG SET failed (possibly related to argument 'timeout') - argument couldn't be parsed into an integer
        ERR CONFIG SET failed (possibly related to argument 'timeout') - argument must be between 0 and 2147483647 inclusive
        ERR CONFIG SET failed (possibly related to argument 'timeout') - argument couldn't be parsed into an integer
        ERR CONFIG SET failed (possibly related to argument 'timeout') - argument couldn't be parsed into an integer
        ERR CONFIG SET failed (possibly related to argument 'maxclients') - argument must be between 1 and 4294967295 inclusive
        ERR CONFIG SET failed (possibly related to argument 'proto-max-bulk-len') - argument must be between 1048576 and 9223372036854775807 inclusive
        ERR CONFIG SET failed (possibly related to argument 'proto-max-bulk-len') - argument must be a memory value
        ERR CONFIG SET failed (possibly related to argument 'client-output-buffer-limit') - Wrong number of arguments in buffer limit configuration.
        ERR CONFIG SET failed (possibly related to argument 'client-output-buffer-limit') - Invalid client class specified in buffer limit configuration.
        ERR CONFIG SET failed (possibly related to argument 'client-output-buffer-limit') - Error in hard, soft or soft_seconds setting in buffer limit configuration.
        ");
        assert_eq!(get(&config, &["*"]), before);
    }
}
