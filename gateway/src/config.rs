//! Every setting of the server: what it is called, what it may be, and what it is now.
//!
//! A parameter is declared once, as a row of [`table::PARAMETERS`]; its flag, environment variable, file key,
//! `CONFIG GET`, `CONFIG SET` and line of the reference are made from that row.
//!
//! A [`Config`] is shared behind an `Arc` and read where the value is needed, never copied into a struct of
//! another part: then `CONFIG SET` needs to notify only the store, which
//! keeps what it needs of memory's limits. Reading a number is one relaxed atomic load.

mod access;
pub mod atomic_file;
pub mod cell;
mod choice;
mod clients;
mod derived;
mod errors;
mod kind;
mod load;
mod parameter;
mod replication;
mod rewrite;
mod runtime;
mod schema;
mod scripting;
mod table;
mod telemetry;
mod url;
mod values;

pub use cell::Address;
pub use choice::{
    AuthClients, AutoAsync, Choice, ClientGone, LogFormat, NewUserChannels, OnError, OtlpCompression,
    OtlpProtocol, UndeclaredKeys,
};
pub use errors::SettingError;
pub use kind::ParameterKind;
pub use kind::bytes as parse_bytes;
pub use load::{Sources, load, unknown_variables};
pub use parameter::SCRIPT_FLAGS;
pub use schema::schema;
pub use table::{OF_DATA, PARAMETERS, reference};
pub use url::Url;
pub use values::Config;

#[cfg(test)]
mod tests {
    use super::derived::DERIVED;
    use super::kind::ParameterKind;
    use super::parameter::Fallback;
    use super::table::PARAMETERS;
    use super::values::Config;

    #[test]
    fn names_are_unique_and_plain() {
        let mut names: Vec<&str> =
            PARAMETERS.iter().map(|row| row.name).chain(DERIVED.iter().map(|row| row.name)).collect();
        for name in &names {
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{name}");
        }
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn defaults_are_allowed_values() {
        let config = Config::empty();
        for row in PARAMETERS {
            if let Fallback::Text(text) = row.default {
                let value = row.kind.parse(text).unwrap_or_else(|e| panic!("{}: {e:?}", row.name));
                row.kind.store(&config, value);
            }
        }
    }

    #[test]
    fn what_config_get_shows_can_be_set_again() {
        let config = Config::defaults();
        for row in PARAMETERS {
            let text = row.kind.render(&config);
            row.kind.parse(&text).unwrap_or_else(|e| panic!("{} {text:?}: {e:?}", row.name));
        }
    }

    /// What is put into texts: ends of ranges, units, separators, and what only some rows take.
    const PIECES: [&str; 28] = [
        "",
        " ",
        ",",
        ":",
        "-",
        "-1",
        "0",
        "1",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551616",
        "kb",
        "G",
        "1e3",
        "none",
        "OFF",
        "*",
        "/",
        "[::1]",
        "[",
        "127.0.0.1:0",
        ":65536",
        "https://",
        "normal 1gb 64mb 60",
        "pubsub",
        "KEA$",
        "\0",
        "\u{e9}\u{1f319}",
    ];

    #[test]
    fn any_text_is_refused_or_shown_as_what_means_the_same() {
        let (mut state, mut taken) = (1u64, 0);
        let mut below = |most: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % most
        };
        for row in PARAMETERS {
            let usual = row.kind.render(&Config::defaults());
            for _ in 0..300 {
                let mut text = if below(2) == 0 { String::new() } else { usual.clone() };
                for _ in 0..=below(3) {
                    let ends: Vec<usize> = (0..=text.len()).filter(|at| text.is_char_boundary(*at)).collect();
                    let (one, other) = (ends[below(ends.len())], ends[below(ends.len())]);
                    let to = if below(2) == 0 { one.max(other) } else { one.min(other) };
                    text.replace_range(one.min(other)..to, PIECES[below(PIECES.len())]);
                }
                let Ok(value) = row.kind.parse(&text) else { continue };
                taken += 1;
                let (config, again) = (Config::defaults(), Config::defaults());
                row.kind.store(&config, value);
                let shown = row.kind.render(&config);
                let value = row.kind.parse(&shown);
                let value = value.unwrap_or_else(|e| panic!("{} {text:?}, {shown:?}: {e:?}", row.name));
                row.kind.store(&again, value);
                assert_eq!(row.kind.render(&again), shown, "{} {text:?}", row.name);
            }
        }
        assert!(taken > 200, "only {taken} texts are values");
    }

    #[test]
    fn rows_that_can_change_are_numbers() {
        for row in PARAMETERS.iter().filter(|row| row.live) {
            let locked = matches!(
                row.kind,
                ParameterKind::Address(..)
                    | ParameterKind::Dir(_)
                    | ParameterKind::File(_)
                    | ParameterKind::Addresses(_)
                    | ParameterKind::Names(..)
            );
            // The one secret is read when a password changes.
            let plain = !locked;
            assert!(plain, "{}: readers expect a load without a lock", row.name);
        }
    }

    #[test]
    fn those_of_data_can_change() {
        for name in super::OF_DATA {
            assert!(PARAMETERS.iter().any(|row| row.name == *name && row.live), "{name}");
        }
    }

    #[test]
    fn texts_end_like_sentences() {
        for row in PARAMETERS {
            assert!(row.doc.ends_with('.') && !row.doc.contains('|'), "{}", row.name);
        }
    }
}
