//! Every setting of the server: what it is called, what it may be, and what it is now.
//!
//! A parameter is declared once, as a row of [`table::PARAMETERS`]; its flag, environment variable, file key,
//! `CONFIG GET`, `CONFIG SET` and line of the reference are made from that row.
//!
//! A [`Config`] is shared behind an `Arc` and read where the value is needed, never copied into a struct of
//! somebody's own: then `CONFIG SET` needs to tell nobody but the store, which
//! keeps what it needs of memory's limits. Reading a number is one relaxed atomic load.

mod access;
pub mod cell;
mod derived;
mod kind;
mod load;
mod rewrite;
mod runtime;
mod table;
mod telemetry;

pub use cell::Address;
pub use kind::Kind;
pub use kind::bytes as parse_bytes;
pub use load::{Sources, load};
pub use table::{Config, OF_DATA, PARAMETERS, SCRIPT_FLAGS, reference};

#[cfg(test)]
mod tests {
    use super::derived::DERIVED;
    use super::kind::Kind;
    use super::table::{Config, Fallback, PARAMETERS};

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

    #[test]
    fn rows_that_can_change_are_numbers() {
        for row in PARAMETERS.iter().filter(|row| row.live) {
            let locked = matches!(
                row.kind,
                Kind::Address(..) | Kind::Folder(_) | Kind::File(_) | Kind::Addresses(_) | Kind::Names(..)
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
